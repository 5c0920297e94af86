/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Configuration, loss counters and the way out: one ring per CPU, shared with
 * user space.
 *
 * A program reserves room with one atomic addition, fills it and stores its
 * header last; user space takes records until it meets a header of zero, clears
 * them and moves tail on. Only programs of one CPU write to its ring, and an
 * interrupt's reservation lies behind the one it interrupts. So output takes no
 * lock and wakes nobody: bpf_perf_event_output costs four times what an event
 * does otherwise.
 *
 * Record: u64 header (size with header, in bytes, a multiple of 8; records lost
 * before it << 32), then what event.h says.
 */
#ifndef PATHPROF_OUTPUT_H
#define PATHPROF_OUTPUT_H

#include "event.h"

/* Set by the loader before the programs are verified. */
const volatile u8 only_targets = 0;	/* --scope process */
const volatile u8 sees_interrupts = 1;	/* all programs that keep contexts are attached */
const volatile u8 measure_costs = 0;	/* clock the parts of each sample's stack */
const volatile u32 stacks_per_second = 1000; /* blocked stacks of one thread */
const volatile u32 ring_cpus = 1;	/* CPUs with a ring */
const volatile u32 ring_chunks = 1;	/* of each, a power of two */

#define RING_CHUNK (1 << 20)
#define RING_ROOM (sizeof(struct stack_event) + 8) /* the longest record */
/* Programs that interrupt each other between looking for room and taking it. */
#define RING_NESTED 4

/*
 * A ring's data; a record begins in a chunk and may reach into the room behind
 * it. The next then begins as far into the next chunk.
 */
struct ring_chunk {
	u8 bytes[RING_CHUNK + RING_ROOM];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring_chunk);
} ring_data SEC(".maps");

struct ring {
	u64 head; /* bytes ever reserved: written by programs */
	u64 lost; /* records lost since the last one that found room */
	u64 reserved[6];
	u64 tail; /* bytes ever taken: written by user space */
	u64 reserved_too[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ring);
} rings SEC(".maps");

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
	u64 total; /* from the begin of the program to the end of its output */
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

/* ring_reserve returns room for a record of size bytes, NULL if there is none. */
inlined u64 *ring_reserve(struct ring *r, u32 cpu, u32 size)
{
	u64 used = r->head - *(volatile u64 *)&r->tail, at;
	struct ring_chunk *chunk;
	u32 key;

	if (used + size + RING_NESTED * RING_ROOM > (u64)ring_chunks * RING_CHUNK)
		return 0;
	at = __sync_fetch_and_add(&r->head, size);
	key = cpu * ring_chunks + ((at / RING_CHUNK) & (ring_chunks - 1));
	chunk = bpf_map_lookup_elem(&ring_data, &key);
	return chunk ? (u64 *)(chunk->bytes + (at & (RING_CHUNK - 8))) : 0;
}

/* ring_commit makes a record visible, after all that was written to it. */
inlined void ring_commit(struct ring *r, u64 *header, u64 size)
{
	u64 lost = 0;

	if (r->lost)
		lost = __sync_lock_test_and_set(&r->lost, 0);
	size |= lost << 32;
#if defined(__TARGET_ARCH_x86)
	__asm__ __volatile__("" ::: "memory"); /* stores stay in order */
	*(volatile u64 *)header = size;
#else
	__sync_lock_test_and_set(header, size);
#endif
}

inlined void count_lost(struct ring *r, u32 kind)
{
	struct loss *loss = loss_here();

	if (r)
		__sync_fetch_and_add(&r->lost, 1);
	if (loss && kind < EVENT_KINDS)
		loss->lost[kind]++;
}

/* emit sends size bytes: a struct of event.h, or a stack of any length; 0 if it is lost. */
inlined int emit(void *data, u64 size, u32 kind)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring *r = cpu < ring_cpus ? bpf_map_lookup_elem(&rings, &cpu) : 0;
	u64 *header = 0;

	if (size > sizeof(struct stack_event))
		return 0;
	size = (size + 7) & ~7ULL;
	if (r)
		header = ring_reserve(r, cpu, size + 8);
	if (!header) {
		count_lost(r, kind);
		return 0;
	}
	if (__builtin_constant_p(size))
		__builtin_memcpy(header + 1, data, size);
	else
		bpf_probe_read_kernel(header + 1, size, data);
	ring_commit(r, header, size + 8);
	return 1;
}

#endif
