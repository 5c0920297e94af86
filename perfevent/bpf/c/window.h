/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A walk's view of user memory. The fixed part of bpf_probe_read_user (entering
 * and leaving user access) costs more than copying a page, so a walk copies what
 * it wants together with what lies behind it in the direction of the walk: frames
 * lie close together. The first copy is small, for most stacks are; a copy never
 * leaves its page: it can be read whole if any of it can.
 */
#ifndef PATHPROF_WINDOW_H
#define PATHPROF_WINDOW_H

#include "event.h"

#define WINDOW_PAGE 4096
#define WINDOW_FIRST 1024
#define WINDOW_ROOM 128 /* the longest single read */
#define NO_WINDOW 0xffffffff

enum window_way { WINDOW_UP, WINDOW_DOWN };

struct window {
	u64 at; /* address of what was copied */
	u32 size; /* of it; 0: nothing */
	u32 way;
	u32 span; /* of the next copy */
	u32 reserved;
	u8 bytes[WINDOW_PAGE + WINDOW_ROOM]; /* the copy; a read that crosses pages */
};

inlined void window_open(struct window *w, enum window_way way)
{
	w->size = 0;
	w->way = way;
	w->span = WINDOW_FIRST;
}

/* window_load reads what does not lie in the present copy. */
global_fn u32 window_load(struct window *w, u64 addr, u32 size)
{
	u64 page = addr & ~(u64)(WINDOW_PAGE - 1), from = addr, to = addr + size;
	u32 length;

	if (!w || size > WINDOW_ROOM)
		return NO_WINDOW;
	if (to > page + WINDOW_PAGE) {
		if (bpf_probe_read_user(w->bytes + WINDOW_PAGE, size, (void *)addr))
			return NO_WINDOW;
		return WINDOW_PAGE;
	}
	if (w->way == WINDOW_UP)
		to = addr + w->span < page + WINDOW_PAGE ? addr + w->span : page + WINDOW_PAGE;
	else
		from = to - w->span > page ? to - w->span : page;
	w->span = WINDOW_PAGE;
	length = to - from;
	if (length > WINDOW_PAGE)
		return NO_WINDOW;
	w->size = 0;
	if (bpf_probe_read_user(w->bytes, length, (void *)from))
		return NO_WINDOW;
	w->at = from;
	w->size = length;
	return addr - from;
}

/*
 * window_find returns where in w->bytes the size bytes at addr lie, more than
 * WINDOW_PAGE if they cannot be read. The place is good until the next call.
 */
inlined u32 window_find(struct window *w, u64 addr, u32 size)
{
	u64 off = addr - w->at;

	if (off < w->size && off + size <= w->size)
		return off;
	return window_load(w, addr, size);
}

/* window_word reads one word; 0 if it can be read. */
inlined int window_word(struct window *w, u64 addr, u64 *word)
{
	u32 off = window_find(w, addr, sizeof(*word));

	if (off > WINDOW_PAGE) {
		*word = 0;
		return -1;
	}
	*word = *(u64 *)(w->bytes + off);
	return 0;
}

#endif
