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
//   - Every perf program is written for NMI context: it takes no lock, allocates
//     nothing and writes only per-CPU memory, the ring, and existing elements of
//     preallocated hash maps (plus one insert per new thread, which fails rather
//     than waits when the bucket is busy).
//
// Events of one CPU arrive in the order in which they were written; an event
// written from an interrupt may overtake the one it interrupted by a few
// microseconds, so times within one CPU are almost, not exactly, sorted.
package bpf
