/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who holds the GIL, as a thread number, and which futex waits are for it. */
#ifndef PATHPROF_GIL_H
#define PATHPROF_GIL_H

#include "python.h"

/* sizeof(struct _gil_runtime_state) with glibc, 3.8 to 3.13: two conditions and
 * two mutexes end it. musl's are not larger. */
#define GIL_SIZE 208

/* Thread numbers by their number in the process' own pid namespace. */
struct inner_key {
	u32 tgid, tid;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct inner_key);
	__type(value, u32);
} inner_tids SEC(".maps");

/* remember_inner keeps the number of a thread in a pid namespace. */
inlined void remember_inner(struct py_thread *t, u32 tid)
{
	struct inner_key key = { .tgid = t->tgid, .tid = t->inner_tid };

	if (t->inner_tid != tid)
		bpf_map_update_elem(&inner_tids, &key, &tid, BPF_ANY);
}

inlined void forget_inner(u32 tid)
{
	struct py_thread *t = bpf_map_lookup_elem(&threads, &tid);
	struct inner_key key = {};

	if (!t || t->inner_tid == tid)
		return;
	key.tgid = t->tgid;
	key.tid = t->inner_tid;
	bpf_map_delete_elem(&inner_tids, &key);
}

/*
 * outer_tid turns what gettid() returned to a thread of t's process into its
 * number here, 0 if that is not known. tid is t's own number.
 */
inlined u32 outer_tid(struct py_thread *t, u32 tid, u32 inner)
{
	struct inner_key key = { .tgid = t->tgid, .tid = inner };
	u32 *known;

	if (t->inner_tid == tid)
		return inner; /* one namespace, the numbers are the same */
	known = bpf_map_lookup_elem(&inner_tids, &key);
	return known ? *known : 0;
}

/*
 * libc_offset finds where the libc keeps a thread's number behind pthread_self():
 * glibc on x86-64, on arm64, musl; the current thread shows which.
 */
inlined u32 libc_offset(struct py_process *p, struct py_thread *t)
{
	u64 self = user_word(t->state + p->thread_id);

	if ((u32)user_word(self + 720) == t->inner_tid)
		p->libc_tid = 720;
	else if ((u32)user_word(self + 208) == t->inner_tid)
		p->libc_tid = 208;
	else if ((u32)user_word(self + 48) == t->inner_tid)
		p->libc_tid = 48;
	return p->libc_tid;
}

/* inner_of returns the number by which a thread state's thread knows itself. */
inlined u32 inner_of(struct py_process *p, struct py_thread *t, u64 state)
{
	u32 at;

	if (p->thread_native_id != NO_FIELD)
		return user_word(state + p->thread_native_id);
	at = p->libc_tid ? p->libc_tid : libc_offset(p, t);
	return at ? user_word(user_word(state + p->thread_id) + at) : 0;
}

/* own_state looks whether the thread's state is still its own, or searches it. */
inlined u64 own_state(struct py_process *p, struct py_thread *t, u64 now)
{
	u64 pointer = own_pointer(p);

	if (t->state && is_state_of(p, t->state, t->inner_tid, pointer))
		return t->state;
	if (!t->state && now < t->retry_time)
		return 0;
	return find_thread_state(p, t, pointer, now);
}

/*
 * What threads of 3.13 and newer wait on lies on their own stacks: a semaphore
 * inside struct wait_entry, behind the address of the PyMutex (Python/parking_lot.c).
 * A PyMutex says only that it is locked and waited for. That of an RLock
 * (3.14) is the begin of a _PyRecursiveMutex (pycore_lock.h), which has its owner's
 * identity next; the object's type lies before it in all builds.
 */
#define PYMUTEX_AWAITED 3 /* _Py_LOCKED | _Py_HAS_PARKED */
inlined int is_rlock(struct py_process *p, u64 mutex)
{
	u64 type = user_word(mutex - 8);
	u64 name = user_word(type + p->type_name);

	return user_word(name) == 0x2e6461657268745fULL /* _thread. */ &&
	       (user_word(name + 8) & 0xffffffffffffULL) == 0x6b636f4c52ULL; /* RLock */
}

/*
 * set_parked makes a PyMutex of what a thread waits on, if it is one: what lies
 * before its semaphore can make it look like a condition.
 */
global_fn u32 set_parked(struct event *e, struct py_process *p, struct py_thread *t)
{
	u64 mutex, owner;
	u8 bits = 0;
	u32 at;

	if (!e || !p || !t)
		return 0;
	mutex = user_word(e->value - 8);
	if (!mutex || bpf_probe_read_user(&bits, sizeof(bits), (void *)mutex) || bits != PYMUTEX_AWAITED)
		return 0;
	e->value = mutex;
	e->flags = (e->flags & ~FLAG_LOCK) | LOCK_PYMUTEX << FLAG_LOCK_SHIFT;
	if (!is_rlock(p, mutex))
		return 0;
	owner = user_word(mutex + 8);
	at = p->libc_tid ? p->libc_tid : libc_offset(p, t);
	if (owner && at)
		e->holder = outer_tid(t, e->tid, user_word(owner + at));
	return 1;
}

/*
 * only_gil returns the GIL of a process with one interpreter, 0 if there are
 * several, or none is known. To look is dear, so what was found holds for a
 * millisecond: a second interpreter is listed for longer before it runs anything
 * (Py_NewInterpreter imports modules).
 */
#define ONLY_TIME (1000 * 1000ULL)

inlined u64 only_gil(struct py_process *p, u64 state, u64 now)
{
	u64 interp;

	if (now < p->only_until)
		return p->only_gil;
	p->only_until = 0;
	interp = user_word(state + p->thread_interp);
	if (!interp || user_word(p->interpreters_head) != interp || user_word(interp + p->interp_next))
		return 0;
	p->only_gil = gil_of(p, state);
	p->only_until = now + ONLY_TIME;
	return p->only_gil;
}

/* Who has a thread's GIL. */
struct gil_reading {
	u64 gil, holder, state; /* state: the thread's own */
	int known;		/* who holds it, 0 for nobody */
};

/* search_gil asks for all that look_at_gil may know from before. */
global_fn u32 search_gil(struct gil_reading *r, struct py_process *p, struct py_thread *t, u64 now)
{
	if (!r || !p || !t)
		return 0;
	r->state = own_state(p, t, now);
	r->gil = r->state ? gil_of(p, r->state) : 0;
	r->known = gil_holder(p, r->gil, &r->holder);
	if (!r->gil || (r->known && r->holder == r->state))
		return r->known;
	r->state = running_state(p, t, own_pointer(p), now);
	r->gil = r->state ? gil_of(p, r->state) : 0;
	r->known = gil_holder(p, r->gil, &r->holder);
	return r->known;
}

/*
 * look_at_gil reads who has the GIL of the interpreter that the thread runs. Where
 * there is one interpreter, whether the remembered state is still the thread's
 * matters only if that state has the GIL.
 */
inlined void look_at_gil(struct gil_reading *r, struct py_process *p, struct py_thread *t, u64 now)
{
	u64 state = t->state;

	r->state = state;
	r->gil = state ? only_gil(p, state, now) : 0;
	r->known = gil_holder(p, r->gil, &r->holder);
	if (!r->known || (r->holder == state && !is_state_of(p, state, t->inner_tid, own_pointer(p))))
		search_gil(r, p, t, now);
}

/*
 * set_gil says who holds the GIL of the current thread's interpreter, and
 * whether that is what it waits for; another lock's holder stays. A thread
 * without a state has no GIL to wait for.
 */
global_fn u32 set_gil(struct event *e, struct py_process *p, struct py_thread *t)
{
	struct gil_reading r = {};

	if (!e || !p || !t)
		return 0;
	if (p->type_name && (e->flags & FLAG_FUTEX) && !e->holder)
		set_parked(e, p, t);
	look_at_gil(&r, p, t, e->time);
	if (!r.gil)
		return 0;
	if ((e->flags & FLAG_FUTEX) && e->value - r.gil < GIL_SIZE)
		e->flags = (e->flags & ~FLAG_LOCK) | LOCK_GIL << FLAG_LOCK_SHIFT;
	else if (e->flags & FLAG_LOCK)
		return 0; /* the holder is that lock's */
	e->holder = 0;
	if (!r.known)
		return 0;
	if (!r.holder)
		e->holder = NOBODY;
	else if (r.holder == r.state)
		e->holder = e->tid;
	else
		e->holder = outer_tid(t, e->tid, inner_of(p, t, r.holder));
	return 1;
}

#endif
