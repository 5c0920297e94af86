// SPDX-License-Identifier: Apache-2.0

package execgraph

import "slices"

// prefix keeps those ops of a task within a unit that can have an effect,
// whatever the state it came in with; the last one settles its state.
type prefix struct {
	ops    []op
	wakes  []int // their places in ops, at most the first and the last
	dumped bool
	asleep bool // it left a CPU to sleep: one more op settles its state
	// pre and mid are the attributes from before and after that switch-out.
	pre, mid attrs
}

// newUnit returns a builder that starts from unknown state at time floor.
func newUnit(opt Options, floor int64) *Builder {
	b := NewBuilder(opt)
	b.unit, b.now = true, floor
	return b
}

// feed applies an op, or keeps it while the line is open.
func (l *line) feed(o *op) {
	if !l.open {
		l.apply(o)
		return
	}
	p := l.prefix
	switch o.kind {
	case opDump:
		if p.dumped || p.asleep {
			return
		}
		p.dumped = true
	case opWake:
		if len(p.wakes) == 2 && !p.asleep {
			p.ops = slices.Delete(p.ops, p.wakes[1], p.wakes[1]+1)
			p.wakes = p.wakes[:1]
		}
		p.wakes = append(p.wakes, len(p.ops))
	}
	p.ops = append(p.ops, *o)
	switch {
	case o.kind == opDump, o.kind == opWake && !p.asleep:
	case o.kind == opOut && o.to == Blocked && !p.asleep:
		p.asleep = true
	default:
		l.anchor()
	}
}

// anchor sets the state to which the kept ops lead from any other one.
func (l *line) anchor() {
	p := l.prefix
	*l = *newLine()
	for i := range p.ops {
		l.apply(&p.ops[i])
	}
	// What they did before is for the merge to say. The task that lives now
	// may turn out to have lived before.
	l.spans, l.gens, l.prefix = nil, []gen{{begin: never, end: forever}}, p
}

// merge appends a unit that follows.
func (b *Builder) merge(u *Builder) {
	for _, s := range u.loss.Spans {
		if s.Begin == never {
			s.Begin = b.lane(s.CPU).last
		}
		b.loss.Spans = append(b.loss.Spans, s)
	}
	for _, l := range u.lines {
		for i := range l.prefix.ops {
			if o := &l.prefix.ops[i]; o.open {
				o.proof = b.lane(o.cpu).proof(o.t)
			}
		}
	}
	gone := make(map[int32][]op)
	for cpu, n := range u.lanes {
		if d, e := b.lane(cpu).merge(n); d.tid > 0 {
			gone[d.tid] = append(gone[d.tid], op{kind: opGone, idx: e.idx, cpu: cpu, proof: d.last, why: d.why})
		}
	}
	for tid, l := range u.lines {
		b.line(tid).merge(l, gone[tid])
		delete(gone, tid)
	}
	for tid, ops := range gone {
		b.line(tid).replay(ops, forever)
	}
	b.facts.merge(&u.facts)
	b.now = max(b.now, u.now)
	b.loss.Events = addSaturated(b.loss.Events, u.loss.Events)
	b.loss.Late += u.loss.Late
	b.loss.Disordered += u.loss.Disordered
	b.loss.Malformed += u.loss.Malformed
}

// merge appends what a unit saw of the line. Gone holds the departures at the
// unit's border, which the unit did not know of.
func (l *line) merge(u *line, gone []op) {
	slices.SortFunc(gone, func(a, b op) int { return a.idx - b.idx })
	p := u.prefix
	l.set(p.pre)
	for i := range p.ops {
		o := &p.ops[i]
		gone = l.replay(gone, o.idx)
		l.apply(o)
		if o.kind == opOut && o.to == Blocked && p.asleep {
			l.set(p.mid)
		}
	}
	if u.open {
		l.replay(gone, forever)
		return
	}
	from := len(l.spans)
	l.spans = append(l.spans, u.spans...)
	t := l.task()
	t.add(u.gens[0].attrs)
	t.end = min(t.end, u.gens[0].end)
	if first := &u.gens[0]; first.born { // it took over its number, see become
		t.born, t.creator, t.renamed = true, first.creator, true
	}
	for _, g := range u.gens[1:] {
		g.from += from
		l.gens = append(l.gens, g)
	}
	l.state, l.why, l.cpu, l.stack, l.since = u.state, u.why, u.cpu, u.stack, u.since
	l.first, l.last = u.first, u.last
}

// replay applies the ops up to an index and returns the others.
func (l *line) replay(ops []op, idx int) []op {
	for len(ops) > 0 && ops[0].idx <= idx {
		l.apply(&ops[0])
		ops = ops[1:]
	}
	return ops
}
