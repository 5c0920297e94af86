// SPDX-License-Identifier: Apache-2.0

// Package perfevent opens the kernel's performance counters: which event is
// counted and how often it samples, on which clock, what the machine allows, and
// what perf tells beside samples. It is the only door to perf_event_open.
//
// [Open] opens [Counters], one for each CPU, for all tasks; a BPF program
// attached to their descriptors takes the samples. [OpenSideBand] opens the
// stream of mappings, names, forks and exits. [Probe] and [CheckRecord] say what
// is missing before anything is opened, [ParseEvent] and [ParsePeriod] read what
// a user asks for. Types, parsers and decoders build on every system; what
// opens something is in the files for Linux.
//
// # Clocks
//
// All times are CLOCK_MONOTONIC in nanoseconds, the clock of bpf_ktime_get_ns
// and of ftrace's "mono". In the kernel both perf and BPF read its NMI-safe form
// (ktime_get_mono_fast_ns in kernel/time/timekeeping.c), which may step back by
// nanoseconds against the exact one while NTP slews the clock. It stands still
// while the machine is suspended.
//
// # Counters
//
// A fixed period gives samples of equal weight and is the default. A frequency
// makes the kernel vary the period, except for the clock events, whose
// frequency is a period; it is converted here, so that the weight is known.
//
// The clock events fire from an hrtimer on a grid: at 1 ms they keep step with
// whatever else runs on a 1 ms grid, so a program that works in such a rhythm is
// always sampled at the same phase. [Counters.Enable] makes the phase random,
// each CPU and each recording its own, which removes the bias from
// the mean of many recordings but not from a single one: a period that is out of
// step ([OutOfStep]) does. [Jitter] is for programs in step with that one, too: its
// samples resemble each other for some 20 periods, so that in the worst case the
// error is twice that of independent ones. A late timer (a virtual machine that was not run) skips periods and does
// not catch up; the achieved rate is then below the asked one. The timer fires
// on an idle CPU as well, and cpu-clock counts idle time.
//
// precise_ip (PEBS, IBS) stays 0 unless asked for. The precise registers are
// those of the instruction that overflowed, but the stack in memory is that of
// the moment of the interrupt, some instructions later: a walk of it may tear.
// The kernel therefore attaches a program that takes stacks to such an event only
// if the event takes a callchain too (perf_event_set_bpf_handler in
// kernel/events/core.c), which costs a second walk.
//
// Programs for samples attach to counters, not to tracepoints: those want
// another type of program. With a program attached that returns 0 no sample is
// written to the counter's ring, while the records of throttling still are: this
// is why each counter has a small ring that nobody waits for.
//
// A counter is throttled when it overflows more often in a scheduler tick than
// kernel.perf_event_max_sample_rate allows, and runs again at the next tick. For
// hardware counters the kernel also lowers that sysctl by itself when their
// interrupts take more than kernel.perf_cpu_time_max_percent of the time.
//
// # Side band
//
// The dummy software event counts nothing and carries the side band. Records
// that are not samples wake a reader by watermark only; wakeup_events ignores
// them. The number of lost records arrives with the next one that fits: losses
// at the very end are not seen. Process ids are those of the opener's pid
// namespace, where BPF programs see the initial namespace's. Only mappings of
// executable memory are told, at the time of mmap, mprotect or exec; what was
// mapped before is in /proc/PID/maps.
//
// # go-perf
//
// Its decoders index without checking and its Close may not run beside a read:
// records are decoded here from their bytes, and a lock keeps the reader and
// Close apart. It waits with a thread per ring: here one poll serves all rings,
// and go-perf is asked only for records that are there. Its Options.PreciseIP
// loses the upper bit (it tests 0x10 where 2 is meant), its ReadCount takes a
// short read for zeros, and it looks for tracepoints below debugfs only.
package perfevent
