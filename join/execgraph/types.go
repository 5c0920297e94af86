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
	CauseNetwork   CauseKind = "network"   // a packet arrived, and was on its way
	CauseDisk      CauseKind = "disk"      // a block device did what it was asked for
	CauseLimit     CauseKind = "cpu-limit" // a cgroup's quota of CPU time was used up
	CauseUnknown   CauseKind = "unknown"   // not recorded, or lost
)

// Cause of a wait or of a preemption.
type Cause struct {
	Kind CauseKind
	// Task is the waker (or who ran instead) if Kind is CauseTask, the sender of
	// the packet of a wait for the network, who gave the order of one for a disk; zero if
	// not known.
	Task sched.TaskID
	// Ctx and Vector name the interrupt, softirq or timer otherwise. Of a disk
	// Vector is the device: major<<20 | minor.
	Ctx    sched.Context
	Vector int32
	// Lock is the kind of lock waited for; of the GIL, Task is its holder.
	Lock sched.LockKind
	// Cgroup is the one with the CPU limit, see Graph.Limits.
	Cgroup uint64
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

// By says whom the cause of a wait for a lock names.
type By string

// Whom a wait for a lock names: who held it, or, where that is not known, who
// ended the wait.
const (
	ByHolder By = "holder"
	ByWaker  By = "waker"
)

// Wait is one wait of the path's target itself. Successive timed waits for the
// same thing, between which nothing was done, are one.
type Wait struct {
	Begin, End int64
	Cause      Cause  // what ended it; of the GIL, who held it longest
	Stack      uint32 // where the target blocked, 0 if not taken
	On         On     // system call and object
	Pieces     int    // timed waits it consists of
	// By is set for waits for locks. Holder held the lock when the wait began, zero
	// if not known. HeldNs is how long the waker held it, 0 if not known.
	By     By
	Holder sched.TaskID
	HeldNs int64
	// Took is how long the packet was under way, or the disk's answer took, ns.
	Took int64
	// Work is the function of the kernel worker that ended the wait.
	Work string
	// WakerStack is where the waker ended the wait (recording stack number), 0 if
	// not taken.
	WakerStack uint32
}

// Path is the active path of Target over [Begin, End): its segments tile that
// window exactly and are in time order.
type Path struct {
	Target     sched.TaskID
	Begin, End int64
	Segments   []Segment
	Waits      []Wait
	// Migrations is how often the target went on on another CPU than before.
	Migrations int
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
	// Renamed: it began as a thread of another number, which ended there: an exec
	// by a thread gives it the number of its process.
	Renamed bool
	Kernel  bool // PID dumped as a kernel thread, if known
}
