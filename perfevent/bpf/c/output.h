/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Configuration, rings and loss counters shared by all programs. */
#ifndef PATHPROF_OUTPUT_H
#define PATHPROF_OUTPUT_H

#include "event.h"

/* Set by the loader before the programs are verified. */
const volatile u8 only_targets = 0;	/* --scope process */
const volatile u8 has_prev_state = 1;	/* sched_switch has a 4th argument (5.18) */
const volatile u8 measure_costs = 0;	/* clock the parts of each sample's stack */
const volatile u32 stacks_per_second = 1000; /* blocked stacks of one thread */

/*
 * One ring per CPU. Output never takes a lock, so an interrupt that samples
 * while the same CPU is writing an event is safe, an NMI too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} events SEC(".maps");

/* Per CPU and event kind: what the ring had no room for. */
struct loss {
	u64 lost[EVENT_KINDS];
	u64 idle;    /* overflows on an idle CPU */
	u64 thinned; /* blocked stacks left out on purpose */
	u64 samples; /* overflows that became samples, or were lost */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct loss);
} losses SEC(".maps");

inlined struct loss *loss_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&losses, &zero);
}

/* Of one CPU: what the parts of a sample's stack took, in nanoseconds. */
struct cost {
	u64 samples;
	u64 kernel;
	u64 native;
	u64 python;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cost);
} costs SEC(".maps");

/* cost_clock is 0 unless measure_costs is set: then the verifier removes all of it. */
inlined u64 cost_clock(void) { return measure_costs ? bpf_ktime_get_ns() : 0; }

inlined void emit(void *ctx, void *data, u64 size, u32 kind)
{
	struct loss *loss;

	if (bpf_perf_event_output(ctx, &events, BPF_F_CURRENT_CPU, data, size) == 0)
		return;
	loss = loss_here();
	if (loss && kind < EVENT_KINDS)
		loss->lost[kind]++;
}

#endif
