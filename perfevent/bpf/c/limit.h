/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which control group's CPU limit takes a task off the CPU. A limit that is used
 * up throttles the group's run queue and counts in throttle_count of all below
 * (kernel/sched/fair.c, tg_throttle_down). Since 6.18 a task leaves only when it
 * returns to user mode, and says so itself; before, the run queue leaves at once.
 */
#ifndef PATHPROF_LIMIT_H
#define PATHPROF_LIMIT_H

#include "output.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct cfs_rq;

struct task_group {
	struct cgroup_subsys_state css;
	struct cfs_rq **cfs_rq; /* by CPU */
	struct task_group *parent;
};

struct cfs_rq {
	int throttle_count;
	struct task_group *tg;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct task_struct___limit {
	struct sched_entity se;
	_Bool throttled; /* 6.18 */
};

#pragma clang attribute pop

#define MAX_GROUPS 8 /* nested limits that are looked at */

/* limiting_group returns the number of the group whose limit keeps a task of
 * this run queue off: the highest that is throttled; 0 if none is. */
inlined u64 limiting_group(struct cfs_rq *queue)
{
	u64 cpu = bpf_get_smp_processor_id();
	struct task_group *group = 0, *at = BPF_CORE_READ(queue, tg);
	int i;

	for (i = 0; i < MAX_GROUPS && at && queue && BPF_CORE_READ(queue, throttle_count) > 0; i++) {
		struct cfs_rq **queues;

		group = at;
		at = BPF_CORE_READ(group, parent);
		if (!at)
			break;
		queues = BPF_CORE_READ(at, cfs_rq);
		queue = 0;
		bpf_probe_read_kernel(&queue, sizeof(queue), queues + cpu);
	}
	return group ? BPF_CORE_READ(group, css.cgroup, kn, id) : 0;
}

/* emit_limit says that a limit takes prev, which could run, off the CPU now. */
inlined void emit_limit(struct task_struct *prev, u64 now)
{
	struct task_struct___limit *task = (void *)prev;
	struct event e = {};

	if (!bpf_core_field_exists(struct cfs_rq, throttle_count))
		return; /* a kernel without limits */
	if (bpf_core_field_exists(struct task_struct___limit, throttled) && !task->throttled)
		return;
	if (task->se.cfs_rq->throttle_count <= 0)
		return;
	e.value = limiting_group(task->se.cfs_rq);
	if (!e.value)
		return;
	e.time = now;
	e.kind = EVENT_THROTTLE;
	e.pid = prev->tgid;
	e.tid = prev->pid;
	emit(&e, sizeof(e), EVENT_THROTTLE);
}

#endif
