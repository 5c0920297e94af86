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
//   - So a switch, which has no time to lose, asks memory as seldom as it can: what
//     kind of lock a futex is and that there is one interpreter hold for a
//     millisecond (c/wait.h, gil.h); who holds a lock is read each time.
//   - Verifiers before 6.7 follow the body of a bpf_loop once, and those before
//     6.3 lose bounds of copies: see repeat and opaque in c/kernel.h. Load on 6.1
//     what was changed (perfevent/perftest/vm).
//
// # Interrupts
//
// A hardware counter of x86 overflows in an NMI, which may interrupt any other
// program here, and the kernel inside any of its locks. The counters of arm64 do
// so where the kernel uses pseudo NMIs. Every counter is treated as if it were
// one. What keeps that safe, by what is shared:
//
//   - Nesting. The kernel runs no program twice on a CPU: it counts runs of each
//     program that sits on a tracepoint (prog->active in __bpf_trace_run), and of
//     perf's programs together (bpf_prog_active in bpf_overflow_handler), and
//     drops what would nest. bpf_prog_active is also up while user space changes
//     a map with bpf(2): a sample of that moment on that CPU is dropped and
//     counted by nobody, only the achieved rate shows it.
//   - Rooms and scratches. sample has its own (ROOM_SAMPLE). switch and waking
//     share the others (ROOM_SWITCH, file_rooms): both run with interrupts off, so
//     that neither interrupts the other; an NMI runs sample alone.
//   - Rings (c/output.h). Room is taken by one atomic addition, by programs of one
//     CPU only. Between looking for room and taking it, a task's program may be
//     interrupted by a softirq's, that by an interrupt's, that by sample: four
//     records, for which there is always room left (RING_NESTED). A header is
//     written last, so user space waits at a record that is still being filled,
//     and so does what interrupted it. Nobody is woken.
//   - Losses and contexts are per CPU, and counted without atomic operations: an
//     interrupt between reading and writing a counter of the same kind makes it
//     one too low. A depth is safe, because interrupts leave it as they found it;
//     a sample between its change and that of the entry may name the context
//     before.
//   - Hash maps are preallocated, but for code_maps, which only user space
//     writes. Looking up takes no lock. Writing takes a bucket's lock, a raw one
//     that the kernel gives up on (EBUSY) if this CPU holds it already
//     (htab_lock_bucket in kernel/bpf/hashtab.c), and that other CPUs hold for some
//     instructions, with interrupts off. The list of free elements is tried
//     without waiting in NMI (___pcpu_freelist_pop_nmi).
//   - Memory. bpf_probe_read_user and bpf_probe_read_kernel fault no page in
//     and do not sleep. bpf_get_stack walks without locks, into a buffer of perf's,
//     of which each CPU has one for tasks, softirqs, interrupts and NMIs each.
//     bpf_perf_prog_read_value reads a counter of this CPU (perf_event_read_local,
//     made for NMIs).
//   - No program allocates, calls a helper that may sleep, or wakes anybody. Every
//     loop is bounded, so the longest time is that of the deepest stack.
//
// Program by program, from the one that may interrupt all others:
//
//   - sample (NMI, or a timer's interrupt) reads contexts, processes, code_maps,
//     the unwind tables and the tasks' memory, and writes its rooms, the ring and
//     losses. It inserts into threads and inner_tids, once per thread: a failed
//     insert leaves the thread uncached for that sample, which then says so
//     (STOP_NO_THREAD). What it changes of a thread's entry (the thread state it
//     found) are single words of the current thread, which switch and waking
//     change with equal values.
//   - irq_enter and irq_leave, hrtimer_…, call_…, single_…, irq_work_… and ipi_…
//     (interrupts), softirq_… and timer_… (softirqs), on_fault (a task) write the
//     contexts of their CPU and nothing else.
//   - on_switch runs inside the run queue's lock. Its parts (c/wait.h, gil.h,
//     file.h, limit.h) read the leaving task's registers and memory, its locks'
//     and the GIL's, kernel structures of its files and control groups, all
//     through bpf_probe_read; they write the event, threads and inner_tids as
//     sample does, and files_seen, an array whose words are hints: one that
//     another CPU has overwritten sends a file's event once more. So are those of
//     locks_seen: one that two CPUs write at once is of one of them, or of none.
//   - on_waking runs inside the woken task's pi_lock, in any context but NMI. It
//     takes a stack only in a task.
//   - on_send, on_receive (c/packet.h; tasks and softirqs) and on_queue, on_work,
//     on_work_end (c/work.h; on_queue in any context but NMI) read headers and
//     arguments into an event of their own and take room in the ring.
//   - on_issue and on_complete (c/work.h; tasks, softirqs, interrupts) also write
//     requests, which no other program uses. A failed insert leaves a request
//     without its time, and on_complete says nothing of it.
//   - on_fork, on_exec, on_exit and on_rename run in a task with interrupts on,
//     and may be interrupted by all others. They write processes, and delete from
//     threads and inner_tids; what sample finds of a thread that is ending, it
//     finds or does not.
//
// TestNested samples at the highest rate while all of these run, and says which
// it hit.
//
// Events of one CPU arrive in the order in which they were written; an event
// written from an interrupt may overtake the one it interrupted by a few
// microseconds. On kernels that preempt themselves so may others overtake a program
// that runs in a task (fork, exec, rename, sent packets, queued work), by time slices.
// So times within one CPU are almost, not exactly, sorted.
package bpf
