/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the kernel does on behalf of tasks elsewhere: work items of workqueues,
 * from queueing to their end, and requests of block devices, when they complete.
 */
#ifndef PATHPROF_WORK_H
#define PATHPROF_WORK_H

#include "context.h"
#include "output.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct work_struct {
	void *func;
};

struct gendisk {
	int major, first_minor;
};

struct request_queue {
	struct gendisk *disk; /* 5.15 */
};

struct request {
	struct request_queue *q;
	unsigned int __data_len; /* bytes still to do */
};

#pragma clang attribute pop

/* Requests that a device works on. */
struct issued {
	u64 time;
	s32 pid, tid; /* who issued it, 0 if an interrupt did */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u64); /* address of the request */
	__type(value, struct issued);
} requests SEC(".maps");

inlined void emit_work(struct event *e, enum event_kind kind, u64 work, u64 func)
{
	u64 id = bpf_get_current_pid_tgid();

	e->time = bpf_ktime_get_ns();
	e->kind = kind;
	e->value = work;
	e->extra = func;
	if (kind == EVENT_QUEUE) {
		e->other_pid = id >> 32;
		e->other_tid = (u32)id;
		context_at(e, 0);
	} else {
		e->pid = id >> 32;
		e->tid = (u32)id;
	}
	emit(e, sizeof(*e), kind);
}

SEC("tp_btf/workqueue_queue_work")
int BPF_PROG(on_queue, int cpu, void *pool, struct work_struct *work)
{
	struct event e = {};

	emit_work(&e, EVENT_QUEUE, (u64)work, (u64)work->func);
	return 0;
}

SEC("tp_btf/workqueue_execute_start")
int BPF_PROG(on_work, struct work_struct *work)
{
	struct event e = {};

	emit_work(&e, EVENT_WORK, (u64)work, (u64)work->func);
	return 0;
}

/* The item may be freed by now: only its address is used. */
SEC("tp_btf/workqueue_execute_end")
int BPF_PROG(on_work_end, struct work_struct *work)
{
	struct event e = {};

	emit_work(&e, EVENT_WORK_END, (u64)work, 0);
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(on_issue, struct request *request)
{
	u64 key = (u64)request, id = bpf_get_current_pid_tgid();
	struct issued issued = { .time = bpf_ktime_get_ns() };
	struct event e = {};

	context_at(&e, 0);
	if (e.context == CONTEXT_TASK) {
		issued.pid = id >> 32;
		issued.tid = (u32)id;
	}
	bpf_map_update_elem(&requests, &key, &issued, BPF_ANY);
	return 0;
}

/* A request may complete in parts; each wakes who waits for it. */
SEC("tp_btf/block_rq_complete")
int BPF_PROG(on_complete, struct request *request, int error, unsigned int bytes)
{
	u64 key = (u64)request;
	struct issued *issued = bpf_map_lookup_elem(&requests, &key);
	struct gendisk *disk = request->q->disk;
	struct event e = {};

	if (!issued || !disk)
		return 0; /* issued before recording began */
	e.time = bpf_ktime_get_ns();
	e.kind = EVENT_IO;
	e.value = e.time - issued->time;
	e.pid = issued->pid;
	e.tid = issued->tid;
	if (bytes >= request->__data_len)
		bpf_map_delete_elem(&requests, &key);
	context_at(&e, 0);
	e.vector = disk->major << 20 | disk->first_minor;
	emit(&e, sizeof(e), EVENT_IO);
	return 0;
}

#endif
