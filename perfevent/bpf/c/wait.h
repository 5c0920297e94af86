/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a task waits on when it leaves the CPU: its system call with the object
 * and the timeout, the kind and the holder of a lock, and who holds the GIL.
 * Everything is read in the task's own context, so nothing changes meanwhile
 * but by threads on other CPUs.
 */
#ifndef PATHPROF_WAIT_H
#define PATHPROF_WAIT_H

#include "file.h"
#include "python.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* pt_regs of x86: the arguments stay as the call got them. */
struct pt_regs___x86 {
	unsigned long di, si, dx, r10, r8, r9;
	unsigned long orig_ax; /* -1: not in a system call */
};

struct thread_info___x86 {
	u32 status;
};

struct task_struct___x86 {
	struct thread_info___x86 thread_info;
};

/* pt_regs of arm64: x0 is kept apart, since the result will replace it. */
struct pt_regs___call {
	u64 regs[31];
	u64 pstate;
	u64 orig_x0;
	s32 syscallno; /* -1: not in a system call */
};

#pragma clang attribute pop

#define PF_EXITING 0x00000004 /* include/linux/sched.h */
#define TS_COMPAT 0x0002     /* arch/x86/include/asm/thread_info.h */
#define PSR_MODE32 0x10	     /* arch/arm64/include/uapi/asm/ptrace.h */
#define PF_IO_WORKER 0x00000010 /* include/linux/sched.h */
#define PF_USER_WORKER 0x00004000

#define CALLS 512
#define CALL_FAULT 0x8000 /* instead of a call's number + 1: sched.CallFault */
#define ARGUMENTS 8 /* 6, and room for an index of 3 bits */

/* How a system call tells what it waits on; filled by the loader (waits.go). */
struct wait_rule {
	u8 object;  /* number of the argument */
	u8 width;   /* enum wait_width */
	u8 time;    /* enum wait_time */
	u8 timeout; /* number of the argument */
	u8 file;    /* the object is a file descriptor */
};

/*
 * MS: an int, negative for none. SPEC, VAL: a struct timespec or timeval, relative.
 * REALTIME: a struct timespec, absolute. FUTEX, CLOCK: as other arguments say.
 */
enum wait_time { TIME_NONE, TIME_MS, TIME_SPEC, TIME_VAL, TIME_REALTIME, TIME_FUTEX, TIME_CLOCK };

/* POLL: the descriptor of a list that has but one, else the list's address. */
enum wait_width { WIDTH_LONG, WIDTH_INT, WIDTH_POLL };

const volatile struct wait_rule wait_rules[CALLS] = {};

/* include/uapi/linux/futex.h */
#define FUTEX_COMMAND 0x7f
#define FUTEX_PRIVATE 128
#define FUTEX_CLOCK_REALTIME 256
#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_LOCK_PI2 13
#define FUTEX_TID 0x3fffffff

/* arguments reads the system call of the current task: its number + 1, 0 if none. */
inlined u32 arguments(struct task_struct *task, u64 *args)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs___x86 *regs = (void *)bpf_task_pt_regs(task);
	u32 number = regs->orig_ax;

	if (((struct task_struct___x86 *)task)->thread_info.status & TS_COMPAT)
		return 0; /* other numbers */
	args[0] = regs->di;
	args[1] = regs->si;
	args[2] = regs->dx;
	args[3] = regs->r10;
	args[4] = regs->r8;
	args[5] = regs->r9;
#else
	struct pt_regs___call *regs = (void *)bpf_task_pt_regs(task);
	u32 number = regs->syscallno;

	if (regs->pstate & PSR_MODE32)
		return 0;
	args[0] = regs->orig_x0;
	args[1] = regs->regs[1];
	args[2] = regs->regs[2];
	args[3] = regs->regs[3];
	args[4] = regs->regs[4];
	args[5] = regs->regs[5];
#endif
	return number < CALLS ? number + 1 : 0;
}

/* user_time reads a struct timespec or timeval in ns, 0 if it cannot be read. */
inlined s64 user_time(u64 addr, s64 unit)
{
	s64 pair[2];

	if (!addr || bpf_probe_read_user(pair, sizeof(pair), (void *)addr))
		return 0;
	return pair[0] * 1000000000LL + pair[1] * unit;
}

/* set_timeout fills in how long the wait may last; flags say since when. */
inlined void set_timeout(struct event *e, u64 *args, u32 time, u32 at)
{
	u64 value = args[at & 7];
	u32 op = args[1];

	switch (time) {
	case TIME_MS:
		e->extra = (s32)value > 0 ? (s32)value * 1000000ULL : 0;
		return;
	case TIME_VAL:
		e->extra = user_time(value, 1000);
		return;
	case TIME_REALTIME:
		e->flags |= FLAG_REALTIME;
		break;
	case TIME_FUTEX:
		if ((op & FUTEX_COMMAND) == FUTEX_WAIT)
			break;
		if ((op & FUTEX_CLOCK_REALTIME) || (op & FUTEX_COMMAND) == FUTEX_LOCK_PI)
			e->flags |= FLAG_REALTIME;
		else
			e->flags |= FLAG_MONOTONIC;
		break;
	case TIME_CLOCK:
		if (op & 1) /* TIMER_ABSTIME */
			e->flags |= (u32)args[0] ? FLAG_MONOTONIC : FLAG_REALTIME;
		break;
	}
	e->extra = user_time(value, 1);
}

/* A glibc mutex, as far as it matters (sysdeps/nptl/bits/struct_mutex.h, 64 bits). */
struct libc_mutex {
	s32 lock;
	u32 count;
	s32 owner;
	u32 users;
	s32 kind;
};

/* The words around a futex of glibc's semaphores and condition variables. */
struct futex_words {
	u32 before[6];
	u32 word, next, after;
};

/*
 * Kinds of futexes seen lately, at places that are hashes of process and address:
 * reading the words around one costs more than all else of a switch. A kind holds
 * for a millisecond: another lock in its place so soon would have the wrong one.
 */
#define LOCKS_SEEN (1 << 12)
#define LOCK_TIME (1000 * 1000ULL)
#define LOCK_BITS 7

struct lock_seen {
	u64 tag; /* the hash, with enum lock in LOCK_BITS */
	u64 until;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCKS_SEEN);
	__type(key, u32);
	__type(value, struct lock_seen);
} locks_seen SEC(".maps");

/* kind_of_lock tells a semaphore from a condition by what the libc keeps beside it. */
inlined u32 kind_of_lock(u64 addr)
{
	struct futex_words f = {};

	if (bpf_probe_read_user(&f, sizeof(f), (void *)(addr - sizeof(f.before))))
		bpf_probe_read_user(&f.word, 3 * sizeof(u32), (void *)addr);
	/* pthread_cond_t: wrefs lies before g_signals[0], the futex is one of these. */
	if ((addr & 4 ? f.before[4] : f.before[5]) >> 3)
		return LOCK_CONDITION;
	/* sem_t: the value, then how many wait, then 0 or 128. */
	if (!(addr & 4) && f.next > 0 && f.next < 1 << 20 && !(f.after & ~FUTEX_PRIVATE))
		return LOCK_SEMAPHORE;
	return LOCK_UNKNOWN;
}

/* lock_at is kind_of_lock, or what that was lately. */
inlined u32 lock_at(struct event *e, u64 addr)
{
	u64 tag = mix((u32)e->pid, addr);
	u32 at = (tag >> 8) & (LOCKS_SEEN - 1), lock;
	struct lock_seen *seen = bpf_map_lookup_elem(&locks_seen, &at);

	if (!seen)
		return LOCK_UNKNOWN;
	if (!((seen->tag ^ tag) & ~(u64)LOCK_BITS) && e->time < seen->until)
		return seen->tag & LOCK_BITS;
	lock = kind_of_lock(addr);
	seen->until = 0;
	seen->tag = (tag & ~(u64)LOCK_BITS) | lock;
	seen->until = e->time + LOCK_TIME;
	return lock;
}

/*
 * set_lock tells the kind of a futex by what the libc keeps beside it; what fits
 * no structure stays unknown. Mutexes wait with value 2 (lll_lock), semaphores
 * and conditions with a bit set of all ones.
 */
inlined void set_lock(struct event *e, u64 addr, u32 op, u32 value)
{
	u32 command = op & FUTEX_COMMAND, lock = LOCK_UNKNOWN;
	struct libc_mutex m = {};

	if (command == FUTEX_LOCK_PI || command == FUTEX_LOCK_PI2) {
		if (bpf_probe_read_user(&m, sizeof(m), (void *)addr) == 0) {
			lock = LOCK_MUTEX;
			e->holder = m.lock & FUTEX_TID;
		}
	} else if (command == FUTEX_WAIT && value == 2) {
		if (bpf_probe_read_user(&m, sizeof(m), (void *)addr) == 0 && m.lock == 2 && m.owner > 0 &&
		    m.users > 0 && m.users < 1 << 20 && m.kind >= 0 && m.kind < 0x200) {
			lock = LOCK_MUTEX;
			e->holder = m.owner;
		}
	} else if (command == FUTEX_WAIT_BITSET || command == FUTEX_WAIT) {
		lock = lock_at(e, addr);
	}
	if (!(op & FUTEX_PRIVATE))
		e->flags |= FLAG_SHARED;
	e->flags |= FLAG_FUTEX | lock << FLAG_LOCK_SHIFT;
}

/*
 * set_fault says that the current task, which sleeps in no system call, does so in
 * a page fault, and in which page if that is known. The entry code sets the
 * number of the call to -1 there (arch/x86/entry/entry_64.S, arm64's
 * kernel/entry-common.c).
 */
inlined void set_fault(struct event *e, struct task_struct *task, u64 address)
{
#if defined(__TARGET_ARCH_x86)
	struct pt_regs___x86 *regs = (void *)bpf_task_pt_regs(task);
	int in_call = regs->orig_ax != -1UL;
#else
	struct pt_regs___call *regs = (void *)bpf_task_pt_regs(task);
	int in_call = regs->syscallno != -1;
#endif

	if (in_call || task->flags & PF_EXITING || e->state & 0x0c) /* stopped, traced */
		return;
	e->vector = CALL_FAULT;
	e->value = address & ~0xfffULL;
}

/* set_call fills in what the current task waits on, or was doing; fault is the
 * address of its last page fault, 0 if not known. */
global_fn u32 set_call(struct event *e, u32 blocked, u64 fault)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 args[ARGUMENTS] = {};
	const volatile struct wait_rule *rule;
	u32 call, number;

	if (!e)
		return 0;
	call = arguments(task, args);
	if (!call) {
		if (blocked)
			set_fault(e, task, fault);
		return 0;
	}
	number = (call - 1) & (CALLS - 1);
	e->vector = call;
	rule = &wait_rules[number];
	e->value = args[rule->object & 7];
	if (rule->width == WIDTH_INT)
		e->value = (u32)e->value;
	if (rule->width == WIDTH_POLL && (u32)args[1] == 1) {
		u32 fd = 0;

		if (bpf_probe_read_user(&fd, sizeof(fd), (void *)args[0]) == 0)
			e->value = fd;
	}
	if (!blocked)
		return call;
	/* A list of several descriptors is an address. */
	if (rule->file && e->value < 1U << 31)
		emit_file(e->value, e->time);
	if (rule->time != TIME_NONE)
		set_timeout(e, args, rule->time, rule->timeout);
	if (rule->time == TIME_FUTEX)
		set_lock(e, args[0], args[1], args[2]);
	return call;
}

#endif
