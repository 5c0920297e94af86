// SPDX-License-Identifier: Apache-2.0

package sched

// Kind says what an [Event] tells.
type Kind uint8

// The kinds of events.
const (
	KindInvalid Kind = iota
	// KindSwitch: CPU goes from Task to Other (kernel/sched/core.c, sched_switch).
	// To itself: a sample showed that Task has CPU, before any switch did.
	KindSwitch
	// KindWaking: Other, or the context in Ctx, makes Task runnable (sched_waking,
	// which runs in the waker's context; sched_wakeup does not).
	KindWaking
	// KindFork: Other creates Task; Name is the child's name.
	KindFork
	// KindExec: Task now runs another program; Name is its new name. Other is what it
	// was until now if a thread that is not the first did so: it takes over the
	// process' number. Else Other is zero.
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
	// KindObject: file descriptor Object of process Task.PID is Name, until a later
	// such event: "pipe:[33]", "tcp 10.0.0.1:80>10.0.0.2:4000", "/var/log/x". What
	// was open at the begin of the recording has its time. Object may also be the
	// address of a page of a mapped file, see [CallFault].
	KindObject
	// KindSend: Count bytes of payload, the first with number Seq, leave on
	// connection Conn. Other is the current task: the sender in ContextTask only.
	// Bytes that leave later than they were written (a full window) leave in a
	// softirq; the sender is then whoever sent before on Conn.
	KindSend
	// KindReceive: Count bytes of payload, the first with number Seq, arrive on Conn,
	// before the wake-ups that they cause on this CPU.
	KindReceive
	// KindQueue: Other, or the context in Ctx, queues the work item at address
	// Object (workqueue_queue_work).
	KindQueue
	// KindWork: kernel worker Task begins the item at Object; Name is the function
	// (workqueue_execute_start).
	KindWork
	// KindWorkEnd: Task has done the item at Object.
	KindWorkEnd
	// KindIO: a request of block device Vector (major<<20 | minor) completed, Count
	// ns after it was issued by Task, before the wake-ups that it causes on this
	// CPU. Ctx is the context of the completion; Name is the device if known.
	KindIO
	// KindThrottle tells of the CPU limit of cgroup Conn (its number). With a Task:
	// the limit keeps that task, whose switch-out this is (same CPU and time), from
	// running. Without one: what cpu.stat and cpu.max say, Name the cgroup's path,
	// Object the quota and Timeout the period in ns, Seq the throttled periods and
	// Count the throttled ns, both since the recording began.
	KindThrottle
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

// LockKind says what kind of lock a futex is.
type LockKind uint8

// The kinds of locks.
const (
	LockUnknown   LockKind = iota // a futex, of what is not known; or no futex
	LockGIL                       // a mutex or condition inside CPython's GIL structure
	LockMutex                     // a C library mutex
	LockSemaphore                 // a semaphore: threading.Lock, multiprocessing.Lock
	LockPyMutex                   // CPython's one-byte mutex (3.13+)
	LockCondition                 // a C library condition variable
)

// Ref names a task within an event: thread and process number in the
// recording host's initial pid namespace. TID 0 is a CPU's idle task.
type Ref struct {
	TID, PID int32
}

// Nobody is the Event.Holder of a lock that is free.
var Nobody = Ref{TID: -1, PID: -1}

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
	// Ctx and Vector: the context of a wake-up, a packet, a queueing or a completion.
	Ctx    Context
	Vector int32
	// Preempt: the switch was a preemption inside the kernel (prev_state "R+").
	Preempt bool
	// Task is whom the event is about; Other is the next task of a switch, the
	// current task of a wake-up, packet or queueing, the parent of a fork.
	Task, Other Ref
	// State is the state in which Task leaves the CPU (switch) or was found (task).
	State uint32
	// Stack is the recording's stack of Task where it blocked, of a wake-up the
	// stack of Other where it woke; 0 if none was taken.
	Stack uint32
	// Name: see the kinds.
	Name string
	// Count: lost events (KindLost); start time of a dumped task in
	// CLOCK_MONOTONIC nanoseconds (KindTask), negative before that clock's zero.
	Count int64

	// Call is the system call in which Task left the CPU (switch, task), 0 if in
	// none or not known. Object is what it waits on, as Call says: the address of a
	// futex, a file descriptor (read, recv, accept, epoll_wait …, poll of one), a
	// process (wait4, waitid), else the first argument. See also the kinds.
	Call   Call
	Object uint64
	// Timeout is the length of a timed wait in ns, relative to its begin, 0 if it
	// has none or it could not be read.
	Timeout int64
	// Lock says which kind of lock the futex is.
	Lock LockKind
	// Holder holds that lock, or the GIL of Task's interpreter, at Time (switch):
	// the zero Ref if not known, Nobody if it is free.
	Holder Ref
	// Conn is one direction of a connection: a hash of addresses and ports from
	// sender to receiver, the same at both ends. Seq is the number of the first byte
	// of a packet, modulo 2^32. See also KindThrottle.
	Conn uint64
	Seq  uint32
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
