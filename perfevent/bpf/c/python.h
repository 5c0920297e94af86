/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk over CPython's frames, 3.6 to 3.15, in the thread's own context: its
 * frames cannot change meanwhile, so a stack cannot tear. All memory read is the
 * target's: every pointer is a guess until it was read, every loop is bounded.
 *
 * The thread state is found by id, never by the "current" variable, which is
 * NULL while the GIL is released, exactly when waits happen.
 */
#ifndef PATHPROF_PYTHON_H
#define PATHPROF_PYTHON_H

#include "native.h"
#include "window.h"

enum process_flags {
	PROCESS_TARGET = 1, /* its threads have paths */
	PROCESS_PYTHON = 2, /* the offsets are valid */
	PROCESS_CHILDREN = 4, /* children are targets too */
};

/* One process: flags, its code mappings, and pyframes.Offsets field by field. */
struct py_process {
	u64 interpreters_head; /* address of _PyRuntime.interpreters.head */
	u64 gil; /* address of the one GIL (3.11 and older), else 0 */
	u64 collecting; /* address of the one flag (3.8 and older), else 0 */
	struct eval_range eval[EVAL_RANGES]; /* size 0: not known */
	enum process_flags flags;
	u32 maps_id; /* key into code_maps, 0: native frames by frame pointer */
	u32 style;	       /* pyframes.Style */
	u32 interp_next;
	u32 interp_threads_head;
	u32 thread_next;
	u32 thread_frame;
	u32 cframe_current; /* NO_FIELD: thread_frame is the frame itself */
	u32 thread_id;
	u32 thread_native_id; /* NO_FIELD before 3.11 */
	u32 frame_code;
	u32 frame_back;
	u32 frame_instr;
	u32 frame_owner; /* NO_FIELD before 3.12 */
	u32 frame_entry; /* NO_FIELD but in 3.11 */
	u32 owner_shim; /* from this owner on frames are the interpreter's own */
	u32 frame_size; /* bytes to read of a frame */
	u32 code_first_line;
	u32 code_line_table;
	u32 code_bytes;
	u32 code_size; /* bytes to read of a code object */
	u32 thread_size; /* bytes to read of a thread state, at most STATE_BYTES */
	u32 thread_interp;
	u32 interp_gil; /* a pointer; NO_FIELD before 3.12 and without a GIL */
	u32 gil_holder;
	u32 gil_locked; /* NO_FIELD: somebody has it where holder is not 0 (3.6) */
	u32 interp_collecting; /* NO_FIELD before 3.9 */
	u32 libc_tid; /* where the libc keeps a thread's number, see gil.h */
	u32 frame_tlbc; /* NO_FIELD but in free-threaded builds from 3.14 on */
	u32 code_tlbc;
	u32 type_name; /* of a type object; 0 before 3.13, which has no PyMutex */
	u32 several; /* interpreters, when a thread was last searched */
	u64 only_gil; /* of the only interpreter there was, see only_gil() */
	u64 only_until;
};

/* pyframes.Style */
#define STYLE_LASTI_BYTE 1
#define STYLE_LASTI_UNIT 2
#define STYLE_PREV_INSTR 3
#define STYLE_INSTR_PTR 4

#define NO_FIELD 0xffffffff

/* What a reference keeps beside the address (pycore_stackref.h, 3.14). */
#define REF_TAGS 3ULL

#define FRAME_BYTES WINDOW_ROOM
#define CODE_BYTES 256
#define STATE_BYTES 256
#define MAX_THREADS 1024

struct bucket {
	u64 time;
	u32 level, reserved;
};

/* What is remembered of a thread of a Python process. */
struct py_thread {
	u64 state;	/* address of its PyThreadState, 0 if none was found */
	u64 retry_time; /* none found: not searched again before */
	struct bucket buckets[2]; /* see may_take_stack */
	u32 tgid;
	u32 inner_tid; /* its number in its own pid namespace */
	u32 zero; /* what the verifier does not know, see repeat() */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, u32); /* tgid */
	__type(value, struct py_process);
} processes SEC(".maps");

/*
 * Whether anything was ever known of a process, by the low bits of its number:
 * most events are of processes of which nothing is, and asking the hash map for
 * each is dear. Written before processes is; never taken back.
 */
#define KNOWN_BITS 0xffff

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KNOWN_BITS + 1);
	__type(key, u32);
	__type(value, u8);
} ever_known SEC(".maps");

inlined u8 *ever_known_of(u32 tgid)
{
	u32 at = tgid & KNOWN_BITS;

	return bpf_map_lookup_elem(&ever_known, &at);
}

inlined struct py_process *process_of(u32 tgid)
{
	u8 *known = ever_known_of(tgid);

	return known && *known ? bpf_map_lookup_elem(&processes, &tgid) : 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, u32); /* tid */
	__type(value, struct py_thread);
} threads SEC(".maps");

/*
 * Code objects met in this walk: a function that calls itself, or is called from
 * many frames, is read once. Nothing is kept from walk to walk: a code object can
 * be freed and its memory used by another one.
 */
#define CODE_SLOTS 256

struct py_code {
	u64 code;
	u64 line_table;
	u32 first_line;
	u32 walk; /* number of the walk that read it */
};

/* One room per CPU and use, see stack.h. */
struct py_scratch {
	struct window frames;
	u8 state[STATE_BYTES]; /* head of the thread state */
	u8 code[CODE_BYTES];
	u32 walk;
	u32 zero; /* what the verifier does not know, see repeat() */
	/* From the walk of native frames, see unlinked_frame. */
	u32 evals;
	u64 eval_sp[2];
	u64 pc;
	struct py_code codes[CODE_SLOTS];
};

inlined u64 user_word(u64 addr)
{
	u64 word = 0;

	if (bpf_probe_read_user(&word, sizeof(word), (void *)addr))
		return 0;
	return word;
}

/*
 * gil_of returns the address of the GIL that belongs to a thread state, 0 if it
 * is not known or the build has none. It tells the GILs of a process apart.
 */
inlined u64 gil_of(struct py_process *p, u64 state)
{
	if (p->gil || p->interp_gil == NO_FIELD)
		return p->gil;
	return user_word(user_word(state + p->thread_interp) + p->interp_gil);
}

/*
 * gil_holder reads who has a GIL: the address of a thread state, or 0 for
 * nobody. It returns 1 if that is known. last_holder stays when the GIL is
 * released, so locked counts; it is -1 before the first thread (Python/ceval_gil.c).
 * For an instruction or two a thread that takes it has set locked, not last_holder.
 */
inlined int gil_holder(struct py_process *p, u64 gil, u64 *holder)
{
	s32 locked = 1;

	*holder = 0;
	if (!gil)
		return 0;
	/* Neighbours from 3.7 on (pycore_gil.h): one read for both. */
	if (p->gil_locked == p->gil_holder + 8) {
		u64 words[2];

		if (bpf_probe_read_user(words, sizeof(words), (void *)(gil + p->gil_holder)))
			return 0;
		if ((s32)words[1] == 1)
			*holder = words[0];
		return 1;
	}
	if (p->gil_locked != NO_FIELD &&
	    bpf_probe_read_user(&locked, sizeof(locked), (void *)(gil + p->gil_locked)))
		return 0;
	if (locked != 1)
		return 1;
	return !bpf_probe_read_user(holder, sizeof(*holder), (void *)(gil + p->gil_holder));
}

/* own_pointer is what tells the current thread's state up to 3.10. */
inlined u64 own_pointer(struct py_process *p)
{
	return p->thread_native_id == NO_FIELD ? thread_pointer(bpf_get_current_task_btf()) : 0;
}

inlined int is_state_of(struct py_process *p, u64 state, u32 tid, u64 pointer)
{
	if (p->thread_native_id != NO_FIELD)
		return user_word(state + p->thread_native_id) == tid;
	return user_word(state + p->thread_id) == pointer;
}

/*
 * python_status gives the GIL and garbage collection as they are for a state. One GIL
 * for several interpreters can have another state of the same thread as its holder.
 */
global_fn u32 python_status(struct py_process *p, u64 state, u32 tid)
{
	enum status status = STATUS_GIL_OTHER;
	s32 collecting = 0;
	u64 at, holder;

	if (!p)
		return STATUS_GIL_UNKNOWN;
	at = p->collecting;
	if (!gil_holder(p, gil_of(p, state), &holder))
		return STATUS_GIL_UNKNOWN;
	if (!holder)
		status = STATUS_GIL_FREE;
	if (holder != state && !(p->several && holder && is_state_of(p, holder, tid, own_pointer(p))))
		return status;
	if (!at && p->interp_collecting != NO_FIELD)
		at = user_word(state + p->thread_interp) + p->interp_collecting;
	if (at && !bpf_probe_read_user(&collecting, sizeof(collecting), (void *)at) && collecting == 1)
		return STATUS_GIL_OWN | STATUS_COLLECTING;
	return STATUS_GIL_OWN;
}

/* has_frames tells whether a thread state runs Python code, or called what does. */
inlined int has_frames(struct py_process *p, u64 state)
{
	u64 frame = user_word(state + p->thread_frame);

	if (p->cframe_current != NO_FIELD)
		frame = user_word(frame + p->cframe_current);
	/* 3.15 has a frame that is none below all others. */
	if (frame && p->frame_owner != NO_FIELD &&
	    (user_word(frame + p->frame_owner) & 0xff) >= p->owner_shim)
		frame = user_word(frame + p->frame_back);
	return frame != 0;
}

/*
 * A thread has a state in each interpreter that it made or runs, and runs one of
 * them. The others have no frames, but for the one from which it entered that
 * interpreter, which is older; and interpreters are listed newest first
 * (PyInterpreterState_New). Who enters an older one from a newer is told by the
 * GIL, if they have one each. One GIL tells nothing: up to 3.11 its holder stays
 * when a thread changes states (PyThreadState_Swap).
 */
enum likely {
	LIKELY_NOT, /* not the thread's */
	LIKELY_IDLE,
	LIKELY_FRAMES,
	LIKELY_HOLDER, /* has frames and a GIL of its own, which it holds */
};

/* The likeliest state so far, and its GIL. */
struct choice {
	u64 state, gil;
	enum likely likely;
	u32 reserved;
};

struct thread_search {
	struct py_process *p;
	u64 interp, state;
	u64 pointer;
	u32 tid;
	u32 several; /* interpreters */
	struct choice best;
};

/* consider makes a state of the thread the choice if it is likelier. */
global_fn u32 consider(struct py_process *p, struct choice *best, u64 state)
{
	enum likely likely = LIKELY_IDLE;
	u64 gil, holder;

	if (!p || !best)
		return 0;
	gil = gil_of(p, state);
	if (has_frames(p, state))
		likely = LIKELY_FRAMES;
	if (likely == LIKELY_FRAMES && gil != best->gil && gil_holder(p, gil, &holder) && holder == state)
		likely = LIKELY_HOLDER;
	if (likely <= best->likely)
		return 0;
	best->likely = likely;
	best->state = state;
	best->gil = gil;
	return 1;
}

static long search_step(u32 i, struct thread_search *t)
{
	struct py_process *p = t->p;

	if (!t->state) {
		if (!t->interp)
			return 1;
		t->state = user_word(t->interp + p->interp_threads_head);
		t->interp = user_word(t->interp + p->interp_next);
		if (t->interp)
			t->several = 1;
		return 0;
	}
	if (is_state_of(p, t->state, t->tid, t->pointer))
		consider(p, &t->best, t->state);
	t->state = user_word(t->state + p->thread_next);
	return 0;
}

/*
 * A thread without a state may enter Python any moment, and its first wait may
 * be its longest; but a search costs two reads a thread. So a long one is
 * repeated the later the longer it took: it never costs more than about a
 * thousandth of the time.
 */
#define FREE_ROUNDS 16
#define FREE_ROUNDS_FOUND 128 /* that state may not be the one it runs any more */
#define RETRY_PER_ROUND (50 * 1000ULL)

/*
 * find_thread_state searches the thread lists of all interpreters for the state
 * that a thread runs, and remembers it, or when to search again.
 */
global_fn u64 find_thread_state(struct py_process *p, struct py_thread *t, u64 pointer, u64 now)
{
	struct thread_search search = { .p = p, .pointer = pointer };
	u64 rounds;

	if (!p || !t)
		return 0;
	search.tid = t->inner_tid;
	search.state = search.best.state = search.best.gil = t->zero;
	search.best.likely = search.several = t->zero;
	search.interp = user_word(p->interpreters_head);
	rounds = repeat(MAX_THREADS, search_step, &search);
	t->state = search.best.state;
	p->several = search.several;
	t->retry_time = 0;
	if (rounds > (t->state ? FREE_ROUNDS_FOUND : FREE_ROUNDS))
		t->retry_time = now + rounds * RETRY_PER_ROUND;
	return t->state;
}

/*
 * running_state returns the state that a thread runs, which may be another than the
 * remembered one, its own. Whether there are several interpreters is asked for
 * threads without their GIL only: each is in that state soon enough.
 */
global_fn u64 running_state(struct py_process *p, struct py_thread *t, u64 pointer, u64 now)
{
	u64 interp;

	if (!p || !t)
		return 0;
	interp = user_word(t->state + p->thread_interp);
	if (now < t->retry_time ||
	    (user_word(p->interpreters_head) == interp && !user_word(interp + p->interp_next)))
		return t->state;
	return find_thread_state(p, t, pointer, now);
}

/* state_word reads a word of the thread state in s->state. */
inlined u64 state_word(struct py_scratch *s, u64 state, u32 off)
{
	if (off > STATE_BYTES - 8)
		return user_word(state + off);
	return *(u64 *)(s->state + off);
}

/* take_state copies a thread state's head to s, and tells whether it is the thread's. */
inlined int take_state(struct py_process *p, struct py_scratch *s, u64 state, u32 tid, u64 pointer)
{
	u32 size = p->thread_size;

	if (size > STATE_BYTES)
		size = STATE_BYTES;
	/* Not more than is needed: the next page may never have been touched. */
	if (bpf_probe_read_user(s->state, size, (void *)state))
		return 0;
	if (p->thread_native_id != NO_FIELD)
		return state_word(s, state, p->thread_native_id) == tid;
	return state_word(s, state, p->thread_id) == pointer;
}

/*
 * thread_state copies the current thread's PyThreadState to s and returns its
 * address, 0 if it has none.
 */
global_fn u64 thread_state(struct py_process *p, struct py_thread *t, struct py_scratch *s, u64 now)
{
	u64 pointer, state;
	u32 tid;

	if (!p || !t || !s)
		return 0;
	tid = t->inner_tid;
	pointer = own_pointer(p);
	/* The memory may have been freed and used again: ask each time. */
	if (t->state && take_state(p, s, t->state, tid, pointer))
		return t->state;
	if (!t->state && now < t->retry_time)
		return 0;
	state = find_thread_state(p, t, pointer, now);
	return state && take_state(p, s, state, tid, pointer) ? state : 0;
}

/*
 * status_of gives the status of a thread that has a state, which it puts right in s
 * and *state if the thread runs another interpreter meanwhile.
 */
inlined enum status status_of(struct py_process *p, struct py_thread *t, struct py_scratch *s, u64 *state, u64 now)
{
	enum status status = python_status(p, *state, t->inner_tid);
	u64 pointer, running;

	if ((status & ~STATUS_COLLECTING) == STATUS_GIL_OWN && !p->several)
		return status;
	pointer = own_pointer(p);
	running = running_state(p, t, pointer, now);
	if (running == *state || !running || !take_state(p, s, running, t->inner_tid, pointer))
		return status;
	*state = running;
	return python_status(p, running, t->inner_tid);
}

/* frame_word reads a word of the frame at w->bytes + at. */
inlined u64 frame_word(struct window *w, u32 at, u32 off)
{
	if (at > WINDOW_PAGE || off > FRAME_BYTES - 8)
		return 0;
	return *(u64 *)(w->bytes + at + off);
}

/* frame_byte reads a one-byte field, e.g. owner. */
inlined u32 frame_byte(struct window *w, u32 at, u32 off)
{
	if (at > WINDOW_PAGE || off > FRAME_BYTES - 1)
		return NO_FIELD;
	return w->bytes[at + off];
}

/*
 * bytecode_of returns where the copy of the bytecode begins that the thread runs,
 * 0 if that is not known. The first copy is the code object's own (co_tlbc in
 * Include/cpython/code.h, 3.14).
 */
global_fn u64 bytecode_of(struct py_process *p, u64 code, u32 copy)
{
	u64 copies;

	if (!p)
		return 0;
	if (!copy)
		return code + p->code_bytes;
	copies = user_word(code + p->code_tlbc);
	if (user_word(copies) <= copy)
		return 0;
	return user_word(copies + 8 + 8 * (u64)copy);
}

/* lasti_of gives the byte offset of the executing instruction. */
inlined s32 lasti_of(struct py_process *p, u64 instr, u64 begin)
{
	if (p->style == STYLE_LASTI_BYTE)
		return (s32)instr;
	if (p->style == STYLE_LASTI_UNIT) /* 3.10 counts code units; -1: not begun */
		return (s32)instr < 0 ? -1 : (s32)instr * 2;
	return (s32)(instr - begin);
}

/* read_code puts a code object's identity into its slot. */
global_fn u32 read_code(struct py_process *p, struct py_scratch *s, struct py_code *c, u64 code)
{
	u32 size, line, table;

	if (!p || !s || !c)
		return STOP_FAULT;
	size = p->code_size;
	if (size > CODE_BYTES)
		size = CODE_BYTES;
	if (bpf_probe_read_user(s->code, size, (void *)code))
		return STOP_FAULT;
	/* Bounded after the call: 6.1's verifier forgets bounds that a register
	 * got after it was put on the stack. */
	line = p->code_first_line;
	table = p->code_line_table;
	if (line > CODE_BYTES - 4 || table > CODE_BYTES - 8)
		return STOP_UNSUPPORTED;
	c->code = code;
	c->line_table = *(u64 *)(s->code + table);
	c->first_line = *(u32 *)(s->code + line);
	c->walk = s->walk;
	return STOP_NONE;
}

struct py_walk {
	struct py_process *p;
	struct py_scratch *s;
	struct py_frame *out;
	u64 frame;
	u64 caller; /* see unlinked_frame */
	u32 n;
	enum stop stop;
	u32 unproven;
};

/* append_frame writes the frame at s->frames.bytes + at to out. */
inlined u32 append_frame(struct py_process *p, struct py_scratch *s, u32 at, struct py_frame *out)
{
	u64 code = frame_word(&s->frames, at, p->frame_code) & ~REF_TAGS;
	u64 begin = code + p->code_bytes;
	struct py_code *c = &s->codes[((code >> 4) ^ (code >> 12)) % CODE_SLOTS];
	u32 entry, stop;

	if (c->code != code || c->walk != s->walk) {
		stop = read_code(p, s, c, code);
		if (stop != STOP_NONE)
			return stop;
	}
	entry = p->style <= STYLE_LASTI_UNIT;
	if (p->frame_entry != NO_FIELD)
		entry = frame_byte(&s->frames, at, p->frame_entry) == 1;
	if (p->frame_tlbc != NO_FIELD) {
		begin = bytecode_of(p, code, frame_word(&s->frames, at, p->frame_tlbc));
		if (!begin)
			return STOP_FAULT;
	}
	out->code = code;
	out->line_table = c->line_table;
	out->first_line = c->first_line;
	out->lasti = (s32)((u32)lasti_of(p, frame_word(&s->frames, at, p->frame_instr), begin) << 1) | entry;
	return STOP_NONE;
}

/*
 * The evaluation function of 3.11 and 3.12 makes its own _PyCFrame the thread
 * state's, on the C stack, some instructions before it says in it which frame
 * runs and which _PyCFrame was before. Meanwhile there is what an earlier call
 * left. But the function keeps its _PyCFrame always at the same distance from
 * its stack pointer: so that of the evaluation function around it is known, and
 * the frame that it runs.
 */
#define EVAL_PROLOGUE 512

inlined int in_prologue(struct py_process *p, struct py_scratch *s)
{
	return p->cframe_current != NO_FIELD && s->evals >= 2 && s->pc - p->eval[0].start < EVAL_PROLOGUE;
}

/*
 * first_frame reads the _PyCFrame at w->frame, and finds where the walk begins. A
 * frame that may be of an earlier call is proven by the first entry from C: its
 * caller must be the frame of the evaluation function around.
 */
inlined int first_frame(struct py_walk *w)
{
	struct py_process *p = w->p;
	struct py_scratch *s = w->s;
	u64 cframe[2]; /* current_frame, previous: neighbours in 3.11 and 3.12 */
	u64 at = w->frame, outer;

	if (bpf_probe_read_user(cframe, sizeof(cframe), (void *)at + p->cframe_current))
		return 1;
	w->frame = cframe[0];
	w->unproven = s->zero;
	if (!in_prologue(p, s) || at < s->eval_sp[0] || at >= s->eval_sp[1])
		return 0; /* the one around, if it is not its own yet */
	outer = s->eval_sp[1] + (at - s->eval_sp[0]);
	if (bpf_probe_read_user(&w->caller, sizeof(w->caller), (void *)outer + p->cframe_current))
		return 0;
	if (cframe[1] == outer)
		w->unproven = 1 + s->zero;
	else
		w->frame = w->caller;
	return 0;
}

/* unlinked_frame leaves out what is of an earlier call. */
inlined long unlinked_frame(struct py_walk *w)
{
	w->unproven = 0;
	w->n = 0;
	w->stop = STOP_NONE;
	w->frame = w->caller;
	return 0;
}

/* walk_step takes one frame; a shim (3.12 and newer) marks an entry. */
static long walk_step(u32 i, struct py_walk *w)
{
	struct py_process *p = w->p;
	struct py_scratch *s = w->s;
	u32 n = w->n, size = p->frame_size, at, entry;

	if (!w->frame) {
		if (w->unproven)
			return unlinked_frame(w);
		w->stop = STOP_COMPLETE;
		return 1;
	}
	if (size > FRAME_BYTES)
		size = FRAME_BYTES;
	at = window_find(&s->frames, w->frame, size);
	if (at > WINDOW_PAGE) {
		if (w->unproven)
			return unlinked_frame(w);
		w->stop = STOP_FAULT;
		return 1;
	}
	w->frame = frame_word(&s->frames, at, p->frame_back);
	if (p->frame_owner != NO_FIELD && frame_byte(&s->frames, at, p->frame_owner) >= p->owner_shim) {
		if (w->unproven && w->frame != w->caller)
			return unlinked_frame(w);
		w->unproven = 0;
		if (n > 0 && n <= MAX_PYTHON)
			w->out[n - 1].lasti |= FRAME_ENTRY;
		return 0;
	}
	if (n >= MAX_PYTHON)
		return 1;
	w->stop = append_frame(p, s, at, &w->out[n]);
	if (w->stop != STOP_NONE)
		return w->unproven ? unlinked_frame(w) : 1;
	w->n = n + 1;
	entry = w->out[n].lasti & FRAME_ENTRY;
	if (w->unproven && entry) {
		if (w->frame != w->caller)
			return unlinked_frame(w);
		w->unproven = 0;
	}
	return 0;
}

/*
 * walk_python writes at most MAX_PYTHON frames of the thread state, which
 * thread_state has copied to s, to e->words from at on, innermost first, and
 * counts them. e->head says why they end. Shims take rounds, too.
 */
global_fn u32 walk_python(struct py_process *p, struct py_scratch *s, u64 state, struct stack_event *e, u32 at)
{
	struct py_walk w = {};

	if (!p || !s || !e || at > MAX_KERNEL + MAX_NATIVE)
		return 0;
	s->walk++;
	window_open(&s->frames, WINDOW_DOWN);
	w.p = p;
	w.s = s;
	w.out = (struct py_frame *)(e->words + at);
	w.n = w.stop = s->zero;
	w.frame = state_word(s, state, p->thread_frame);
	if (p->cframe_current != NO_FIELD && first_frame(&w))
		w.stop = STOP_FAULT;
	else
		repeat(2 * MAX_PYTHON, walk_step, &w);
	if (w.stop == STOP_NONE)
		w.stop = w.frame ? STOP_DEPTH : STOP_COMPLETE;
	e->head.python_stop = w.stop;
	return w.n;
}

#endif
