// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

func TestMain(m *testing.M) { perftest.Main(m) }

// The verifier's work is what attaching waits for, and a careless branch can
// multiply it: searches and the status of threads are global functions for that.
func TestVerifierBudget(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	spec := preparedSpec(t, btf.NewCache())
	var o pathprofObjects
	options := ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{LogLevel: ebpf.LogLevelStats}}
	if err := spec.LoadAndAssign(&o, &options); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for name, log := range map[string]string{
		"sample": o.Sample.VerifierLog, "switch": o.OnSwitch.VerifierLog, "waking": o.OnWaking.VerifierLog,
	} {
		m := regexp.MustCompile(`processed (\d+) insns`).FindStringSubmatch(log)
		if m == nil {
			t.Errorf("%s: no count in %q", name, log)
			continue
		}
		if n, _ := strconv.Atoi(m[1]); n > 30_000 {
			t.Errorf("%s: the verifier follows %d instructions", name, n)
		}
	}
}

// preparedSpec is what Open loads here.
func preparedSpec(t *testing.T, cache *btf.Cache) *ebpf.CollectionSpec {
	t.Helper()
	spec, err := loadPathprof()
	if err != nil {
		t.Fatal(err)
	}
	if err := configure(spec, Config{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := sizeRings(spec, Config{}); err != nil {
		t.Fatal(err)
	}
	kernel, err := cache.Kernel()
	if err != nil {
		t.Fatal(err)
	}
	if err := (missing{}).leaveOut(spec, func(o *option) error { return o.lacks(spec, kernel) }); err != nil {
		t.Fatal(err)
	}
	return spec
}

// The life of a child, and its wake-ups, arrive in order.
func TestEvents(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "sleep 0.02; exit 0")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	pid := int32(cmd.Process.Pid)
	seen := map[sched.Kind]int{}
	timers := 0
	var rec Record
	last := map[int32]int64{}
	if err := c.Poll(&rec, func(r *Record) error {
		ev := &r.Event
		// What is interrupted is overtaken by microseconds, what is preempted by
		// time slices.
		if ev.Time < last[ev.CPU]-int64(200e6) {
			t.Errorf("event at %d after %d", ev.Time, last[ev.CPU])
		}
		last[ev.CPU] = ev.Time
		if ev.Task.PID == pid {
			seen[ev.Kind]++
		}
		if ev.Kind == sched.KindWaking && ev.Ctx == sched.ContextHrtimer {
			timers++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, k := range []sched.Kind{sched.KindFork, sched.KindExec, sched.KindExit, sched.KindSwitch, sched.KindWaking} {
		if seen[k] == 0 {
			t.Errorf("no %v of the child", k)
		}
	}
	if timers == 0 {
		t.Error("no wake-up by a timer, though the child slept")
	}
	if losses, err := c.Losses(); err != nil || c.Undecodable() != 0 {
		t.Errorf("losses %v, %v; %d undecodable", losses, err, c.Undecodable())
	}
}

// After Stop nothing comes any more, and nothing is lost, however long it takes
// until the last records are taken.
func TestStop(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	run := func() (events int) {
		if err := exec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
		var rec Record
		if err := c.Poll(&rec, func(*Record) error { events++; return nil }); err != nil {
			t.Fatal(err)
		}
		return events
	}
	if run() == 0 {
		t.Error("no events before Stop")
	}
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	run() // what came before
	if n := run(); n > 0 {
		t.Errorf("%d events after Stop", n)
	}
}
