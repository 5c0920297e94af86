// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
	"pathprof/pyframes"
	"pathprof/unwind/proc"
)

// A wake-up by a target's thread has the stack of the waker: the function that
// releases the lock is innermost.
func TestWakersStack(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	for _, version := range []string{"3.8", "3.11", "3.13"} {
		t.Run(version, func(t *testing.T) {
			perftest.Require(t, perftest.Python(version))
			child, process := startPython(t, version, "release.py")
			c, err := Open(Config{OnlyTargets: true})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if err := c.SetProcess(int32(child.PID), process); err != nil {
				t.Fatal(err)
			}
			child.Say("go")
			waiter := int32(parseInt(t, child.Line()))
			if line := child.Line(); line != "done" {
				t.Fatal(line)
			}
			names := innermost(t, c, child.PID, waiter)
			child.Say("end")
			// Wake-ups by the GIL's handing over come from anywhere.
			if names["release"] < 45 {
				t.Errorf("woken from %v, want 50 times from release", names)
			}
		})
	}
}

// innermost counts the functions from which the process woke a thread.
func innermost(t *testing.T, c *Capture, pid int, thread int32) map[string]int {
	t.Helper()
	in, err := pyframes.Find(pid, pyframes.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	mem, err := proc.OpenMemory(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	python := pyframes.OpenProcess(mem, in)
	names := map[string]int{}
	var rec Record
	if err := c.Poll(&rec, func(r *Record) error {
		ev := &r.Event
		if ev.Kind != sched.KindWaking || ev.Task.TID != thread || ev.Other.PID != int32(pid) || ev.Ctx != sched.ContextTask {
			return nil
		}
		name := "no stack"
		if r.HasStack && len(r.Stack.Python) > 0 {
			code, err := python.ReadCode(r.Stack.Python[0].Code)
			if err != nil {
				return err
			}
			name = code.Name
		}
		names[name]++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return names
}
