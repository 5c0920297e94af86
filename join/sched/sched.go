// SPDX-License-Identifier: Apache-2.0

package sched

// Kind says what an [Event] tells.
type Kind uint8

// The kinds of events.
const (
	KindInvalid Kind = iota
	// KindSwitch: CPU goes from Task to Other (kernel/sched/core.c, sched_switch).
	KindSwitch
	// KindWaking: Other, or the context in Ctx, makes Task runnable (sched_waking,
	// which runs in the waker's context; sched_wakeup does not).
	KindWaking
	// KindFork: Other creates Task; Name is the child's name.
	KindFork
	// KindExec: Task now runs another program; Name is its new name.
	KindExec
	// KindExit: Task ends. Its last switch-out follows.
	KindExit
	// KindComm: Task renames itself to Name.
	KindComm
	// KindTask: Task existed at Time in state State; Name is its name and Other.PID
	// the parent process. Comes from the task dump at capture start.
	KindTask
	// KindLost: Count events of CPU were lost at or before Time (since the
	// previous event of that CPU).
	KindLost
)

// Context says in which context a CPU executed a wake-up. Only in
// ContextTask is Event.Other the waker; in the others it is a bystander.
type Context uint8

// The contexts.
const (
	ContextUnknown Context = iota // not known, e.g. nested too deep
	ContextTask                   // Other itself, in user or kernel mode
	ContextHardirq                // a device interrupt; Event.Vector is its number
	ContextSoftirq                // a softirq; Event.Vector is its vector (0 HI … 9 RCU)
	ContextHrtimer                // a high-resolution timer expired
	ContextTimer                  // a timer-wheel timer expired
	ContextIPI                    // an inter-processor interrupt
	ContextNMI                    // a non-maskable interrupt
	ContextIdle                   // the idle task, outside any interrupt
)

// Ref names a task within an event: thread and process number in the
// recording host's initial pid namespace. TID 0 is a CPU's idle task.
type Ref struct {
	TID, PID int32
}

// Bits of Event.State for a switch: the kernel's task states as sched_switch
// reports them (include/linux/sched.h; 6.18). Zero is runnable.
const (
	StateRunnable        = 0x00
	StateInterruptible   = 0x01
	StateUninterruptible = 0x02
	StateStopped         = 0x04
	StateTraced          = 0x08
	StateDead            = 0x10
	StateZombie          = 0x20
	StateParked          = 0x40
	StateIdle            = 0x80 // an idle kernel thread sleeps in this state, too
	// StateRunning is used by KindTask only: the task was on a CPU or runnable
	// when it was dumped; which of the two is not known.
	StateRunning = 0x10000
)

// Event is one execution event of one host, stamped with CLOCK_MONOTONIC
// nanoseconds. Events of one CPU are in time order.
type Event struct {
	Time int64
	CPU  int32
	Kind Kind
	// Ctx and Vector: the context of a wake-up.
	Ctx    Context
	Vector int32
	// Preempt: the switch was a preemption inside the kernel (prev_state "R+").
	Preempt bool
	// Task is whom the event is about; Other is the next task of a switch, the
	// current task of a wake-up, the parent of a fork.
	Task, Other Ref
	// State is the state in which Task leaves the CPU (switch) or was found (task).
	State uint32
	// Stack is the recording's stack of Task where it blocked, 0 if none was taken.
	Stack uint32
	// Name: see the kinds.
	Name string
	// Count: lost events (KindLost); start time of a dumped task in
	// CLOCK_MONOTONIC nanoseconds (KindTask), negative before that clock's zero.
	Count int64
}

// Blocked reports whether a switch with this state takes the task off the CPU
// because it waits, rather than because it was preempted. State I (0x80) is a
// sleep: idle kernel threads use it. A dead task does not wait.
func Blocked(state uint32, preempt bool) bool {
	return !preempt && state&^uint32(StateRunning) != StateRunnable && state&(StateDead|StateZombie) == 0
}

// TaskID is a task across hosts and reuse of thread numbers.
type TaskID struct {
	Host  uint16
	TID   int32
	Start int64 // CLOCK_MONOTONIC of the fork, or the dumped start time; 0 if unknown
}
