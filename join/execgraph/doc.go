// SPDX-License-Identifier: Apache-2.0

// Package execgraph builds the execution graph of a recording and walks active
// paths over it.
//
// The graph has a horizontal line per task, tiled by intervals in which the task
// was in one [State], and a lane per CPU, tiled by who had it. A Blocked interval
// that a task ended is the graph's vertical edge: it leads to that task at the
// interval's end.
//
// # Rules of the builder
//
// A switch says everything about two tasks: the one that leaves was running and is
// now blocked, preempted or dead; the other one runs. Between two switches only a
// wake-up matters, and only to a blocked task.
//
//   - State I (0x80) is a sleep: idle kernel workers use it. R and R+ are not: the
//     task would go on if it had a CPU.
//   - sched_waking runs in the waker's context and can precede the sleeper's
//     switch-out by some microseconds: try_to_wake_up (kernel/sched/core.c) tests the
//     state that the sleeper set before it called schedule. The last wake-up of a
//     running task is therefore kept: if the task then leaves to sleep and comes back
//     without another wake-up, it was runnable all along. A wake-up of a preempted task
//     changes nothing.
//   - A forked task is runnable from its fork to its first switch-in.
//   - A task ends at its switch-out in state X or Z. It can block after the exit event:
//     do_exit (kernel/exit.c) still gives its memory and files back.
//   - A task that comes back from a wait without a wake-up waited for an unknown
//     reason: [WhyLost] if events of any CPU were lost meanwhile, else [WhyNoWakeup].
//
// # Rules of initial states
//
// Nothing is known of a task before its first event, so it begins as Unknown, with
// these exceptions:
//
//   - Dumped asleep (S, D, T, I …), with no earlier event: Blocked since the recording
//     began. Dumped as R: nothing follows, it may have had a CPU or not.
//   - Its first event is a switch-out, from a CPU that had not switched before: it ran
//     there since the recording began, or since the CPU last lost events. This beats a
//     dump that says S: a task sets its state before it leaves the CPU.
//   - Its first events are a wake-up and a switch-in: runnable from that wake-up on. Had
//     the task been running then, its switch-out would have come first.
//
// # Rules of loss
//
// Lost events of a CPU lie between two events that were kept. The task that ran there
// is Unknown from the last event of that CPU on until a switch names it; so is the
// lane until the loss is over. Afterwards the first switch tells who was running since.
// Contradictions without a loss mark are treated alike, with [WhyNoSwitch].
// Blocked and preempted tasks keep their state over a loss, as they are not known to
// be touched by it; a path over such a stretch carries a warning.
//
// # Rules of causes
//
// A path goes on in the task that ended a wait. Where more is known it goes on in
// who is behind:
//
//   - The GIL. CPython waits for it in pieces of its switch interval (5 ms), most of
//     which a timer ends. Pieces that timed out and go on are one wait, unless a reading names
//     the thread itself as holder in between. Each instant of it leads to who held the GIL
//     then, by the readings of all threads of the process: at each block and switch. A free
//     lock counts as its next holder's. Where it may have been either it is [WhyHolder].
//   - Polls (and futexes) with a timeout that end by it and begin anew from the same
//     stack, or for the same epoll, after so short a time that nothing was done are one wait, too: what ends the last
//     piece ended it.
//   - A wake-up in the softirq NET_RX, or by ksoftirqd, right after a packet's arrival on
//     that CPU: the path is the sender's until it first sent the last of these bytes, the
//     network's since. One after a disk's answer likewise: that of who gave the order,
//     then the disk's.
//   - A wake-up by a kernel worker: the worker's line while it did the item, before
//     that of who queued it.
//
// None of these tasks need have been running when the wait ended, so that a path could
// lead back to a task it came through, in a deadlock: it stops there.
//
// # Two readings
//
// [Graph.ActivePath] is the theses' approximation (seed 000, algorithm 2), of the whole
// window: a wait [b, e) is what its waker did in all of [b, e), whatever for, its own
// waits replaced alike; before such a wait of the waker the path is its own again.
//
// [Graph.CausalPath] counts of a task's work only what came after it could know what
// it would end. It goes back from e: along the waker's line to the end of its last
// wait that another task ended, there to that task, and so on until b; there is no
// way back to what somebody did before he was woken, as only his waker's work lay
// between him and that moment: had he been quicker before, the wait would have ended no
// sooner. What does not begin anew: a wait that a timer, a disk or another interrupt ended,
// without a task behind it, is part of what its task was at; so is time off the CPU
// while runnable. A new task goes on in its creator. Waits for the GIL, packets and kernel
// workers lead where they lead in the other reading.
//
// Within a wait that is the exact critical path of seed 000, section 4.3.1 (table 4.1,
// column "Exact"); before b the path is the target's own in both readings. Which one
// is right for a waker that handled somebody else's request before depends on
// whether it was free to begin sooner; where they differ, ask that. Both tile the
// window, with the same waits and the same time of the target's own.
//
// Where a wait leads is resolved once and remembered ([Graph] is safe for concurrent
// use all the same), so that a path costs about what it is long, however many others
// lead through the same waits.
//
// # Parallel construction
//
// [Build] builds units, each from a slab of the recording and from unknown state,
// and merges them in order. Of what happens to a task before its state is known
// within a unit only a few events can matter: the first wake-up (if the task comes in
// blocked or unknown), the last (if it comes in running), the first dump and the first
// switch. A switch-out to sleep needs one event more: whether an earlier wake-up ends
// that sleep depends on what came in. The merge replays these onto the state the
// earlier units left, with the code that also builds sequentially, so any cut
// into slabs gives the same graph. What events tell besides states is true on its own
// (see facts): units put it one after the other.
//
// # Cycles
//
// A path goes from a wait to the task that ended it, which was running at that moment.
// What it meets there ended no later. A wait that ends later than the wake-up it shall
// explain, or is met again at the same nanosecond, is a contradiction in the recording: the
// path stops there with [WhyNoSwitch], so it always ends.
package execgraph
