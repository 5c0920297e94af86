// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

func TestReasonWords(t *testing.T) {
	n := newNames([]execgraph.Task{
		{ID: task(10), PID: 10, Name: "python3"},
		{ID: task(11), PID: 10, Name: "python3"},
		{ID: task(12), PID: 10, Name: "pool-1"},
		{ID: task(13), PID: 13},
	}, &recording.Meta{IRQs: map[int32]string{33: "nvme0q1"}})
	tests := []struct {
		cause execgraph.Cause
		want  string
	}{
		{execgraph.Cause{}, ""},
		{execgraph.Cause{Kind: execgraph.CauseTask, Task: task(10)}, "task python3/python3"},
		{execgraph.Cause{Kind: execgraph.CauseTask, Task: task(11)}, "task python3/11"},
		{execgraph.Cause{Kind: execgraph.CauseTask, Task: task(12)}, "task python3/pool-1"},
		{execgraph.Cause{Kind: execgraph.CauseTask, Task: task(13)}, "task pid 13/tid 13"},
		{execgraph.Cause{Kind: execgraph.CauseTask, Task: task(99)}, "task unknown/tid 99"},
		{execgraph.Cause{Kind: execgraph.CauseTask, Task: task(0)}, "task idle"},
		{execgraph.Cause{Kind: execgraph.CauseTimer, Ctx: sched.ContextHrtimer}, "timer hrtimer"},
		{execgraph.Cause{Kind: execgraph.CauseTimer, Ctx: sched.ContextTimer}, "timer timer"},
		{execgraph.Cause{Kind: execgraph.CauseInterrupt, Ctx: sched.ContextHardirq, Vector: 33}, "interrupt irq 33 nvme0q1"},
		{execgraph.Cause{Kind: execgraph.CauseInterrupt, Ctx: sched.ContextHardirq, Vector: 9}, "interrupt irq 9"},
		{execgraph.Cause{Kind: execgraph.CauseInterrupt, Ctx: sched.ContextIPI}, "interrupt ipi"},
		{execgraph.Cause{Kind: execgraph.CauseSoftirq, Vector: 3}, "softirq NET_RX"},
		{execgraph.Cause{Kind: execgraph.CauseSoftirq, Vector: 9}, "softirq RCU"},
		{execgraph.Cause{Kind: execgraph.CauseSoftirq, Vector: 10}, "softirq vector 10"},
		{execgraph.Cause{Kind: execgraph.CauseSoftirq, Vector: -1}, "softirq vector -1"},
		{execgraph.Cause{Kind: execgraph.CauseUnknown, Why: "lost"}, "unknown lost"},
		{execgraph.Cause{Kind: execgraph.CauseUnknown}, "unknown unknown"},
	}
	for _, tt := range tests {
		if got := n.reason(tt.cause).String(); got != tt.want {
			t.Errorf("%+v: %q, want %q", tt.cause, got, tt.want)
		}
	}
}

// A process' name is its main thread's, also where the number was used before.
func TestProcessNames(t *testing.T) {
	born := func(tid, pid int32, begin int64, name string) execgraph.Task {
		return execgraph.Task{ID: sched.TaskID{TID: tid, Start: begin}, PID: pid, Name: name, Begin: begin}
	}
	tasks := []execgraph.Task{
		born(5, 5, 100, "second"), born(6, 5, 150, "b"), born(5, 5, 10, "first"), born(6, 5, 20, "a"), born(8, 7, 0, "orphan"),
	}
	n := newNames(tasks, &recording.Meta{Targets: []recording.Target{{PID: 7, Name: "app"}}})
	want := []string{"second/second", "second/b", "first/first", "first/a", "app/orphan"}
	for i, task := range tasks {
		if got := n.label(task.ID); got != want[i] {
			t.Errorf("%+v: %s, want %s", task.ID, got, want[i])
		}
	}
}
