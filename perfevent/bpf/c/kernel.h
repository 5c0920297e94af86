/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The few kernel types the programs touch. Field offsets are relocated against
 * the running kernel's BTF (CO-RE), so only names and types matter here.
 */
#ifndef PATHPROF_KERNEL_H
#define PATHPROF_KERNEL_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __s32 s32;
typedef __u64 u64;
typedef __s64 s64;

#define inlined static inline __attribute__((always_inline))

/*
 * Functions that the verifier looks at once, and not once for every state in
 * which they are called. Their pointers may be NULL as far as it knows.
 */
#define global_fn __attribute__((noinline))

/*
 * Makes the compiler forget what it knows of a variable, so that the check which
 * follows is made, and on the register that is used: verifiers up to 6.2 do not
 * see that a copy, or half of a checked value, is bounded too.
 */
#define opaque(variable) asm volatile("" : "+r"(variable))

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct thread_struct {
	unsigned long fsbase; /* x86-64 */
};

struct signal_struct {
	int nr_threads;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_state;
	unsigned int flags;
	char comm[16];
	struct pid *thread_pid;
	struct thread_struct thread;
	struct signal_struct *signal;
};

/* arm64 keeps the thread pointer elsewhere; same name as in the kernel but for
 * the suffix, which CO-RE ignores. */
struct tls_words___arm64 {
	unsigned long tp_value;
};

struct thread_struct___arm64 {
	struct tls_words___arm64 uw;
};

struct task_struct___arm64 {
	struct thread_struct___arm64 thread;
};

struct irqaction {
	const char *name;
};

#pragma clang attribute pop

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

/*
 * What BPF_PROG_TYPE_PERF_EVENT sees: struct bpf_perf_event_data with the
 * architecture's bpf_user_pt_regs_t, whose layout is UAPI.
 */
#if defined(__TARGET_ARCH_x86)
#define PERF_REGS 21
#define PERF_REG_FP 4
#define PERF_REG_IP 16
#define PERF_REG_CS 17
#define PERF_REG_SP 19
#elif defined(__TARGET_ARCH_arm64)
#define PERF_REGS 34
#define PERF_REG_FP 29
#define PERF_REG_SP 31
#define PERF_REG_IP 32
#define PERF_REG_PSTATE 33
#else
#error "no register layout for this processor"
#endif

struct perf_ctx {
	u64 regs[PERF_REGS];
	u64 sample_period;
	u64 addr;
};

/* Whether the counter interrupted kernel code. */
inlined int in_kernel(struct perf_ctx *ctx)
{
#if defined(__TARGET_ARCH_x86)
	return (ctx->regs[PERF_REG_CS] & 3) == 0; /* arch/x86 user_mode() */
#else
	return (ctx->regs[PERF_REG_PSTATE] & 0xf) != 0; /* arch/arm64 user_mode() */
#endif
}

/* The user thread pointer of the current task: glibc's and musl's pthread_t. */
inlined u64 thread_pointer(struct task_struct *task)
{
#if defined(__TARGET_ARCH_x86)
	return BPF_CORE_READ(task, thread.fsbase);
#else
	return BPF_CORE_READ((struct task_struct___arm64 *)task, thread.uw.tp_value);
#endif
}

/* The thread number in the task's own pid namespace: what gettid() returned to it. */
inlined u32 inner_tid(struct task_struct *task)
{
	u32 level = task->thread_pid->level;
	u32 size = bpf_core_type_size(struct upid);
	u32 base = bpf_core_field_offset(struct pid, numbers);
	int nr = task->pid;

	/* size is that of our one-field struct if the kernel's is unknown: never. */
	if (level) /* verifiers add nothing to pointers whose type they know */
		bpf_probe_read_kernel(&nr, sizeof(nr),
				      (void *)BPF_CORE_READ(task, thread_pid) + base + (u64)level * size);
	return nr;
}

/*
 * repeat calls step(i, data) up to n times until it returns non-zero, and returns
 * how often. Verifiers before 6.7 (ab5cfac139ab) follow a step once, with the
 * values of its first round, and remove the branches that are not taken then. So
 * whatever a step changes must begin with a value that they do not know: read
 * from a map, or a constant plus a zero that lies in a map.
 */
#define repeat(n, step, data) bpf_loop(n, step, data, 0)

#endif
