// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"pathprof/join/sched"
)

// Errors of [Graph.ActivePath].
var (
	ErrNoTask   = errors.New("no such task")
	ErrNoWindow = errors.New("empty or endless window")
)

// ActivePath returns the active path of a task over [begin, end): its line, in
// which each wait that a task ended is replaced, recursively, by what that
// task did meanwhile. A task that was forked during the wait is preceded by
// its creator.
//
// A wait lasts until the wake-up. The time from there until the target runs
// again is its own: Preempted, Depth 0, Wait -1. Time outside the recording or the
// task's life is Unknown. Time and memory are about linear in the result: at each instant
// the path is one chain of tasks, so no interval is looked into twice.
func (g *Graph) ActivePath(target sched.TaskID, begin, end int64) (Path, error) {
	return g.path(target, begin, end, false)
}

// CausalPath is [Graph.ActivePath] in the causal reading: of who ended a wait only the
// work counts since it was set going, see the package's comment. The target's own
// time and its waits are the same in both.
func (g *Graph) CausalPath(target sched.TaskID, begin, end int64) (Path, error) {
	return g.path(target, begin, end, true)
}

func (g *Graph) path(target sched.TaskID, begin, end int64, causal bool) (Path, error) {
	task, ok := g.index[target]
	if !ok {
		return Path{}, fmt.Errorf("active path of task %d: %w", target.TID, ErrNoTask)
	}
	if end <= begin || end-begin <= 0 {
		return Path{}, fmt.Errorf("active path of task %d over [%d, %d): %w", target.TID, begin, end, ErrNoWindow)
	}
	first := chunks.Get().(*[]Segment)
	defer chunks.Put(first)
	w := &walker{g: g, causal: causal, path: Path{Target: target, Begin: begin, End: end}, last: (*first)[:0]}
	w.walk(task)
	w.warn()
	return w.path, nil
}

// chunkLen is the number of segments in a chunk.
const chunkLen = 4096

// chunks hold the segments of a path while it grows. Its length is not known
// beforehand, and a slice that doubles would copy and keep millions of them twice.
var chunks = sync.Pool{New: func() any { c := make([]Segment, 0, chunkLen); return &c }}

// frame is a stretch of one task's line on the way.
type frame struct {
	task int32
	span int // where pos lies in the line; -1 if not looked up yet
	// pos is how far the walk came, stop where the frame ends.
	pos, stop int64
	// bound is the wake-up (or fork) that led here. The task was running then,
	// so that what it waited for before has ended by then.
	bound int64
	depth int
	// waits is 1 + the last span of the present wait, once it was met; refused: it
	// cannot lead anywhere.
	waits   int
	refused bool
}

type walker struct {
	g      *Graph
	causal bool // waits are read causally
	path   Path
	full   [][]Segment // chunks of the path so far
	last   []Segment   // the chunk that grows; empty only if the path is
	stack  []frame
	wait   int // index of the target's present wait, -1 if it does not wait
	// met are the waits that ended in the very nanosecond of the wake-up they
	// explain: only those can be met twice.
	met map[[2]int32]struct{}
	// active are the tasks of the frames on the stack: none waits for itself.
	active map[int32]bool
	// contradictions met, and Unknown time on the path.
	contradictions int
	unknown        int64
	steps          int // intervals and turns looked at
}

func (w *walker) walk(task int32) {
	w.wait = -1
	p := &w.path
	id := w.g.tasks[task].ID
	if p.Begin < w.g.Begin {
		w.emit(Segment{Begin: p.Begin, End: min(p.End, w.g.Begin), Task: id, CPU: -1, Cause: unknown(whyOutside)})
	}
	from, to := max(p.Begin, w.g.Begin), min(p.End, w.g.End)
	w.push(frame{task: task, pos: from, stop: to, bound: forever})
	for len(w.stack) > 0 {
		f := &w.stack[len(w.stack)-1]
		if f.pos >= f.stop {
			delete(w.active, f.task)
			w.stack = w.stack[:len(w.stack)-1]
			continue
		}
		w.step(f)
	}
	w.wait = -1
	if p.End > w.g.End {
		w.emit(Segment{Begin: max(p.Begin, w.g.End), End: p.End, Task: id, CPU: -1, Cause: unknown(whyOutside)})
	}
	p.Segments = slices.Concat(append(w.full, w.last)...)
	w.full, w.last = nil, nil
}

func (w *walker) push(f frame) {
	f.span = -1
	if w.active == nil {
		w.active = make(map[int32]bool)
	}
	w.active[f.task] = true
	w.stack = append(w.stack, f)
}

// step walks one interval, or what replaces it.
func (w *walker) step(f *frame) {
	w.steps++
	t := &w.g.tasks[f.task]
	switch {
	case f.pos < t.Begin:
		w.unborn(f, min(f.stop, t.Begin))
		return
	case f.pos >= t.End:
		w.leaf(f, f.stop, Segment{Cause: unknown(whyExited)})
		return
	}
	if f.span < 0 {
		f.span = w.g.find(f.task, f.pos)
	}
	i := f.span
	if k, ok := w.g.waitAt(f, i); ok {
		w.blocked(f, &k)
		return
	}
	f.span++
	w.own(f, i, min(w.g.spanEnd(f.task, i), f.stop))
}

// own appends what a frame's task did itself in a span, up to end.
func (w *walker) own(f *frame, i int, end int64) {
	s := &w.g.lines[f.task].spans[i]
	switch s.state {
	case Preempted:
		w.preempted(f, s, end)
	case Running:
		w.migrated(f, i)
		w.leaf(f, end, Segment{State: Running, CPU: s.cpu})
	default:
		w.leaf(f, end, Segment{Cause: unknown(s.why)})
	}
}

// leaf appends a segment of the frame's own task.
func (w *walker) leaf(f *frame, end int64, s Segment) {
	s.Begin, s.End, s.Task, s.Depth, s.Wait = f.pos, end, w.g.tasks[f.task].ID, f.depth, w.wait
	if s.State != Running {
		s.CPU = -1
	}
	f.pos = end
	w.emit(s)
}

// unborn continues with the creator of a task that does not exist yet.
func (w *walker) unborn(f *frame, end int64) {
	creator := w.g.lines[f.task].creator
	if creator < 0 || f.depth == 0 || w.active[creator] {
		w.leaf(f, end, Segment{Cause: unknown(whyOutside)})
		return
	}
	from, depth := f.pos, f.depth
	f.pos = end
	w.push(frame{task: creator, pos: from, stop: end, bound: w.g.tasks[f.task].Begin, depth: depth})
}

// migrated counts a begin of running on another CPU than the last time.
func (w *walker) migrated(f *frame, i int) {
	spans := w.g.lines[f.task].spans
	if f.depth > 0 || f.pos > spans[i].begin {
		return
	}
	for k := i - 1; k >= 0; k-- {
		if spans[k].state == Running {
			if spans[k].cpu != spans[i].cpu {
				w.path.Migrations++
			}
			return
		}
	}
}

// blocked walks the next part of a wait, which may last beyond the frame.
func (w *walker) blocked(f *frame, k *waiting) {
	g := w.g
	end := min(k.until, f.stop)
	if f.waits != k.last+1 {
		f.waits = k.last + 1
		f.refused = k.until > f.bound || k.until == f.bound && w.again(f.task, int32(k.last))
		if f.depth == 0 {
			w.wait = len(w.path.Waits)
			w.path.Waits = append(w.path.Waits, g.wait(k, f.pos, end))
		}
	}
	if w.causal {
		w.trail(f, k, end)
		return
	}
	r := g.route(k, f.pos)
	r.end = min(r.end, end)
	if r.end == k.until {
		f.span = k.last + 1
	}
	if r.task >= 0 && (f.refused || w.active[r.task]) {
		w.contradictions++
		r.task, r.cause = -1, unknown(whyNoSwitch)
	}
	if r.task >= 0 {
		from, depth := f.pos, f.depth
		f.pos = r.end
		w.push(frame{task: r.task, pos: from, stop: r.end, bound: r.bound, depth: depth + 1})
		return
	}
	w.leaf(f, r.end, Segment{State: Blocked, Cause: r.cause, Stack: g.lines[f.task].spans[k.last].stack})
}

// again tells whether a wait was met before, and remembers it.
func (w *walker) again(task, i int32) bool {
	if w.met == nil {
		w.met = make(map[[2]int32]struct{})
	}
	_, ok := w.met[[2]int32{task, i}]
	w.met[[2]int32{task, i}] = struct{}{}
	return ok
}

// preempted splits a wait for a CPU by who had the CPU on which it ended.
func (w *walker) preempted(f *frame, s *span, end int64) {
	if s.cpu < 0 && s.flags&flagLimited == 0 {
		w.leaf(f, end, Segment{State: Preempted, Cause: unknown(s.why), Stack: s.stack})
		return
	}
	if s.flags&flagLimited != 0 {
		w.leaf(f, end, Segment{State: Preempted, Cause: Cause{Kind: CauseLimit, Cgroup: w.g.cgroups[s.waker]}, Stack: s.stack})
		return
	}
	turns := w.g.lanes[s.cpu]
	i := sort.Search(len(turns), func(i int) bool { return turns[i].begin > f.pos }) - 1
	for ; f.pos < end; i++ {
		w.steps++
		until := end
		if i+1 < len(turns) {
			until = min(end, turns[i+1].begin)
		}
		cause := unknown(whyOutside)
		if i >= 0 {
			cause = w.occupant(&turns[i], f.task)
		}
		w.leaf(f, until, Segment{State: Preempted, Cause: cause, Stack: s.stack})
	}
}

// occupant is the cause of a preemption in somebody's turn.
func (w *walker) occupant(t *turn, task int32) Cause {
	switch {
	case t.tid == nobody:
		return unknown(t.why)
	case t.tid == 0:
		return unknown(whyIdle)
	case t.task == task:
		return unknown(whyNoSwitch) // it did not wait for itself
	}
	return Cause{Kind: CauseTask, Task: w.g.tasks[t.task].ID}
}

// emit appends a segment, or lengthens the last one if it goes on.
func (w *walker) emit(s Segment) {
	if s.Depth == 0 && s.State != Blocked {
		s.Wait = -1
	}
	if s.State == Unknown {
		w.unknown += s.End - s.Begin
	}
	if n := len(w.last); n > 0 {
		last := &w.last[n-1]
		same := *last
		same.Begin, same.End = s.Begin, s.End
		if last.End == s.Begin && same == s {
			last.End = s.End
			return
		}
	}
	if len(w.last) == chunkLen {
		w.full = append(w.full, w.last)
		w.last = make([]Segment, 0, chunkLen)
	}
	w.last = append(w.last, s)
}

// warn puts into words what the path does not know.
func (w *walker) warn() {
	p := &w.path
	count := make(map[string]int)
	for i := range p.Waits {
		if c := &p.Waits[i].Cause; c.Kind == CauseUnknown {
			count[c.Why]++
		}
	}
	for _, why := range whyWords {
		if n := count[why]; n > 0 {
			p.Warnings = append(p.Warnings, fmt.Sprintf("cause unknown for %d of %d waits: %s", n, len(p.Waits), why))
		}
	}
	if w.contradictions > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d times a waker was itself waiting when it woke: %s", w.contradictions, WhyNoSwitch))
	}
	if w.unknown > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d ns of %d are unknown", w.unknown, p.End-p.Begin))
	}
	var places int
	var events int64
	for i := range w.g.Loss.Spans {
		if l := &w.g.Loss.Spans[i]; l.End >= p.Begin && l.Begin < p.End {
			places++
			events = addSaturated(events, l.Count)
		}
	}
	if places > 0 {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%d events lost within the window, in %d places", events, places))
	}
}
