/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * In which context this CPU executes. Interrupt entry and exit push and pop a
 * small stack per CPU and send nothing to user space. A switch proves the stack
 * empty, so a missed exit heals itself.
 */
#ifndef PATHPROF_CONTEXT_H
#define PATHPROF_CONTEXT_H

#include <asm-generic/errno-base.h>

#include "event.h"
#include "output.h"

#define CONTEXT_DEPTH 8

struct context_entry {
	enum context kind;
	s32 vector;
};

struct context_stack {
	u64 count_address; /* of this CPU's preempt count, see below */
	u64 fault; /* the last page fault of the task here, 0 for none */
	u32 depth; /* may exceed CONTEXT_DEPTH: then the top is not known */
	struct context_entry entries[CONTEXT_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct context_stack);
} contexts SEC(".maps");

/*
 * x86 keeps the count per CPU: in a variable of its own up to 6.1 and from 6.14
 * on, in pcpu_hot between; arm64 in the thread_info. Addresses of per-CPU variables
 * are relative to __per_cpu_offset[cpu]; 0: not known.
 */
volatile u64 preempt_count_at, pcpu_hot_at, cpu_offsets_at;

struct pcpu_hot {
	int preempt_count;
} __attribute__((preserve_access_index));

struct thread_info___arm64 {
	struct {
		u32 count;
	} preempt;
} __attribute__((preserve_access_index));

struct task_struct___info {
	struct thread_info___arm64 thread_info;
} __attribute__((preserve_access_index));

/*
 * include/linux/preempt.h. Kernels that also count how often interrupts were
 * disabled (local_interrupt_disable, seen in 7.3) do so below the hard interrupts.
 */
const volatile u8 counts_disabled;
#define SOFTIRQ_SERVING 0x00000100
#define HARDIRQ_OFFSET (counts_disabled ? 0x01000000 : 0x00010000)
#define HARDIRQ_MASK (counts_disabled ? 0x0f000000 : 0x000f0000)
#define NMI_MASK (counts_disabled ? 0x70000000 : 0x00f00000)

inlined struct context_stack *context_here(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&contexts, &zero);
}

/*
 * find_symbols is run once, before all others. It returns 1 if the kernel hides
 * its addresses.
 */
SEC("syscall")
int find_symbols(void *ctx)
{
	static const char count[] = "__preempt_count", hot[] = "pcpu_hot", offsets[] = "__per_cpu_offset";
	u64 at = 0;

	if (bpf_kallsyms_lookup_name(offsets, sizeof(offsets), 0, &at) == -EPERM)
		return 1;
	cpu_offsets_at = at;
	bpf_kallsyms_lookup_name(count, sizeof(count), 0, &at);
	preempt_count_at = at;
	bpf_kallsyms_lookup_name(hot, sizeof(hot), 0, &at);
	pcpu_hot_at = at;
	return 0;
}

/* count_address returns where this CPU keeps its nesting count, 0 if unknown. */
inlined u64 count_address(void)
{
#if defined(__TARGET_ARCH_x86)
	u64 offsets = cpu_offsets_at, base = 0;

	if (!offsets)
		return 0;
	bpf_probe_read_kernel(&base, sizeof(base), (void *)(offsets + 8 * (u64)bpf_get_smp_processor_id()));
	if (preempt_count_at)
		return base + preempt_count_at;
	if (pcpu_hot_at && bpf_core_field_exists(struct pcpu_hot, preempt_count))
		return base + pcpu_hot_at + bpf_core_field_offset(struct pcpu_hot, preempt_count);
#endif
	return 0;
}

/* preempt_count returns the kernel's own nesting count, 0 if it cannot be read. */
inlined u32 preempt_count(struct context_stack *c)
{
#if defined(__TARGET_ARCH_x86)
	u32 count = 0;

	if (!c)
		return 0;
	if (!c->count_address)
		c->count_address = count_address();
	if (c->count_address)
		bpf_probe_read_kernel(&count, sizeof(count), (void *)c->count_address);
	return count;
#else
	struct task_struct___info *task = (void *)bpf_get_current_task();

	return BPF_CORE_READ(task, thread_info.preempt.count);
#endif
}

/* has_count tells whether preempt_count could be read. */
inlined int has_count(struct context_stack *c)
{
#if defined(__TARGET_ARCH_x86)
	return c && c->count_address;
#else
	return 1;
#endif
}

inlined void context_push(enum context kind, s32 vector)
{
	struct context_stack *c = context_here();
	u32 i;

	if (!c)
		return;
	i = c->depth++;
	if (i < CONTEXT_DEPTH) {
		c->entries[i].kind = kind;
		c->entries[i].vector = vector;
	}
}

inlined void context_pop(void)
{
	struct context_stack *c = context_here();

	/* Depth 0: recording began inside the interrupt. */
	if (c && c->depth > 0)
		c->depth--;
}

/* context_clear begins anew for another task, and returns the page fault of the
 * one that leaves. */
inlined u64 context_clear(void)
{
	struct context_stack *c = context_here();
	u64 fault;

	if (!c)
		return 0;
	fault = c->fault;
	c->fault = 0;
	c->depth = 0;
	return fault;
}

/*
 * context_at fills in what runs here; skip entries at the top are not looked at
 * (a sample's own timer). The kernel's count decides where no program saw the
 * entry: interrupts without a handler of their own, e.g. between processors.
 */
inlined void context_at(struct event *e, u32 skip)
{
	struct context_stack *c = context_here();
	u32 count = preempt_count(c);
	u32 depth = c ? c->depth : 0, top;
	enum context kind = CONTEXT_TASK;

	e->vector = 0;
	if (count & NMI_MASK) {
		if (!skip) {
			e->context = CONTEXT_NMI;
			return;
		}
		/* The counter's own: no program saw it begin, and nmi_enter() counts
		 * it as a hard interrupt, too. */
		skip = 0;
		count -= HARDIRQ_OFFSET;
	}
	if (depth > CONTEXT_DEPTH) {
		e->context = CONTEXT_UNKNOWN;
		return;
	}
	depth = depth > skip ? depth - skip : 0;
	top = depth - 1; /* 0 - 1 is out of bounds, too */
	opaque(top);
	if (c && top < CONTEXT_DEPTH) {
		kind = c->entries[top].kind;
		e->vector = c->entries[top].vector;
	}
	if (!skip && (count & HARDIRQ_MASK) && kind != CONTEXT_HARDIRQ && kind != CONTEXT_HRTIMER && kind != CONTEXT_IPI) {
		kind = sees_interrupts ? CONTEXT_IPI : CONTEXT_UNKNOWN;
		e->vector = 0;
	} else if (kind == CONTEXT_TASK && (count & SOFTIRQ_SERVING)) {
		kind = CONTEXT_SOFTIRQ;
		e->vector = -1;
	}
	/* Neither programs nor the count would show an interrupt. */
	if (kind == CONTEXT_TASK && !sees_interrupts && !has_count(c))
		kind = CONTEXT_UNKNOWN;
	if (kind == CONTEXT_TASK && (u32)bpf_get_current_pid_tgid() == 0)
		kind = CONTEXT_IDLE;
	e->context = kind;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_enter, int irq, struct irqaction *action)
{
	context_push(CONTEXT_HARDIRQ, irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int irq_leave(void *ctx)
{
	context_pop();
	return 0;
}

/*
 * Interrupts between processors that run functions; those that only make a
 * processor schedule wake nobody. The kernel's count shows them, too, but not all
 * kernels have its address in kallsyms (CONFIG_KALLSYMS_ALL).
 */
#define IPI_PROGRAMS(name, tracepoint)                                           \
	SEC("tp_btf/" #tracepoint "_entry") int name##_enter(void *ctx)          \
	{                                                                        \
		context_push(CONTEXT_IPI, 0);                                    \
		return 0;                                                        \
	}                                                                        \
	SEC("tp_btf/" #tracepoint "_exit") int name##_leave(void *ctx)           \
	{                                                                        \
		context_pop();                                                   \
		return 0;                                                        \
	}

#if defined(__TARGET_ARCH_x86)
IPI_PROGRAMS(call, call_function)
IPI_PROGRAMS(single, call_function_single)
IPI_PROGRAMS(irq_work, irq_work)
#else
IPI_PROGRAMS(ipi, ipi)
#endif

SEC("tp_btf/page_fault_user")
int BPF_PROG(on_fault, unsigned long address)
{
	struct context_stack *c = context_here();

	if (c)
		c->fault = address;
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_enter, unsigned int vector)
{
	context_push(CONTEXT_SOFTIRQ, vector);
	return 0;
}

SEC("tp_btf/softirq_exit")
int softirq_leave(void *ctx)
{
	context_pop();
	return 0;
}

SEC("tp_btf/hrtimer_expire_entry")
int hrtimer_enter(void *ctx)
{
	context_push(CONTEXT_HRTIMER, 0);
	return 0;
}

SEC("tp_btf/hrtimer_expire_exit")
int hrtimer_leave(void *ctx)
{
	context_pop();
	return 0;
}

SEC("tp_btf/timer_expire_entry")
int timer_enter(void *ctx)
{
	context_push(CONTEXT_TIMER, 0);
	return 0;
}

SEC("tp_btf/timer_expire_exit")
int timer_leave(void *ctx)
{
	context_pop();
	return 0;
}

#endif
