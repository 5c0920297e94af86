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

/* The loader sets how many. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct unwind_row);
} unwind_rows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
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

/* One room per CPU and use, see stack.h. */
struct native_scratch {
	u64 regs[PT_REGS];
};

struct native_walk {
	struct code_map_list *list;
	struct native_scratch *s;
	u64 *out;
	u64 pc, sp, fp;
	u32 n;
	u32 hint; /* mapping of the last frame */
	u8 exact, fp_known, first;
	u8 stop;
};

inlined u64 strip_pac(u64 addr)
{
#if defined(__TARGET_ARCH_arm64)
	return addr & ((1ULL << 48) - 1);
#else
	return addr;
#endif
}

inlined int user_read(u64 addr, u64 *word)
{
	return bpf_probe_read_user(word, sizeof(*word), (void *)addr);
}

/* find_map returns the mapping that holds pc, NULL if none does. */
inlined struct code_map *find_map(struct native_walk *w, u64 pc)
{
	struct code_map_list *list = w->list;
	u32 low = 0, high = list->count;
	u32 hint = w->hint;

	if (hint < MAX_MAPS && list->maps[hint].start <= pc && pc < list->maps[hint].end)
		return &list->maps[hint];
	for (int i = 0; i < 10; i++) { /* 2^10 > MAX_MAPS */
		u32 middle = (low + high) / 2;

		if (low >= high || middle >= MAX_MAPS)
			break;
		if (list->maps[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low >= MAX_MAPS || low >= list->count || list->maps[low].start > pc)
		return 0;
	w->hint = low;
	return &list->maps[low];
}

/* find_rule returns the rule that holds at an address relative to its table. */
inlined struct unwind_rule *find_rule(struct code_map *m, u32 pc)
{
	u32 low = m->row, high = m->row + m->rows;
	struct unwind_row *row;

	/* The first row above pc; the one before it holds. */
	for (int i = 0; i < 24; i++) {
		u32 middle = low + (high - low) / 2;

		if (low >= high)
			break;
		row = bpf_map_lookup_elem(&unwind_rows, &middle);
		if (!row)
			return 0;
		if (row->pc <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == m->row)
		return 0;
	low--;
	row = bpf_map_lookup_elem(&unwind_rows, &low);
	return row ? bpf_map_lookup_elem(&unwind_rules, &row->rule) : 0;
}

/* register_of reads a register of the current frame; 0 if it is not known. */
inlined int register_of(struct native_walk *w, u32 reg, u64 *value)
{
	if (reg == REG_SP) {
		*value = w->sp;
		return 1;
	}
	if (reg == REG_FP) {
		*value = w->fp;
		return w->fp_known;
	}
	reg -= REG_OTHER;
	if (!w->first || reg >= DWARF_REGS)
		return 0;
#if defined(__TARGET_ARCH_x86)
	reg = pt_of_dwarf[reg];
#endif
	if (reg >= PT_REGS)
		return 0;
	*value = w->s->regs[reg];
	return 1;
}

/* place_value computes a register of the caller. */
inlined enum stop place_value(struct native_walk *w, u32 place, u32 reg, s32 off, u64 cfa, u64 *value)
{
	u64 at = cfa;

	if (place == PLACE_MEM || place == PLACE_IN_REG) {
		if (!register_of(w, reg, &at))
			return STOP_UNSUPPORTED;
	} else if (place != PLACE_CFA) {
		return STOP_UNSUPPORTED;
	}
	at += (s64)off;
	if (place == PLACE_IN_REG) {
		*value = at;
		return STOP_NONE;
	}
	return user_read(at, value) ? STOP_FAULT : STOP_NONE;
}

inlined enum stop cfa_of(struct native_walk *w, struct unwind_rule *r, u64 *cfa)
{
	u64 at;

	if (r->cfa == CFA_NONE)
		return STOP_NO_RULE;
	if (r->cfa == CFA_UNSUPPORTED || !register_of(w, r->cfa_reg, &at))
		return STOP_UNSUPPORTED;
	at += (s64)r->cfa_off;
	if (r->cfa == CFA_DEREF) {
		if (user_read(at, &at))
			return STOP_FAULT;
		at += (s64)r->cfa_add;
	} else if (r->cfa == CFA_PLT && (s64)(w->pc % 16) >= (s64)r->cfa_add) {
		at += 8;
	}
	*cfa = at;
	return STOP_NONE;
}

/* enter_caller makes the caller the current frame. */
inlined enum stop enter_caller(struct native_walk *w, u64 pc, u64 sp, u64 fp, u8 fp_known)
{
	if (!pc)
		return fp_known && !fp ? STOP_COMPLETE : STOP_BAD_FRAME;
	w->pc = pc;
	w->sp = sp;
	w->fp = fp;
	w->fp_known = fp_known;
	w->first = 0;
	return STOP_NONE;
}

inlined enum stop step_by_fp(struct native_walk *w)
{
	u64 pair[2];

	if (!w->fp_known)
		return STOP_NO_FRAME_PTR;
	if (!w->fp)
		return STOP_COMPLETE;
	if (w->fp % 8 || w->fp < w->sp)
		return STOP_NO_FRAME_PTR;
	if (bpf_probe_read_user(pair, sizeof(pair), (void *)w->fp))
		return STOP_FAULT;
	w->exact = 0;
	return enter_caller(w, strip_pac(pair[1]), w->fp + 16, pair[0], 1);
}

inlined enum stop step_by_rule(struct native_walk *w, struct unwind_rule *r)
{
	u64 cfa = 0, ra = 0, fp = w->fp;
	u8 fp_known = w->fp_known;
	enum stop stop;

	if (r->ra == PLACE_UNDEFINED)
		return STOP_COMPLETE;
	stop = cfa_of(w, r, &cfa);
	if (stop != STOP_NONE)
		return stop;
	/* Frames lie at rising addresses; a signal may have its own stack. */
	if (cfa % 8 || (!(r->flags & RULE_SIGNAL) && (cfa < w->sp || (cfa == w->sp && !w->first))))
		return STOP_BAD_FRAME;
	stop = place_value(w, r->ra, r->ra_reg, r->ra_off, cfa, &ra);
	if (stop != STOP_NONE)
		return stop;
	if (r->fp == PLACE_UNDEFINED || r->fp == PLACE_UNSUPPORTED) {
		fp_known = 0;
	} else if (r->fp != PLACE_SAME) {
		stop = place_value(w, r->fp, r->fp_reg, r->fp_off, cfa, &fp);
		if (stop != STOP_NONE)
			return stop;
		fp_known = 1;
	}
	w->exact = r->flags & RULE_SIGNAL;
	return enter_caller(w, strip_pac(ra), cfa, fp, fp_known);
}

/* native_step takes one frame. */
static long native_step(u32 i, struct native_walk *w)
{
	u64 pc = w->exact ? w->pc : w->pc - 1;
	struct unwind_rule *rule;
	struct code_map *m;
	u32 n = w->n;

	if (n >= MAX_NATIVE) {
		w->stop = STOP_DEPTH;
		return 1;
	}
	w->out[n] = w->pc | (w->exact ? NATIVE_EXACT : 0);
	w->n = n + 1;
	m = find_map(w, pc);
	if (!m) {
		w->stop = STOP_BAD_FRAME;
		return 1;
	}
	if (m->rows == NO_TABLE) {
		w->stop = STOP_NO_TABLE;
		return 1;
	}
	if (m->rows == 0) {
		w->stop = step_by_fp(w);
		return w->stop != STOP_NONE;
	}
	rule = pc - m->base < 0xffffffffULL ? find_rule(m, pc - m->base) : 0;
	if (!rule) {
		w->stop = STOP_NO_RULE;
		return 1;
	}
	w->stop = step_by_rule(w, rule);
	return w->stop != STOP_NONE;
}

/*
 * walk_native writes the current task's user frames to out, innermost first.
 * They begin at the registers with which it entered the kernel.
 */
inlined u32 walk_native(struct code_map_list *list, struct native_scratch *s, struct task_struct *task,
			u64 *out, u8 *stop)
{
	struct native_walk w = { .list = list, .s = s, .out = out, .exact = 1, .fp_known = 1, .first = 1 };
	void *regs = (void *)bpf_task_pt_regs(task);

	if (bpf_probe_read_kernel(s->regs, sizeof(s->regs), regs)) {
		*stop = STOP_FAULT;
		return 0;
	}
	w.pc = s->regs[PT_PC];
	w.sp = s->regs[PT_SP];
	w.fp = s->regs[PT_FP];
	repeat(MAX_NATIVE + 1, native_step, &w);
	*stop = w.stop == STOP_NONE ? STOP_DEPTH : w.stop;
	return w.n;
}

#endif
