// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// What the kernel has no place for, or refuses, is left out and said; the rest
// is recorded.
func TestMissing(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	here := 0 // that this kernel lacks anyway
	for _, f := range Probe() {
		if !f.OK {
			here++
			t.Logf("%s: %s", f.Name, f.Detail)
		}
	}
	elsewhere := func(o *option, spec *ebpf.CollectionSpec) {
		for _, name := range o.programs {
			spec.Programs[name].AttachTo = "no_such_tracepoint"
		}
	}
	for _, c := range []struct {
		name   string
		change func(*option, *ebpf.CollectionSpec)
		says   string
	}{
		{"nothing", func(*option, *ebpf.CollectionSpec) {}, ""},
		{"all tracepoints", elsewhere, "this kernel has no tracepoint no_such_tracepoint"},
		{"all refused", func(o *option, spec *ebpf.CollectionSpec) {
			for _, name := range o.programs {
				// Reads where nothing is.
				spec.Programs[name].Instructions = asm.Instructions{asm.LoadMem(asm.R0, asm.R9, 0, asm.Word), asm.Return()}
			}
		}, "refuses a BPF program"},
		{"packets only", func(o *option, spec *ebpf.CollectionSpec) {
			if o.name == "TCP packets" {
				elsewhere(o, spec)
			}
		}, "TCP packets are not recorded, so waits for data end at the interrupt that brought it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec, err := loadPathprof()
			if err != nil {
				t.Fatal(err)
			}
			for i := range options {
				c.change(&options[i], spec)
			}
			checkMissing(t, spec, c.says, here)
		})
	}
}

// checkMissing opens what is left of spec and looks at what it records.
func checkMissing(t *testing.T, spec *ebpf.CollectionSpec, says string, here int) {
	t.Helper()
	c, err := open(spec, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list := c.Missing()
	if says == "" && len(list) != here || !strings.Contains(strings.Join(list, "\n"), says) {
		t.Errorf("missing %q, want %q", list, says)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "0.02")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	var rec Record
	seen, contexts := map[sched.Kind]bool{}, map[sched.Context]bool{}
	if err := c.Poll(&rec, func(r *Record) error {
		seen[r.Event.Kind] = true
		if r.Event.Kind == sched.KindWaking && r.Event.Task.PID == int32(cmd.Process.Pid) {
			contexts[r.Event.Ctx] = true
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []sched.Kind{sched.KindFork, sched.KindExec, sched.KindExit, sched.KindSwitch, sched.KindWaking} {
		if !seen[kind] {
			t.Errorf("no %v", kind)
		}
	}
	// Its timer's interrupt is known, or known to be unknown.
	blind := strings.Contains(strings.Join(list, "\n"), "high-resolution timers")
	if contexts[sched.ContextIPI] && blind || contexts[sched.ContextUnknown] != blind || contexts[sched.ContextHrtimer] == blind {
		t.Errorf("woken in %v", contexts)
	}
}
