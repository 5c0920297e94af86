// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// limitedGroup makes a control group with 20 ms of every 100 ms, v1 or v2.
func limitedGroup(t *testing.T) string {
	t.Helper()
	for base, files := range map[string]map[string]string{
		"/sys/fs/cgroup/cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
		"/sys/fs/cgroup":     {"cpu.max": "20000 100000"},
	} {
		dir := filepath.Join(base, "pathprof-test-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		// Where only v1 is mounted, the folder above its controllers is no group.
		_, err := os.Stat(filepath.Join(dir, "cpu.stat"))
		ok := err == nil
		for name, text := range files {
			ok = ok && writeExisting(filepath.Join(dir, name), text) == nil
		}
		if ok {
			return dir
		}
	}
	t.Skip("no control group with a CPU limit can be made here")
	return ""
}

// writeExisting writes a file of the kernel.
func writeExisting(name, text string) error {
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// throttledPeriods reads what the kernel counted itself.
func throttledPeriods(t *testing.T, dir string) (n int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			n = int(parseInt(t, strings.TrimSpace(value)))
		}
	}
	return n
}

// Periods in which the limit took effect, as the kernel counts them, show as
// switches of the task because of the limit.
func TestLimit(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.BPF, perftest.Python("3.11"))
	dir := limitedGroup(t)
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.11"), "spin", "print('ready', flush=True)\nwhile True: pass\n")
	t.Cleanup(func() { child.Kill(); child.Wait() }) // before the group is removed
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(child.PID)), 0o644); err != nil {
		t.Fatal(err)
	}
	before := throttledPeriods(t, dir)
	time.Sleep(1500 * time.Millisecond)
	want := throttledPeriods(t, dir) - before
	got := 0
	groups := map[uint64]bool{}
	var rec Record
	if err := c.Poll(&rec, func(r *Record) error {
		if r.Event.Kind == sched.KindThrottle && r.Event.Task.PID == int32(child.PID) {
			got++
			groups[r.Event.Conn] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// On busy CPUs a period is counted, too, if the task does not run again before
	// its end; a task that is on two CPUs' queues in one period leaves twice.
	if want == 0 || 2*got < want || got > 2*want+2 || len(groups) != 1 {
		t.Errorf("%d switches because of the limit of %d groups, in %d throttled periods", got, len(groups), want)
	}
}
