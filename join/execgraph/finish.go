// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"cmp"
	"fmt"
	"slices"

	"pathprof/join/sched"
)

// addTask adds one of a line's tasks to the graph, unless it did not live
// within its window.
func (g *Graph) addTask(l *line, i int, tid int32, lost []LossSpan) bool {
	gen := &l.gens[i]
	spans, open := l.spans[gen.from:], i == len(l.gens)-1 && l.state != dead
	if i+1 < len(l.gens) {
		spans = l.spans[gen.from:l.gens[i+1].from]
		if gen.begin == never && l.gens[i+1].born && gen.attrs == (attrs{}) && len(spans) <= 1 {
			return false // nothing happened under this number before that fork
		}
	}
	t := Task{
		ID:  sched.TaskID{Host: g.Host, TID: tid, Start: gen.begin},
		PID: gen.pid, Name: gen.name, Parent: gen.parent,
		Begin: max(gen.begin, g.Begin), End: min(gen.end, g.End),
		Born: gen.born && gen.begin >= g.Begin, Exited: gen.end <= g.End, Renamed: gen.renamed,
	}
	if gen.begin == never {
		t.ID.Start = gen.start // 0 if it was not dumped
	}
	for _, taken := g.index[t.ID]; taken; _, taken = g.index[t.ID] {
		t.ID.Start++ // a dumped start time that equals a fork's
	}
	if gen.zombie && gen.begin == never && open && len(spans) == 0 {
		t.End, t.Exited = t.Begin, true
	} else if t.End <= t.Begin {
		return false
	}
	k := track{creator: -1, spans: make([]span, 0, len(spans)+1)}
	for j := range spans {
		end := gen.end
		if j+1 < len(spans) {
			end = spans[j+1].begin
		} else if open {
			end = l.since
		}
		k.add(g, &t, spans[j], end, lost)
	}
	if open {
		k.add(g, &t, l.rest(), forever, lost)
	}
	g.index[t.ID] = int32(len(g.tasks))
	g.tasks, g.lines = append(g.tasks, t), append(g.lines, k)
	return true
}

// rest is the interval that was not closed.
func (l *line) rest() span {
	s := span{begin: l.since, state: l.state, cpu: l.cpu, stack: l.stack, why: l.why}
	if l.state == Blocked || l.state == Preempted {
		s.why = whyWaiting
	}
	return s
}

// add appends a span of a builder's line, cut to the task's life.
func (k *track) add(g *Graph, t *Task, s span, end int64, lost []LossSpan) {
	begin := max(s.begin, t.Begin)
	if min(end, t.End) <= begin {
		return
	}
	switch {
	case s.state == Blocked && end > g.End:
		s.flags, s.why = 0, whyWaiting // whatever ends it lies outside
	case s.why == whyNoWakeup && touches(lost, begin, end), s.why == whyNoSwitch && touches(lost, begin, end):
		s.why = whyLost
	case s.flags&flagRaced != 0 && touches(lost, begin, end):
		// A later wake-up may be among the lost events.
		s.state, s.cpu, s.why = Blocked, -1, whyLost
	}
	if s.flags&flagRaced != 0 {
		s.flags = 0
	}
	g.notice(&s, t.ID.TID)
	s.begin = begin
	k.spans = append(k.spans, s)
}

// notice adds to a span what the event at its begin says of it.
func (g *Graph) notice(s *span, tid int32) {
	if s.state == Blocked || s.state == Preempted {
		if on := g.facts.on(tid, s.begin); on != (On{}) {
			s.on = uint32(len(g.ons))
			g.ons = append(g.ons, on)
		}
	}
	if s.state == Preempted {
		if cgroup, ok := g.facts.limit(tid, s.begin); ok {
			i := slices.Index(g.cgroups, cgroup)
			if i < 0 {
				i = len(g.cgroups)
				g.cgroups = append(g.cgroups, cgroup)
			}
			s.flags, s.waker = s.flags|flagLimited, int32(i)
		}
	}
}

// link replaces the thread numbers of wakers and creators by their tasks.
func (g *Graph) link(creators []int32) {
	for i := range g.lines {
		k := &g.lines[i]
		for j := range k.spans {
			s := &k.spans[j]
			if s.flags&flagWoken == 0 || s.ctx != sched.ContextTask {
				continue
			}
			if s.waker = g.lookup(s.waker, g.spanEnd(int32(i), j)); s.waker < 0 {
				s.flags, s.why = 0, whyNoSwitch
			}
		}
		if t := &g.tasks[i]; t.Born && t.Begin > g.Begin {
			k.creator = g.lookup(creators[i], t.Begin-1) // which must be older
		}
	}
	// A thread has its creator's parent. Creators are older, so they come first.
	order := make([]int, len(g.tasks))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(g.tasks[a].Begin, g.tasks[b].Begin) })
	for _, i := range order {
		t := &g.tasks[i]
		if c := g.lines[i].creator; t.Parent == 0 && c >= 0 && g.tasks[c].PID == t.PID {
			t.Parent = g.tasks[c].Parent
		}
		t.Kernel = t.ID.TID == kthreadd || t.Parent == kthreadd
	}
}

// kthreadd is the process number of the parent of all kernel threads
// (init/main.c, rest_init: it is always the second process).
const kthreadd = 2

// closeLane cuts a lane to the window.
func (g *Graph) closeLane(n *lane) []turn {
	turns := make([]turn, 0, len(n.turns)+1)
	add := func(t turn, end int64) {
		t.begin = max(t.begin, g.Begin)
		if min(end, g.End) <= t.begin {
			return
		}
		if t.tid > 0 {
			if t.task = g.lookup(t.tid, t.begin); t.task < 0 {
				t.tid, t.why = nobody, whyNoSwitch
			}
		}
		turns = append(turns, t)
	}
	for i, t := range n.turns {
		end := n.since
		if i+1 < len(n.turns) {
			end = n.turns[i+1].begin
		}
		add(t, end)
	}
	last := turn{begin: n.since, tid: nobody, task: -1, why: n.why}
	if n.known {
		last.tid, last.why = n.tid, whyNone
	}
	add(last, forever)
	return turns
}

// warn puts the graph's loss into words.
func (g *Graph) warn() {
	add := func(n int64, what string) {
		if n > 0 {
			g.Warnings = append(g.Warnings, fmt.Sprintf("%d %s", n, what))
		}
	}
	if len(g.Loss.Spans) > 0 {
		g.Warnings = append(g.Warnings, fmt.Sprintf("%d events lost in %d places: states there may be unknown or wrong",
			g.Loss.Events, len(g.Loss.Spans)))
	}
	add(g.Loss.Late, "events a little out of order were taken as simultaneous with the ones before")
	add(g.Loss.Disordered, "events left out: too far out of order")
	add(g.Loss.Malformed, "events left out: malformed")
}
