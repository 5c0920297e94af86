// SPDX-License-Identifier: Apache-2.0

package execgraph

import "slices"

// trail is the way back from the end of a wait of the target: at each instant it
// is with one task.
type trail struct {
	w      *walker
	pieces []piece // latest first
	lo     int64   // where it ends
	at     int64   // how far it came
	task   int32
	span   int   // the one that ends at at; -1 if not looked up yet
	bound  int64 // see frame
	depth  int
	// met are the tasks that it was with at this very instant.
	met map[int32]struct{}
}

// piece is a stretch of a trail.
type piece struct {
	begin, end int64
	task       int32
	span       int // of the task; -1: it did not live
	depth      int
	blocked    bool // a wait that nobody is known to have ended
	cause      Cause
}

// trail appends the causal reading of a wait of a frame's task, up to end.
func (w *walker) trail(f *frame, k *waiting, end int64) {
	c := trail{w: w, lo: f.pos, at: k.until, task: f.task, span: -1, bound: f.bound, depth: f.depth}
	for c.at > c.lo {
		c.step()
	}
	for _, p := range slices.Backward(c.pieces) {
		if p.begin >= end {
			break
		}
		w.piece(&p, min(p.end, end))
	}
	f.pos = end
	if end == k.until {
		f.span = k.last + 1
	}
}

// piece appends a piece of a trail, up to end.
func (w *walker) piece(p *piece, end int64) {
	f := frame{task: p.task, pos: p.begin, stop: end, depth: p.depth}
	switch {
	case p.blocked:
		w.leaf(&f, end, Segment{State: Blocked, Cause: p.cause, Stack: w.g.lines[p.task].spans[p.span].stack})
	case p.span < 0:
		w.leaf(&f, end, Segment{Cause: p.cause})
	default:
		w.own(&f, p.span, end)
	}
}

// step goes back by one interval, or to another task.
func (c *trail) step() {
	g := c.w.g
	c.w.steps++
	t := &g.tasks[c.task]
	switch {
	case c.at > t.End:
		c.add(t.End, piece{span: -1, cause: unknown(whyExited)})
		return
	case c.at <= t.Begin:
		creator := g.lines[c.task].creator
		if creator < 0 || !c.enter(creator, t.Begin) {
			c.add(c.lo, piece{span: -1, cause: unknown(whyOutside)})
		}
		return
	}
	if c.span < 0 {
		c.span = g.find(c.task, c.at-1)
	}
	f := frame{task: c.task, bound: c.bound}
	if k, ok := g.waitAt(&f, c.span); ok {
		c.blocked(&k)
		return
	}
	i := c.span
	c.span-- // before the first one the task did not live
	c.add(g.lines[c.task].spans[i].begin, piece{span: i})
}

// add appends a piece from begin on, or from where the trail ends.
func (c *trail) add(begin int64, p piece) {
	p.begin, p.end, p.task, p.depth = max(begin, c.lo), c.at, c.task, c.depth
	c.pieces = append(c.pieces, p)
	c.at = p.begin
	clear(c.met)
}

// enter goes to another task, which acted at bound; not to one that it was with
// at this instant.
func (c *trail) enter(task int32, bound int64) bool {
	if c.met == nil {
		c.met = make(map[int32]struct{})
	}
	c.met[c.task] = struct{}{}
	if _, ok := c.met[task]; ok {
		return false
	}
	c.task, c.span, c.bound = task, -1, bound
	return true
}

// blocked goes from the end of a wait, or from within, to who ended it; there is
// no way back. A wait without such a one belongs to what the task did before.
func (c *trail) blocked(k *waiting) {
	g := c.w.g
	s := g.route(k, c.at-1)
	if s.task >= 0 {
		if k.until <= c.bound && c.enter(s.task, s.bound) {
			c.depth++
			return
		}
		c.w.contradictions++
		s.cause = unknown(whyNoSwitch)
	}
	begin := max(s.begin, g.lines[c.task].spans[k.first].begin)
	c.span = -1
	c.add(begin, piece{span: k.last, blocked: true, cause: s.cause})
}
