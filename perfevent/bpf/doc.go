// SPDX-License-Identifier: Apache-2.0

// Package bpf captures in the kernel: samples on counter overflow and execution
// events, each stamped with CLOCK_MONOTONIC (bpf_ktime_get_ns).
//
// The C programs lie in c/, the compiled objects are checked in. Facts that the
// programs rest on:
//
//   - sched_waking runs in the waker's context, sched_wakeup does not. In
//     interrupt context the current task is a bystander: the programs say which
//     context it was, see sched.Context.
//   - A wake-up can precede the switch-out of its target.
//   - State I (idle kernel threads) is a sleep; R+ is a preemption in the kernel.
//   - sched_switch runs with the blocking thread still current, so its own
//     memory can be read: that is the stack of the wait that begins.
//   - Memory is read without faulting pages in: a page that is not resident ends
//     the walk with a reason, it never delays the target.
//   - A call of bpf_probe_read_user costs five times what the copying of a few
//     words does, and a kilobyte little more than a word: the walks read ahead
//     within a page (c/window.h) and never beyond it, because the next page may
//     be one that was never touched.
//   - Verifiers before 6.7 follow the body of a bpf_loop once, and those before
//     6.3 lose bounds of copies: see repeat and opaque in c/kernel.h. Load on 6.1
//     what was changed (perfevent/perftest/vm).
//
// # Interrupts
//
// A hardware counter of x86 overflows in an NMI, which may interrupt any other
// program here, and the kernel inside any of its locks. Why nothing waits then:
//
//   - sample alone runs in NMI. It may interrupt all others, none interrupts
//     it: the kernel counts nesting per CPU (bpf_prog_active, and
//     recursion contexts of perf) and drops what would nest in the same program. Its
//     rooms and scratches are its own (ROOM_SAMPLE), so it cannot tear what a
//     switch is writing. bpf_probe_read_user and bpf_probe_read_kernel do not
//     fault pages in and do not sleep; bpf_get_stack walks without locks.
//   - The ring is taken by one atomic addition (c/output.h), the losses and
//     contexts are per CPU, and sample only reads contexts. A program that is
//     interrupted between reading and writing depth goes on with its own value,
//     because interrupts leave the depth as they found it.
//   - sample looks up preallocated hash maps, which takes no lock. It inserts
//     into threads once per thread: the bucket's lock is a raw one that the
//     kernel gives up on (EBUSY) if this CPU holds it already
//     (htab_lock_bucket in kernel/bpf/hashtab.c, since 5.15), and other CPUs hold
//     it for some instructions. The list of free elements is tried without
//     waiting in NMI (___pcpu_freelist_pop_nmi). A failed insert leaves the thread
//     uncached for that sample, which then says so (STOP_NO_THREAD).
//   - waking and the interrupt programs run in hard interrupts and inside the
//     run queue's lock: they read their arguments, update per-CPU memory and take
//     room in the ring. switch runs inside the run queue's lock, too, with
//     interrupts off, in its own rooms (ROOM_SWITCH), and its inserts are those of
//     sample. fork, exec, exit and rename run in a task, may be interrupted by all
//     others, and delete from maps as above.
//   - No program allocates, calls a helper that may sleep, or wakes anybody. Every
//     loop is bounded, so the longest time is that of the deepest stack.
//
// Events of one CPU arrive in the order in which they were written; an event
// written from an interrupt may overtake the one it interrupted by a few
// microseconds, so times within one CPU are almost, not exactly, sorted.
package bpf
