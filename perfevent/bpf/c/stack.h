/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Kernel, native and Python stack of the current task, in one event. */
#ifndef PATHPROF_STACK_H
#define PATHPROF_STACK_H

#include "gil.h"
#include "native.h"
#include "output.h"
#include "python.h"

/* Two rooms per CPU: an interrupt may sample while a switch is written. */
#define ROOM_SWITCH 0
#define ROOM_SAMPLE 1

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct stack_event);
} rooms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct py_scratch);
} py_scratches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, u32);
	__type(value, struct native_scratch);
} native_scratches SEC(".maps");

/* addresses takes one part of the stack with the kernel's own walk. */
inlined u32 addresses(void *ctx, void *out, u32 size, u64 flags, u8 *stop)
{
	long got = bpf_get_stack(ctx, out, size, flags);

	*stop = got < 0 ? STOP_FAULT : (u32)got >= size ? STOP_DEPTH : STOP_COMPLETE;
	return got < 0 ? 0 : (u32)got / 8;
}

/* remember_thread makes an entry for the current thread. */
global_fn u32 remember_thread(u32 tid)
{
	struct py_thread fresh = {};

	fresh.tgid = bpf_get_current_pid_tgid() >> 32;
	fresh.inner_tid = inner_tid(bpf_get_current_task_btf());
	bpf_map_update_elem(&threads, &tid, &fresh, BPF_ANY);
	remember_inner(&fresh, tid);
	return 0;
}

/* thread_of returns what is remembered of the current thread. */
inlined struct py_thread *thread_of(struct task_struct *current)
{
	u32 tid = current->pid;
	struct py_thread *t = bpf_map_lookup_elem(&threads, &tid);

	if (!t) {
		remember_thread(tid);
		t = bpf_map_lookup_elem(&threads, &tid);
	}
	return t;
}

/* python_part finds the current thread's frames. */
global_fn u32 python_part(struct py_process *p, struct py_scratch *s, struct stack_event *e, u32 at)
{
	struct py_thread *t;
	u64 state = 0;

	if (!p || !s || !e)
		return 0;
	t = thread_of(bpf_get_current_task_btf());
	e->head.python_stop = STOP_NO_THREAD;
	if (t)
		state = thread_state(p, t, s, e->event.time);
	if (state)
		e->event.status = status_of(p, t, s, &state, e->event.time);
	return state ? walk_python(p, s, state, e, at) : 0;
}

/* native_part walks by tables where the process has them, else by frame pointer. */
inlined u32 native_part(void *ctx, struct py_process *p, struct native_scratch *s, struct stack_event *e, u32 at)
{
	u32 n;

	s->evals = 0;
	if (p && p->maps_id) {
		__builtin_memcpy(s->eval, p->eval, sizeof(s->eval));
		return walk_native(p->maps_id, s, e, at);
	}
	n = addresses(ctx, e->words + at, MAX_NATIVE * 8, BPF_F_USER_STACK, &e->head.native_stop);
	if (n > 0)
		e->words[at] |= NATIVE_EXACT;
	if (n > 0 && e->head.native_stop == STOP_COMPLETE)
		e->head.native_stop = STOP_NO_FRAME_PTR; /* how the chain ended is not known */
	return n;
}

/* add_cost adds the times between the parts of a sample's stack. */
inlined void add_cost(u64 begin, u64 kernel, u64 native, u64 python)
{
	u32 zero = 0;
	struct cost *c = bpf_map_lookup_elem(&costs, &zero);

	if (!c)
		return;
	c->samples++;
	c->kernel += kernel - begin;
	c->native += native - kernel;
	c->python += python - native;
}

inlined void add_total(u64 begin)
{
	u32 zero = 0;
	struct cost *c = bpf_map_lookup_elem(&costs, &zero);

	if (c)
		c->total += cost_clock() - begin;
}

/*
 * take_stack fills e's stack and returns the bytes to send. p is the process'
 * entry, NULL if there is none; in_user: there is no kernel part.
 */
inlined u64 take_stack(void *ctx, struct stack_event *e, struct py_process *p, u32 room, int in_user)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct native_scratch *native_room = bpf_map_lookup_elem(&native_scratches, &room);
	struct py_scratch *python_room = bpf_map_lookup_elem(&py_scratches, &room);
	u32 kernel = 0, native = 0, python = 0;
	u64 size, begin, after_kernel, after_native;

	if (!native_room || !python_room)
		return sizeof(e->event) + sizeof(e->head);
	e->head.native_stop = STOP_NONE;
	e->head.python_stop = STOP_NO_INTERP;
	e->event.status = STATUS_GIL_UNKNOWN;
	e->head.kernel_stop = STOP_COMPLETE;
	begin = cost_clock();
	if (!in_user)
		kernel = addresses(ctx, e->words, MAX_KERNEL * 8, 0, &e->head.kernel_stop);
	if (kernel > MAX_KERNEL)
		kernel = MAX_KERNEL;
	after_kernel = cost_clock();
	if (!(task->flags & PF_KTHREAD)) {
		native = native_part(ctx, p, native_room, e, kernel);
		if (native > MAX_NATIVE)
			native = MAX_NATIVE;
	}
	after_native = cost_clock();
	if (p && (p->flags & PROCESS_PYTHON)) {
		python_room->evals = native_room->evals;
		python_room->eval_sp[0] = native_room->eval_sp[0];
		python_room->eval_sp[1] = native_room->eval_sp[1];
		python_room->pc = native_room->regs[PT_PC];
		python = python_part(p, python_room, e, kernel + native);
		if (python > MAX_PYTHON)
			python = MAX_PYTHON;
	}
	/* Of processes that have both parts only: others would thin the means. */
	if (measure_costs && room == ROOM_SAMPLE && python)
		add_cost(begin, after_kernel, after_native, cost_clock());
	e->head.kernel = kernel;
	e->head.native = native;
	e->head.python = python;
	size = sizeof(e->event) + sizeof(e->head) + 8 * (u64)(kernel + native) +
	       sizeof(struct py_frame) * (u64)python;
	return size > sizeof(*e) ? sizeof(*e) : size;
}

/*
 * may_take_stack lets a thread leave stacks_per_second stacks a second of its own
 * waits (use 0), and as many of the wake-ups it causes (use 1), with a burst of as
 * many: a thread that blocks tens of thousands of times a second would pay more
 * for its stacks than for its work.
 */
inlined int may_take_stack(struct py_thread *t, u64 now, u32 use)
{
	struct bucket *b;
	u64 passed;

	if (!t)
		return 1;
	b = &t->buckets[use & 1];
	passed = (now - b->time) * stacks_per_second / 1000000000ULL;
	if (passed > 0) {
		b->level = passed > b->level ? 0 : b->level - (u32)passed;
		b->time = now;
	}
	if (b->level >= stacks_per_second)
		return 0;
	b->level++;
	return 1;
}

#endif
