/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What goes to user space, through one ring per CPU (output.h).
 *
 *   every event      struct event                                 (72 bytes)
 *   FORK EXEC COMM   struct event, char comm[16]
 *   FILE             struct file_event
 *   SAMPLE, and SWITCH and WAKING (the waker's) with FLAG_STACK:
 *                    struct event, struct stack_head, then
 *                    u64 kernel[], u64 native[], struct py_frame python[];
 *                    NATIVE_EXACT marks a native address that is no return
 *                    address
 *
 * Go reads these with encoding/binary over the same struct, generated from this
 * file's BTF by bpf2go; perfevent/bpf/layout_test.go compares the numbers.
 */
#ifndef PATHPROF_EVENT_H
#define PATHPROF_EVENT_H

#include "kernel.h"

enum event_kind {
	EVENT_NONE,
	EVENT_SWITCH,
	EVENT_WAKING,
	EVENT_FORK,
	EVENT_EXEC,
	EVENT_EXIT,
	EVENT_COMM,
	EVENT_SAMPLE,
	EVENT_SEND,
	EVENT_RECEIVE,
	EVENT_QUEUE,
	EVENT_WORK,
	EVENT_WORK_END,
	EVENT_IO,
	EVENT_THROTTLE,
	EVENT_FILE,
	EVENT_KINDS,
};

/* Same numbers as sched.Context. */
enum context {
	CONTEXT_UNKNOWN,
	CONTEXT_TASK,
	CONTEXT_HARDIRQ,
	CONTEXT_SOFTIRQ,
	CONTEXT_HRTIMER,
	CONTEXT_TIMER,
	CONTEXT_IPI,
	CONTEXT_NMI,
	CONTEXT_IDLE,
};

/* Same numbers as recording.StopReason. */
enum stop {
	STOP_NONE,
	STOP_COMPLETE,
	STOP_DEPTH,
	STOP_FAULT,
	STOP_BAD_FRAME,
	STOP_NO_INTERP,
	STOP_NO_THREAD,
	STOP_NO_FRAME_PTR,
	STOP_THINNED,
	STOP_UNSUPPORTED,
	STOP_NO_RULE,
	STOP_NO_TABLE,
};

enum event_flags {
	FLAG_PREEMPT = 1, /* switch: preempted inside the kernel */
	FLAG_STACK = 2,   /* a stack follows */
	FLAG_THINNED = 4, /* a stack was due but left out */
	FLAG_KERNEL = 8,  /* sample: the CPU was in kernel mode */
	FLAG_REALTIME = 16,  /* switch: extra is a time of CLOCK_REALTIME */
	FLAG_MONOTONIC = 32, /* switch: extra is a time of CLOCK_MONOTONIC */
	FLAG_SHARED = 64,    /* switch: the holder may be of another process */
	FLAG_FUTEX = 128,    /* switch: value is a futex */
	FLAG_LOCK = 0x700,   /* switch: enum lock << FLAG_LOCK_SHIFT */
};

#define FLAG_LOCK_SHIFT 8

/* Same numbers as sched.LockKind. */
enum lock { LOCK_UNKNOWN, LOCK_GIL, LOCK_MUTEX, LOCK_SEMAPHORE, LOCK_PYMUTEX, LOCK_CONDITION };

#define NOBODY -1 /* event.holder: the lock is free */

/* Same numbers as recording.GIL; the bit says that garbage is being collected. */
enum status {
	STATUS_GIL_UNKNOWN,
	STATUS_GIL_OWN, /* the thread has it */
	STATUS_GIL_OTHER, /* another has it */
	STATUS_GIL_FREE, /* nobody has it */
	STATUS_COLLECTING = 0x80,
};

struct event {
	u64 time; /* CLOCK_MONOTONIC, ns */
	u64 value; /* sample: the period; exec: the old thread number; switch: the object; packet: connection;
		    work: address of the item; io: issue to completion, ns; throttle: control group */
	u64 extra; /* sample: the counter itself; switch: the timeout, ns, since when flags say; packet: seq << 32 | bytes;
		    work: address of the function */
	enum event_kind kind;
	enum context context;
	enum event_flags flags;
	s32 vector; /* switch: number of the system call + 1; io: device */
	s32 pid, tid;
	s32 other_pid, other_tid;
	u32 state; /* switch: as sched_switch prints it */
	enum status status; /* of the thread whose stack follows */
	s32 holder; /* switch: thread that holds the lock or the GIL, 0 not known */
	u32 reserved;
};

/* What a descriptor is: value is its number, extra its inode, state its mode, vector its device. */
struct file_event {
	struct event event;
	u16 family, protocol, local_port, peer_port; /* 0: no socket with addresses */
	u8 local[16], peer[16]; /* of a Unix socket: peer is the inode of the other end */
	u8 socket_state;
	u8 reserved[7];
};

struct named_event {
	struct event event;
	char comm[16];
};

struct stack_head {
	u16 kernel, native, python; /* how many of each follow */
	u8 kernel_stop, native_stop, python_stop;
	u8 reserved[7];
};

#define NATIVE_EXACT (1ULL << 63)

#define FRAME_ENTRY 1

struct py_frame {
	u64 code;
	u64 line_table;
	u32 first_line;
	s32 lasti; /* (byte offset << 1) | FRAME_ENTRY */
};

#define MAX_KERNEL 64
#define MAX_NATIVE 128
#define MAX_PYTHON 512

struct stack_event {
	struct event event;
	struct stack_head head;
	/* Room for the parts, which lie without gaps; only what is used is sent. */
	u64 words[MAX_KERNEL + MAX_NATIVE];
	struct py_frame python[MAX_PYTHON];
};

#endif
