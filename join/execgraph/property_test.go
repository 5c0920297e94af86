// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pathprof/join/sched"
)

func TestProperties(t *testing.T) {
	const traces = 3200
	paths, segments := 0, 0
	for seed := range uint64(traces) {
		r := rand.New(rand.NewPCG(seed, 5))
		s := simulate(seed, 20+r.IntN(250), simOptions{
			cpuBound: seed%8 == 1, loss: seed%8 == 3 || seed%8 == 5, ties: seed%2 == 0 || seed%8 == 5,
		})
		g := buildSequential(t, s.events, 0, s.now)
		checkTruth(t, s, g)
		checkSlabs(t, r, g, s.events)
		for range 2 {
			target := g.Tasks()[r.IntN(len(g.Tasks()))].ID
			begin := r.Int64N(s.now)
			p, err := g.ActivePath(target, begin, begin+1+r.Int64N(s.now-begin))
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckPath(p); err != nil {
				t.Error(err)
			}
			checkNaive(t, s, g, p)
			causal := checkCausal(t, s, g, p)
			if s.opt.cpuBound {
				checkLongest(t, s, p)
				checkLongest(t, s, causal)
			}
			paths, segments = paths+1, segments+len(p.Segments)
		}
		if t.Failed() {
			t.Fatalf("seed %d, options %+v", seed, s.opt)
		}
	}
	t.Logf("%d paths, %d segments", paths, segments)
}

// checkTruth compares the graph with what the simulator knows, at all instants at
// which something changed and between. What the graph says must be true. What it
// calls unknown must have been so: before the task's first switch, or after a loss.
func checkTruth(t *testing.T, s *sim, g *Graph) {
	t.Helper()
	for _, k := range s.tasks {
		if _, ok := g.Task(k.id()); !ok {
			if !s.opt.loss && k.truth[len(k.truth)-1].t > 0 {
				t.Errorf("task %v is missing", k.id())
			}
			continue
		}
		for v := range g.Intervals(k.id()) {
			at := v.Begin + s.Int64N(v.End-v.Begin)
			truth := k.at(at)
			if s.opt.loss && truth == dead {
				truth = s.successor(k.tid, at) // its end and the next fork may be lost
			}
			switch {
			case s.opt.loss && v.State != Running: // may have been touched by a loss
			case v.State == Unknown:
				if at >= k.seen {
					t.Errorf("task %v at %d: unknown, want %v", k.id(), at, truth)
				}
			case v.State == Blocked && v.End == g.End && truth == Preempted:
				// Woken before its switch-out, but what comes after would tell.
			case v.State != truth:
				t.Errorf("task %v at %d: %v, want %v", k.id(), at, v.State, truth)
			}
			if !s.opt.loss && v.State == Blocked && v.End < g.End {
				checkWait(t, k, v)
			}
		}
	}
	for c, truth := range s.lanes {
		for v := range g.Turns(int32(c)) {
			at := v.Begin + s.Int64N(v.End-v.Begin)
			i := len(truth) - 1
			for truth[i].t > at {
				i--
			}
			if want := truth[i].task.ref().TID; v.Why == "" && v.Task.TID != want {
				t.Errorf("cpu %d at %d: task %d, want %d", c, at, v.Task.TID, want)
			} else if v.Why != "" && !s.opt.loss && len(truth) > 1 {
				t.Errorf("cpu %d at %d: %s, want %d", c, at, v.Why, want)
			}
		}
	}
}

func checkWait(t *testing.T, k *simTask, v Interval) {
	t.Helper()
	w, ok := k.waits[v.End]
	want := causeOf(w.ctx, w.vector)
	if w.waker != nil {
		want.Task = w.waker.id()
	}
	if !ok || v.Cause != want {
		t.Errorf("task %v waits in [%d, %d): %+v, want %+v", k.id(), v.Begin, v.End, v.Cause, want)
	}
}

// checkSlabs builds the graph from random slabs, some of them empty.
func checkSlabs(t *testing.T, r *rand.Rand, g *Graph, events []sched.Event) {
	t.Helper()
	cuts := make([]int, r.IntN(20))
	for i := range cuts {
		cuts[i] = r.IntN(len(events) + 1)
	}
	slices.Sort(cuts)
	got, err := Build(Options{}, slabs(events, cuts), g.Begin, g.End, 1+r.IntN(4))
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(graphText(g), graphText(got)); d != "" {
		t.Errorf("from slabs cut at %v: %s", cuts, d)
	}
}

// checkNaive compares a path with another way to compute it.
func checkNaive(t *testing.T, s *sim, g *Graph, p Path) {
	t.Helper()
	n := newNaive(s, g)
	want := Path{Segments: n.target(p, n.back(p.Target, p.Begin, p.End, 0)), Waits: p.Waits}
	if d := diff(pathText(want), pathText(p)); d != "" {
		t.Errorf("path of %v over [%d, %d): %s", p.Target, p.Begin, p.End, d)
	}
}

// naive computes paths as algorithm 5 of the thesis does: backward along the
// waker's line, by recursion, copying all the way.
type naive struct {
	g       *Graph
	parents map[sched.TaskID]sched.TaskID
}

func newNaive(s *sim, g *Graph) naive {
	n := naive{g: g, parents: make(map[sched.TaskID]sched.TaskID)}
	for _, k := range s.tasks {
		if k.parent != nil && !s.opt.loss {
			n.parents[k.id()] = k.parent.id()
		}
	}
	for i, k := range g.tasks {
		if c := g.lines[i].creator; c >= 0 && s.opt.loss { // under which name depends on what was lost
			n.parents[k.ID] = g.tasks[c].ID
		}
	}
	return n
}

// target puts segments into the waits of a path, and together where they are one.
func (n naive) target(p Path, segments []Segment) []Segment {
	wait := -1
	for i := range segments {
		s := &segments[i]
		for wait+1 < len(p.Waits) && p.Waits[wait+1].Begin <= s.Begin {
			wait++
		}
		s.Wait = -1
		if s.Depth > 0 || s.State == Blocked {
			s.Wait = wait
		}
	}
	var out []Segment
	for _, s := range segments {
		if k := len(out) - 1; k >= 0 {
			last := out[k]
			last.Begin, last.End = s.Begin, s.End
			if last == s {
				out[k].End = s.End
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

// back returns the path along a task's line from end back to begin.
func (n naive) back(id sched.TaskID, begin, end int64, depth int) []Segment {
	if begin >= end {
		return nil
	}
	task, _ := n.g.Task(id)
	leaf := Segment{Task: id, CPU: -1, Depth: depth}
	if end > task.End {
		leaf.Begin, leaf.End, leaf.Cause = max(begin, task.End), end, unknown(whyExited)
		return append(n.back(id, begin, leaf.Begin, depth), leaf)
	}
	if end <= task.Begin {
		if parent, ok := n.parents[id]; ok && depth > 0 {
			return n.back(parent, begin, end, depth)
		}
		leaf.Begin, leaf.End, leaf.Cause = begin, end, unknown(whyOutside)
		return []Segment{leaf}
	}
	v, _ := n.g.StateAt(id, end-1)
	from := max(begin, v.Begin)
	before := n.back(id, begin, from, depth)
	if v.State == Blocked && v.Cause.Kind == CauseTask {
		return append(before, n.back(v.Cause.Task, from, end, depth+1)...)
	}
	leaf.Begin, leaf.End = from, end
	return append(before, n.own(leaf, v)...)
}

// own is what a task did itself in a part of an interval.
func (n naive) own(leaf Segment, v Interval) []Segment {
	leaf.State, leaf.Stack = v.State, v.Stack
	switch {
	case v.State == Preempted && v.CPU >= 0:
		return n.split(leaf, v.CPU)
	case v.State == Preempted:
		leaf.Cause = unknown(whyNoSwitch)
		if v.End == n.g.End {
			leaf.Cause = unknown(whyWaiting)
		}
	case v.State == Running:
		leaf.CPU = v.CPU
	default:
		leaf.Cause = v.Cause
	}
	return []Segment{leaf}
}

// split cuts a preemption at the turns of a CPU.
func (n naive) split(s Segment, cpu int32) (out []Segment) {
	for turn := range n.g.Turns(cpu) {
		piece := s
		piece.Begin, piece.End = max(s.Begin, turn.Begin), min(s.End, turn.End)
		if piece.Begin >= piece.End {
			continue
		}
		piece.Cause = Cause{Kind: CauseTask, Task: turn.Task}
		switch {
		case turn.Why != "":
			piece.Cause = Cause{Kind: CauseUnknown, Why: turn.Why}
		case turn.Task.TID == 0:
			piece.Cause = unknown(whyIdle)
		case turn.Task == s.Task:
			piece.Cause = unknown(whyNoSwitch)
		}
		out = append(out, piece)
	}
	return out
}

// checkCausal compares the causal reading of a path with another way to compute it,
// and tests what makes it one: it goes from one task to another only where that one
// ended a wait or began.
func checkCausal(t *testing.T, s *sim, g *Graph, whole Path) Path {
	t.Helper()
	p, err := g.CausalPath(whole.Target, whole.Begin, whole.End)
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckPath(p); err != nil {
		t.Error(err)
	}
	if !slices.Equal(p.Waits, whole.Waits) || p.Migrations != whole.Migrations {
		t.Errorf("waits %+v, want %+v", p.Waits, whole.Waits)
	}
	n := newNaive(s, g)
	var segments []Segment
	for _, seg := range n.back(p.Target, p.Begin, p.End, 0) {
		if seg.Depth == 0 && seg.State != Blocked {
			segments = append(segments, seg)
		}
	}
	for _, w := range p.Waits {
		segments = append(segments, n.causal(p.Target, w.Begin, w.End)...)
	}
	slices.SortFunc(segments, func(a, b Segment) int { return int(a.Begin - b.Begin) })
	want := Path{Segments: n.target(p, segments), Waits: p.Waits}
	if d := diff(pathText(want), pathText(p)); d != "" {
		t.Errorf("causal path of %v over [%d, %d): %s", p.Target, p.Begin, p.End, d)
	}
	for i := 1; i < len(p.Segments) && !s.opt.loss; i++ {
		if a, b := &p.Segments[i-1], &p.Segments[i]; a.Wait >= 0 && a.Wait == b.Wait && a.Task != b.Task && !n.linked(a, b) {
			t.Errorf("nothing leads from %+v to %+v", *a, *b)
		}
	}
	return p
}

// causal goes back from the end of a wait, always to the task that ended the wait it
// comes to.
func (n naive) causal(id sched.TaskID, begin, end int64) (out []Segment) {
	v, _ := n.g.StateAt(id, begin)
	depth := 0
	for at := v.End; at > begin; {
		task, _ := n.g.Task(id)
		leaf := Segment{Task: id, CPU: -1, Depth: depth, Begin: begin, End: at}
		parent, born := n.parents[id]
		switch {
		case at > task.End:
			leaf.Begin, leaf.Cause = max(begin, task.End), unknown(whyExited)
			out = append(out, leaf)
		case at <= task.Begin && born:
			id = parent
			continue
		case at <= task.Begin:
			leaf.Cause = unknown(whyOutside)
			out = append(out, leaf)
		default:
			v, _ := n.g.StateAt(id, at-1)
			if v.State == Blocked && v.Cause.Kind == CauseTask {
				if v.End == at {
					id, depth = v.Cause.Task, depth+1
					continue
				}
				v.Cause = unknown(whyNoSwitch) // who acts does not wait: something was lost
			}
			leaf.Begin = max(begin, v.Begin)
			out = append(out, n.own(leaf, v)...)
		}
		at = leaf.Begin
	}
	for i := range out {
		out[i].End = min(out[i].End, end)
	}
	return slices.DeleteFunc(out, func(s Segment) bool { return s.Begin >= s.End })
}

// linked tells whether a task set another one going where a segment of the one
// follows one of the other, perhaps through tasks that did nothing else.
func (n naive) linked(a, b *Segment) bool {
	id := b.Task
	for range n.g.Tasks() {
		if k, _ := n.g.Task(id); b.Begin <= k.Begin {
			id = n.parents[id]
		} else if v, ok := n.g.StateAt(id, b.Begin-1); ok && v.State == Blocked {
			id = v.Cause.Task
		} else {
			return false
		}
		if id == a.Task {
			return true
		}
	}
	return false
}

// checkLongest computes the longest path through the true graph to the target's end,
// where waits weigh nothing (algorithm of section 4.3.1, [7]), by dynamic programming
// over the simulator's truth. Where only tasks wake tasks, the active
// path must be as long.
func checkLongest(t *testing.T, s *sim, p Path) {
	t.Helper()
	if p.Segments[len(p.Segments)-1].Wait >= 0 {
		return // the edge that ends the wait lies behind the window
	}
	best := make(map[*simTask]int64) // longest path that ends at the task's latest vertex
	at := make(map[*simTask]int64)
	advance := func(k *simTask, to int64) int64 {
		from := max(at[k], p.Begin)
		if state := k.at(from); to > from && state != Blocked && state != Unknown && state != dead {
			best[k] += to - from
		}
		at[k] = max(from, to)
		return best[k]
	}
	type vertex struct {
		t    int64
		n    int
		k    *simTask
		from *simTask
	}
	var order []vertex
	for _, k := range s.tasks {
		for i, c := range k.truth {
			v := vertex{t: c.t, n: i, k: k}
			if w, ok := k.waits[c.t]; ok && c.state == Preempted && k.truth[i-1].state == Blocked {
				v.from = w.waker
			}
			if i == 0 {
				v.from = k.parent
			}
			order = append(order, v)
		}
	}
	slices.SortStableFunc(order, func(a, b vertex) int { return int(a.t - b.t) })
	for _, v := range order {
		if v.t <= p.Begin || v.t > p.End {
			continue
		}
		length := advance(v.k, v.t)
		if v.from != nil {
			best[v.k] = max(length, advance(v.from, v.t))
		}
	}
	i := slices.IndexFunc(s.tasks, func(k *simTask) bool { return k.id() == p.Target })
	longest := advance(s.tasks[i], p.End)
	var length int64
	leaf := false
	for _, seg := range p.Segments {
		switch seg.State {
		case Running, Preempted:
			length += seg.End - seg.Begin
		default:
			leaf = true
		}
	}
	if length > longest || !leaf && length != longest {
		t.Errorf("path of %v over [%d, %d) is %d long, the longest path %d", p.Target, p.Begin, p.End, length, longest)
	}
}
