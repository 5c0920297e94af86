/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The walk over native frames by unwind tables: unwind.Walk in Go does the same
 * step by step, and is right where the two differ.
 *
 * A process' executable mappings lie sorted in code_maps, found by an id that a
 * forked child shares with its parent. Each mapping names a run of rows; each
 * row a rule. User space loads them; nothing here writes to them.
 */
#ifndef PATHPROF_NATIVE_H
#define PATHPROF_NATIVE_H

#include "event.h"
#include "window.h"

/* unwind.Row */
struct unwind_row {
	u32 pc; /* minus the table's base */
	u32 rule;
};

/* unwind.Rule */
struct unwind_rule {
	s32 cfa_off, cfa_add, fp_off, ra_off;
	u8 cfa, cfa_reg, fp, fp_reg, ra, ra_reg, flags, reserved;
};

/* unwind.CFAKind */
enum cfa_kind { CFA_NONE, CFA_UNSUPPORTED, CFA_REGISTER, CFA_DEREF, CFA_PLT };
/* unwind.Place */
enum place { PLACE_SAME, PLACE_UNDEFINED, PLACE_CFA, PLACE_MEM, PLACE_IN_REG, PLACE_UNSUPPORTED };
/* unwind.Reg */
#define REG_SP 0
#define REG_FP 1
#define REG_OTHER 2
/* unwind.FlagSignal */
#define RULE_SIGNAL 1

#define MAX_MAPS 512
#define NO_TABLE 0xffffffff

struct code_map {
	u64 start, end;
	u64 base; /* pc - base is a row's pc */
	u32 row, rows; /* rows 0: no call frame information; NO_TABLE: not loaded */
};

struct code_map_list {
	u32 count;
	struct code_map maps[MAX_MAPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* written by user space only */
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct code_map_list);
} code_maps SEC(".maps");

/* The loader sets how many, and writes to their memory. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_row);
} unwind_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_rule);
} unwind_rules SEC(".maps");

/* The kernel's struct pt_regs as words; DWARF numbers differ on x86. */
#if defined(__TARGET_ARCH_x86)
#define PT_REGS 21
#define PT_FP 4
#define PT_PC 16
#define PT_SP 19
#define DWARF_REGS 17
static const volatile u8 pt_of_dwarf[DWARF_REGS] = {
	10, 12, 11, 5, 13, 14, 4, 19, 9, 8, 7, 6, 3, 2, 1, 0, 16,
};
#else
#define PT_REGS 34
#define PT_FP 29
#define PT_SP 31
#define PT_PC 32
#define DWARF_REGS 31
#endif

/*
 * Rules found by earlier walks. An id of mappings is never used again, and what
 * it stands for never changes, so a rule stays right for its address.
 */
#define RULE_SLOTS 512

struct known_rule {
	u64 pc;
	u32 maps_id;
	u32 reserved;
	struct unwind_rule rule;
};

/* Code of CPython's evaluation function, with its .cold part. */
#define EVAL_RANGES 2

struct eval_range {
	u64 start, size;
};

/* One room per CPU and use, see stack.h. */
struct native_scratch {
	u64 regs[PT_REGS];
	u64 zero; /* what the verifier does not know, see repeat() */
	/* Where CPython's evaluation function lies, and what was met of it. */
	struct eval_range eval[EVAL_RANGES];
	u64 eval_sp[2]; /* stack pointers of its two innermost frames */
	u32 evals; /* how many of those are known */
	u32 reserved;
	struct window stack;
	struct known_rule known[RULE_SLOTS];
};

/* One frame: what a step changes. */
struct native_frame {
	u64 pc, sp, fp;
	u8 exact, fp_known, first;
	u8 reserved[5];
};

struct native_walk {
	u32 maps_id;
	struct native_scratch *s;
	u64 *out;
	struct native_frame f;
	u32 n;
	u32 stop;
};

inlined u64 strip_pac(u64 addr)
{
#if defined(__TARGET_ARCH_arm64)
	return addr & ((1ULL << 48) - 1);
#else
	return addr;
#endif
}

/* find_map returns the place of the mapping that holds pc, NO_MAP if none does. */
#define NO_MAP 0xffffffff

global_fn u32 find_map(struct code_map_list *list, u64 pc)
{
	u32 low = 0, high;

	if (!list)
		return NO_MAP;
	high = list->count;
	for (int i = 0; i < 10; i++) { /* 2^10 > MAX_MAPS */
		u32 middle = (low + high) / 2;

		if (low >= high)
			break;
		opaque(middle);
		if (middle >= MAX_MAPS)
			break;
		if (list->maps[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	opaque(low);
	if (low >= MAX_MAPS || low >= list->count || list->maps[low].start > pc)
		return NO_MAP;
	return low;
}

/*
 * find_row returns the rule of the last row at or below an address relative to
 * its table, NO_RULE if there is none.
 */
#define NO_RULE 0xffffffff

global_fn u32 find_row(u32 first, u32 rows, u32 pc)
{
	u32 low = first, high = first + rows;
	struct unwind_row *row;

	for (int i = 0; i < 22; i++) { /* 2^21 rows at most */
		u32 middle = low + (high - low) / 2;

		if (low >= high)
			break;
		row = bpf_map_lookup_elem(&unwind_rows, &middle);
		if (!row)
			return NO_RULE;
		if (row->pc <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == first)
		return NO_RULE;
	low--;
	row = bpf_map_lookup_elem(&unwind_rows, &low);
	return row ? row->rule : NO_RULE;
}

/* register_of reads a register of the current frame; 0 if it is not known. */
inlined int register_of(struct native_frame *f, struct native_scratch *s, u32 reg, u64 *value)
{
	if (reg == REG_SP) {
		*value = f->sp;
		return 1;
	}
	if (reg == REG_FP) {
		*value = f->fp;
		return f->fp_known;
	}
	reg -= REG_OTHER;
	if (!f->first || reg >= DWARF_REGS)
		return 0;
#if defined(__TARGET_ARCH_x86)
	reg = pt_of_dwarf[reg];
#endif
	if (reg >= PT_REGS)
		return 0;
	*value = s->regs[reg];
	return 1;
}

/* place_value computes a register of the caller. */
inlined enum stop place_value(struct native_frame *f, struct native_scratch *s, u32 place, u32 reg, s32 off, u64 cfa, u64 *value)
{
	u64 at = cfa;

	if (place == PLACE_MEM || place == PLACE_IN_REG) {
		if (!register_of(f, s, reg, &at))
			return STOP_UNSUPPORTED;
	} else if (place != PLACE_CFA) {
		return STOP_UNSUPPORTED;
	}
	at += (s64)off;
	if (place == PLACE_IN_REG) {
		*value = at;
		return STOP_NONE;
	}
	return window_word(&s->stack, at, value) ? STOP_FAULT : STOP_NONE;
}

inlined enum stop cfa_of(struct native_frame *f, struct native_scratch *s, struct unwind_rule *r, u64 *cfa)
{
	u64 at;

	if (r->cfa == CFA_NONE)
		return STOP_NO_RULE;
	if (r->cfa == CFA_UNSUPPORTED || !register_of(f, s, r->cfa_reg, &at))
		return STOP_UNSUPPORTED;
	at += (s64)r->cfa_off;
	if (r->cfa == CFA_DEREF) {
		if (window_word(&s->stack, at, &at))
			return STOP_FAULT;
		at += (s64)r->cfa_add;
	} else if (r->cfa == CFA_PLT && (s64)(f->pc % 16) >= (s64)r->cfa_add) {
		at += 8;
	}
	*cfa = at;
	return STOP_NONE;
}

/* enter_caller makes the caller the current frame. */
inlined enum stop enter_caller(struct native_frame *f, u64 pc, u64 sp, u64 fp, u8 fp_known)
{
	if (!pc)
		return fp_known && !fp ? STOP_COMPLETE : STOP_BAD_FRAME;
	f->pc = pc;
	f->sp = sp;
	f->fp = fp;
	f->fp_known = fp_known;
	f->first = 0;
	return STOP_NONE;
}

inlined enum stop step_by_fp(struct native_frame *f, struct native_scratch *s)
{
	u64 fp, ra;

	if (!f->fp_known)
		return STOP_NO_FRAME_PTR;
	if (!f->fp)
		return STOP_COMPLETE;
	if (f->fp % 8 || f->fp < f->sp)
		return STOP_NO_FRAME_PTR;
	if (window_word(&s->stack, f->fp, &fp) || window_word(&s->stack, f->fp + 8, &ra))
		return STOP_FAULT;
	f->exact = 0;
	return enter_caller(f, strip_pac(ra), f->fp + 16, fp, 1);
}

global_fn u32 step_by_rule(struct native_frame *f, struct unwind_rule *r, struct native_scratch *s)
{
	u64 cfa = 0, ra = 0, fp;
	u8 fp_known;
	enum stop stop;

	if (!f || !r || !s)
		return STOP_FAULT;
	fp = f->fp;
	fp_known = f->fp_known;
	if (r->ra == PLACE_UNDEFINED)
		return STOP_COMPLETE;
	stop = cfa_of(f, s, r, &cfa);
	if (stop != STOP_NONE)
		return stop;
	/* Frames lie at rising addresses; a signal may have its own stack. */
	if (cfa % 8 || (!(r->flags & RULE_SIGNAL) && (cfa < f->sp || (cfa == f->sp && !f->first))))
		return STOP_BAD_FRAME;
	stop = place_value(f, s, r->ra, r->ra_reg, r->ra_off, cfa, &ra);
	if (stop != STOP_NONE)
		return stop;
	if (r->fp == PLACE_UNDEFINED || r->fp == PLACE_UNSUPPORTED) {
		fp_known = 0;
	} else if (r->fp != PLACE_SAME) {
		stop = place_value(f, s, r->fp, r->fp_reg, r->fp_off, cfa, &fp);
		if (stop != STOP_NONE)
			return stop;
		fp_known = 1;
	}
	f->exact = r->flags & RULE_SIGNAL;
	return enter_caller(f, strip_pac(ra), cfa, fp, fp_known);
}

/*
 * find_rule puts an address' rule into known. STOP_NO_FRAME_PTR says that the
 * file has no tables.
 */
global_fn u32 find_rule(struct known_rule *known, u64 pc, u32 maps_id)
{
	struct code_map_list *list = bpf_map_lookup_elem(&code_maps, &maps_id);
	struct unwind_rule *rule;
	struct code_map *m;
	u32 at;

	if (!list || !known)
		return STOP_NO_TABLE;
	at = find_map(list, pc);
	if (at >= MAX_MAPS)
		return STOP_BAD_FRAME;
	m = &list->maps[at];
	if (m->rows == NO_TABLE)
		return STOP_NO_TABLE;
	if (m->rows == 0)
		return STOP_NO_FRAME_PTR;
	at = pc - m->base < 0xffffffffULL ? find_row(m->row, m->rows, pc - m->base) : NO_RULE;
	rule = bpf_map_lookup_elem(&unwind_rules, &at);
	if (!rule)
		return STOP_NO_RULE;
	known->pc = pc;
	known->maps_id = maps_id;
	known->rule = *rule;
	return STOP_NONE;
}

inlined void note_eval(struct native_scratch *s, struct native_frame *f)
{
	if (f->pc - s->eval[0].start < s->eval[0].size || f->pc - s->eval[1].start < s->eval[1].size)
		s->eval_sp[s->evals++ & 1] = f->sp;
}

/* native_step takes one frame. */
static long native_step(u32 i, struct native_walk *w)
{
	u64 pc = w->f.exact ? w->f.pc : w->f.pc - 1;
	struct known_rule *known = &w->s->known[(pc ^ (pc >> 10)) % RULE_SLOTS];
	u32 n = w->n;

	if (n >= MAX_NATIVE) {
		w->stop = STOP_DEPTH;
		return 1;
	}
	w->out[n] = w->f.pc | (w->f.exact ? NATIVE_EXACT : 0);
	w->n = n + 1;
	if (w->s->evals < 2)
		note_eval(w->s, &w->f);
	if (known->pc != pc || known->maps_id != w->maps_id) {
		w->stop = find_rule(known, pc, w->maps_id);
		if (w->stop == STOP_NO_FRAME_PTR) {
			w->stop = step_by_fp(&w->f, w->s);
			return w->stop != STOP_NONE;
		}
		if (w->stop != STOP_NONE)
			return 1;
	}
	w->stop = step_by_rule(&w->f, &known->rule, w->s);
	return w->stop != STOP_NONE;
}

/*
 * walk_native writes the current task's user frames to e->words from at on,
 * innermost first, and counts them. They begin at the registers with which the
 * task entered the kernel. e->head says why they end.
 */
global_fn u32 walk_native(u32 maps_id, struct native_scratch *s, struct stack_event *e, u32 at)
{
	struct native_walk w = {};
	void *regs;

	if (!s || !e || at > MAX_KERNEL)
		return 0;
	regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	if (bpf_probe_read_kernel(s->regs, sizeof(s->regs), regs)) {
		e->head.native_stop = STOP_FAULT;
		return 0;
	}
	window_open(&s->stack, WINDOW_UP);
	s->evals = 0;
	w.maps_id = maps_id;
	w.s = s;
	w.out = e->words + at;
	w.f.exact = w.f.fp_known = w.f.first = 1 + s->zero;
	w.n = w.stop = s->zero;
	w.f.pc = s->regs[PT_PC];
	w.f.sp = s->regs[PT_SP];
	w.f.fp = s->regs[PT_FP];
	repeat(MAX_NATIVE + 1, native_step, &w);
	e->head.native_stop = w.stop == STOP_NONE ? STOP_DEPTH : w.stop;
	return w.n;
}

#endif
