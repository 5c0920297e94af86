// SPDX-License-Identifier: Apache-2.0

package execgraph

import "pathprof/join/sched"

// State is what a task does at an instant; it is always exactly one of these.
type State uint8

// The states.
const (
	Unknown     State = iota // not determined by what was recorded
	Running                  // on a CPU
	Preempted                // runnable, but another task has the CPU
	Blocked                  // waiting for a wake-up
	Interrupted              // on a CPU that serves an interrupt
)

// CauseKind says what ended a wait, or who had the CPU meanwhile. The words are
// the same in reports, profile labels and JSON.
type CauseKind string

// The kinds of causes.
const (
	CauseNone      CauseKind = ""
	CauseTask      CauseKind = "task"      // another task
	CauseTimer     CauseKind = "timer"     // a timer expired
	CauseInterrupt CauseKind = "interrupt" // a device or processor interrupt
	CauseSoftirq   CauseKind = "softirq"   // deferred interrupt work
	CauseUnknown   CauseKind = "unknown"   // not recorded, or lost
)

// Cause of a wait or of a preemption.
type Cause struct {
	Kind CauseKind
	// Task is the waker (or who ran instead) if Kind is CauseTask.
	Task sched.TaskID
	// Ctx and Vector name the interrupt, softirq or timer otherwise.
	Ctx    sched.Context
	Vector int32
	// Why says why a cause is unknown: lost, no-wakeup-seen, outside, exited …
	Why string
}

// Segment is a piece of an active path: from Begin to End (ns) the path leads
// through Task, which was in State.
type Segment struct {
	Begin, End int64
	Task       sched.TaskID
	State      State
	CPU        int32 // where Task ran; -1 if it did not
	// Cause why Task was not running; zero while it ran. For a Blocked segment
	// it is the leaf that was not replaced by another task.
	Cause Cause
	// Wait is the index in Path.Waits of the target's own wait this segment
	// lies in, -1 while the target itself runs, is preempted or unknown.
	Wait int
	// Depth is 0 on the target's own line, one more for each waker.
	Depth int
	// Stack is where Task blocked (recording stack number), 0 if not taken.
	Stack uint32
}

// Wait is one wait of the path's target itself.
type Wait struct {
	Begin, End int64
	Cause      Cause  // what ended it, directly
	Stack      uint32 // where the target blocked, 0 if not taken
}

// Path is the active path of Target over [Begin, End): its segments tile that
// window exactly and are in time order.
type Path struct {
	Target     sched.TaskID
	Begin, End int64
	Segments   []Segment
	Waits      []Wait
	Warnings   []string
}

// Task is what the graph knows of a task.
type Task struct {
	ID     sched.TaskID
	PID    int32
	Name   string // last name
	Parent int32  // process number of the parent, 0 if unknown
	// Begin and End of its life within the recording, ns. Born and Exited tell
	// whether those are its fork and exit or the recording's ends.
	Begin, End   int64
	Born, Exited bool
	Kernel       bool // PID dumped as a kernel thread, if known
}
