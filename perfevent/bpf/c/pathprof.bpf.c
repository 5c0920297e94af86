// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * The programs of a recording. Kernel 6.1 or newer with BTF.
 *
 *   sample   perf_event  a counter overflowed: all three stacks
 *   on_*     tp_btf      switch, waking, fork, exec, exit, rename
 *   on_send, on_receive  TCP packets (packet.h)
 *   on_queue, on_work, on_work_end, on_issue, on_complete  (work.h)
 *   *_enter  tp_btf      interrupt context (context.h), no output
 *
 * Maps: rings, ring_data (output.h), losses, contexts, rooms, *_scratches (per CPU);
 * processes (written by user space, copied at fork) and threads (a cache, by
 * thread number, removed at exit). Both hash maps are allocated up front: no
 * memory is allocated in an interrupt. A full processes map leaves new children
 * without Python frames (STOP_NO_INTERP); a full threads map leaves threads
 * uncached (STOP_NO_THREAD).
 */
#include "kernel.h"
#include "event.h"
#include "output.h"
#include "context.h"
#include "python.h"
#include "stack.h"
#include "wait.h"
#include "packet.h"
#include "work.h"
#include "limit.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

inlined int wanted(u32 tgid)
{
	return !only_targets || process_of(tgid);
}

inlined void set_task(struct event *e, struct task_struct *task)
{
	e->pid = task->tgid;
	e->tid = task->pid;
}

inlined void set_other(struct event *e, struct task_struct *task)
{
	e->other_pid = task->tgid;
	e->other_tid = task->pid;
}

/* counter_value is what the overflowing counter has counted; 0: it cannot be read. */
inlined u64 counter_value(struct perf_ctx *ctx)
{
	struct bpf_perf_event_value v = {};

	/* Reads a counter of this CPU in any context (perf_event_read_local). */
	if (bpf_perf_prog_read_value((struct bpf_perf_event_data *)ctx, &v, sizeof(v)))
		return 0;
	return v.counter;
}

SEC("perf_event")
int sample(struct perf_ctx *ctx)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tgid = id >> 32, room = ROOM_SAMPLE;
	struct loss *loss = loss_here();
	struct py_process *p;
	struct stack_event *e;
	int kernel;

	if (!loss)
		return 0;
	if ((u32)id == 0) {
		loss->idle++;
		return 0;
	}
	p = process_of(tgid);
	if (only_targets && !p)
		return 0;
	loss->samples++;
	e = bpf_map_lookup_elem(&rooms, &room);
	if (!e)
		return 0;
	e->event.time = bpf_ktime_get_ns();
	e->event.kind = EVENT_SAMPLE;
	kernel = in_kernel(ctx);
	e->event.flags = FLAG_STACK | (kernel ? FLAG_KERNEL : 0);
	e->event.value = ctx->sample_period;
	e->event.extra = counter_value(ctx);
	/* A clock counter's own timer is on top of the stack of contexts. */
	context_at(&e->event, 1);
	e->event.pid = tgid;
	e->event.tid = (u32)id;
	emit(e, take_stack(ctx, e, p, room, !kernel), EVENT_SAMPLE);
	if (measure_costs && e->head.python)
		add_total(e->event.time);
	return 0;
}

/* report_state turns prev_state into what sched_switch prints (kernel
 * include/trace/events/sched.h and task_index_to_char in sched.h, 6.18). */
inlined u32 report_state(u32 raw)
{
	if ((raw & 0x402) == 0x402) /* TASK_IDLE: uninterruptible, no load */
		return 0x80;
	if (raw & 0x80) /* TASK_DEAD */
		return 0x10;
	if (raw & 0x9000) /* TASK_RTLOCK_WAIT, TASK_FROZEN */
		return 0x02;
	return raw & 0x7f;
}

/* set_wait says what prev, the current task, waits on, and who holds its GIL. */
inlined void set_wait(struct event *e, struct task_struct *prev, struct py_process *p, struct py_thread *t,
		      u64 fault)
{
	if (!prev->pid || prev->flags & (PF_KTHREAD | PF_IO_WORKER | PF_USER_WORKER) || e->state & 0x30)
		return;
	set_call(e, e->state && !(e->flags & FLAG_PREEMPT), fault);
	if (p && (p->flags & PROCESS_PYTHON) && t) {
		/* The C library's number is that of the task's own pid namespace. */
		if (e->holder > 0)
			e->holder = outer_tid(t, e->tid, e->holder);
		set_gil(e, p, t);
	} else if (e->holder > 0 && inner_tid(prev) != (u32)prev->pid) {
		e->holder = 0;
	}
}

SEC("tp_btf/sched_switch")
int on_switch(u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	struct py_process *p = process_of(prev->tgid);
	u32 room = ROOM_SWITCH;
	struct py_thread *t;
	struct stack_event *e;
	u64 fault;

	fault = context_clear();
	if (only_targets && !p && !wanted(next->tgid))
		return 0;
	e = bpf_map_lookup_elem(&rooms, &room);
	if (!e)
		return 0;
	e->event.time = bpf_ktime_get_ns();
	e->event.kind = EVENT_SWITCH;
	e->event.context = 0;
	e->event.vector = 0;
	e->event.value = 0;
	e->event.extra = 0;
	e->event.holder = 0;
	e->event.flags = ctx[0] ? FLAG_PREEMPT : 0;
	e->event.state = report_state(ctx[3]);
	e->event.status = STATUS_GIL_UNKNOWN;
	set_task(&e->event, prev);
	set_other(&e->event, next);
	t = p ? thread_of(prev) : 0;
	set_wait(&e->event, prev, p, t, fault);
	if (!e->event.state && prev->pid)
		emit_limit(prev, e->event.time);
	/* Only a blocked thread's stack belongs to a wait; a dead one has none. */
	if (p && !ctx[0] && e->event.state && !(e->event.state & 0x30)) {
		if (may_take_stack(t, e->event.time, 0)) {
			e->event.flags |= FLAG_STACK;
			emit(e, take_stack(ctx, e, p, room, 0), EVENT_SWITCH);
			return 0;
		}
		struct loss *loss = loss_here();

		e->event.flags |= FLAG_THINNED;
		if (loss)
			loss->thinned++;
	}
	emit(&e->event, sizeof(e->event), EVENT_SWITCH);
	return 0;
}

/*
 * wakers_stack takes the stack of a target's thread that wakes another task: who
 * released it, from where. The program runs with interrupts off, as switches do,
 * so they share a room.
 */
inlined int wakers_stack(void *ctx, struct event *e, struct py_process *p)
{
	u32 room = ROOM_SWITCH;
	struct stack_event *s;

	if (!p || (~p->flags & (PROCESS_TARGET | PROCESS_PYTHON)) || e->context != CONTEXT_TASK)
		return 0;
	if (!may_take_stack(thread_of(bpf_get_current_task_btf()), e->time, 1)) {
		struct loss *loss = loss_here();

		e->flags |= FLAG_THINNED;
		if (loss)
			loss->thinned++;
		return 0;
	}
	s = bpf_map_lookup_elem(&rooms, &room);
	if (!s)
		return 0;
	s->event = *e;
	s->event.flags |= FLAG_STACK;
	emit(s, take_stack(ctx, s, p, room, 0), EVENT_WAKING);
	return 1;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct py_process *p = process_of(waker->tgid);
	struct event e = {};

	if (only_targets && !p && !wanted(task->tgid))
		return 0;
	e.time = bpf_ktime_get_ns();
	e.kind = EVENT_WAKING;
	set_task(&e, task);
	set_other(&e, waker);
	context_at(&e, 0);
	if (!wakers_stack(ctx, &e, p))
		emit(&e, sizeof(e), EVENT_WAKING);
	return 0;
}

/* emit_named sends e with a task's name. */
inlined void emit_named(struct event *e, const char *comm)
{
	struct named_event n = {};

	n.event = *e;
	bpf_probe_read_kernel_str(n.comm, sizeof(n.comm), comm);
	emit(&n, sizeof(n), e->kind);
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	u32 from = parent->tgid, to = child->tgid;
	struct event e = {};

	if (from != to) {
		/* The child's memory is a copy: same interpreter, same addresses. */
		struct py_process *p = bpf_map_lookup_elem(&processes, &from);

		if (p) {
			struct py_process copy = *p;
			u8 *known = ever_known_of(to);

			if (known)
				*known = 1;
			if (!(copy.flags & PROCESS_CHILDREN))
				copy.flags &= ~PROCESS_TARGET;
			bpf_map_update_elem(&processes, &to, &copy, BPF_ANY);
		} else {
			bpf_map_delete_elem(&processes, &to);
		}
	}
	if (only_targets && !wanted(from))
		return 0;
	e.time = bpf_ktime_get_ns();
	e.kind = EVENT_FORK;
	set_task(&e, child);
	set_other(&e, parent);
	emit_named(&e, child->comm);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task, int old_tid)
{
	u32 tgid = task->tgid, tid = task->pid;
	struct py_process *p = bpf_map_lookup_elem(&processes, &tgid);
	struct event e = {};

	if (only_targets && !p)
		return 0;
	/* Another program: user space looks for an interpreter anew. */
	if (p) {
		p->flags &= ~PROCESS_PYTHON;
		p->maps_id = 0;
	}
	bpf_map_delete_elem(&threads, &tid);
	e.time = bpf_ktime_get_ns();
	e.kind = EVENT_EXEC;
	e.value = old_tid;
	set_task(&e, task);
	emit_named(&e, task->comm);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *task)
{
	u32 tid = task->pid;
	struct event e = {};

	forget_inner(tid);
	bpf_map_delete_elem(&threads, &tid);
	if (only_targets && !wanted(task->tgid))
		return 0;
	e.time = bpf_ktime_get_ns();
	e.kind = EVENT_EXIT;
	set_task(&e, task);
	emit(&e, sizeof(e), EVENT_EXIT);
	return 0;
}

SEC("tp_btf/task_rename")
int BPF_PROG(on_rename, struct task_struct *task, const char *comm)
{
	struct event e = {};

	if (only_targets && !wanted(task->tgid))
		return 0;
	e.time = bpf_ktime_get_ns();
	e.kind = EVENT_COMM;
	set_task(&e, task);
	emit_named(&e, comm);
	return 0;
}
