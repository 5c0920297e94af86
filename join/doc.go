// SPDX-License-Identifier: Apache-2.0

// Package join lays samples and waits on the segments of active paths and says
// how sure the result is. [Analyse] makes a [Profile] of a recording; all outputs
// read that.
//
// # Time
//
// The values path/nanoseconds of a thread's path sum to the window's wall time
// exactly; a path that would not is an error, never an output.
//
//   - A segment on a CPU: its time is divided over its samples, by what each
//     stands for. One between two samples keeps its time under [unsampled].
//   - A wait: its whole, exact time on the stack where the task blocked, or under
//     [no stack: WHY]. Threads of the targets leave such a stack, others do not.
//   - Runnable, but not on a CPU: [preempted by PROCESS/THREAD], on top of the
//     stack of the wait before, if there was one.
//   - Not known: [unknown: WHY].
//
// A sample in interrupt context belongs to the task it interrupted: it had the
// CPU, and the time is missing from its work.
//
// The same moment can lie on several paths: two threads that wait for a third
// both show what it did. Times of different paths must not be added up.
//
// # Modes
//
// Each instant of a path is in one [Mode]; they sum to the wall time exactly.
//
//   - A segment on a CPU has the modes of its samples: the processor's at the sample,
//     and the innermost entry into the kernel on its stack. One without a sample has those of
//     the samples of the same task in segments of about the same length (within a power
//     of two, then its neighbours): how much of a mode rests on that is told apart.
//     Where a task has no sample at all, those of its process; then it is unknown.
//   - Off the CPU it is the call in which the task left it, which the switch tells exactly, or
//     the page fault. A runnable task is where it stopped: in the call it slept in or
//     was preempted in, else in user mode. Only recordings that tell no calls have the
//     mode "preempted".
//
// # Busy waiting
//
// Between two waits a task waits busily if its samples say so, at least 12 of them,
// however often it lost its CPU meanwhile: at a quarter of them (and a fifth with 95 %
// certainty) it asks for something that may not have come (sched_yield, a poll, select or
// epoll, wait for a child, a lock, the clock), four fifths are in one function or what
// it calls, and it gets nothing for it: at most a quarter as many are in other system calls,
// and a twentieth as many give back a lock. So a server under load, which polls and then reads, or a
// counter under a lock that is free, does not. Measured shares (3.7–3.13): loops that ask 28–87 %, of
// the clock least; loops that work at most 21 %. A loop that looks at a variable looks like
// any other: it is not found, nor are loops of a library without symbols.
//
// # Stacks
//
// A sample has up to three parts: kernel, native and Python frames, walked apart
// and cut apart. See [Merge] for their order, and what of it is proven. Traps:
//
//   - Since CPython 3.11 a call from Python to Python does not recurse in C: one
//     frame of _PyEval_EvalFrameDefault runs all Python frames up to one that was
//     entered from C. Up to 3.10 each Python frame has its own.
//   - Stock builds have no frame pointers, so that a walk by them gives the program
//     counter and then either ends or finds return addresses that never were.
//   - A frame about to run is passed to the evaluation function before it is
//     linked into the thread's chain (3.11 and later): for some instructions there is
//     one evaluation frame more than entries.
//   - A thread without a thread state is no Python thread, or one that was
//     sampled before its state was found; [Class].Doubt counts those.
//
// # Margin of error
//
// The share of a function in a class is k of n samples. Samples of one segment are
// not independent of each other if segments differ: a request of one kind gives
// many samples of the same function. What is independent is the segment, or, where
// the target has waited often enough, all segments within one wait: these are the
// clusters. The 95 % interval is
//
//   - of one cluster: Wilson's, of that segment ([MethodWilson]);
//   - of a few: Wilson's for n divided by the design effect, with Student's t
//     ([MethodDesignEffect]), and from five on no narrower than the bootstrap's;
//   - of 20 and more: from resampling clusters, studentized ([MethodBootstrap]).
//
// It is never narrower than Wilson's for n, and is widened by lost samples and by
// those whose function is unknown: see [Interval]. Resampling is seeded by what is
// resampled, so the same recording gives the same intervals. Clusters next to each
// other are joined beyond 200, so that its cost does not grow with the recording.
//
// Time is estimated apart: the time of each cluster is divided over its samples,
// so that samples that are missing from some segments (throttling, loss) do not
// move time to others, as they move shares.
//
// All of it takes the timer as independent of the program. A fixed period that runs
// in step with the program's own breaks that; nothing in a recording tells.
//
// Functions of a class off the CPU are not sampled: their shares are of its time
// and exact.
package join
