// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"cmp"
	"iter"
	"slices"
	"sort"

	"pathprof/join/sched"
)

// Graph is the execution graph of one recording. It says the same for ever, and is
// safe for concurrent use.
type Graph struct {
	// Begin and End of the recording's window, ns: all lines and lanes lie in it.
	Begin, End int64
	Host       uint16
	Loss       Loss
	Warnings   []string // what Loss means, in words

	tasks []Task // by thread number, then begin
	lines []track
	index map[sched.TaskID]int32
	cpus  []int32
	lanes map[int32][]turn
	facts facts
	ons   []On // by span.on; 0 is nothing
	gil   map[int32][]tenure
	// memory of what paths have resolved, by task: all that changes in a graph.
	memory []memory
	// cgroups are those that kept tasks off a CPU.
	cgroups []uint64
}

// track is a task's line in a graph.
type track struct {
	spans   []span
	groups  []group
	creator int32 // index of the task that forked it, -1 if not known
}

// Interval is a stretch of a task's line.
type Interval struct {
	Begin, End int64
	State      State
	// CPU is where the task ran (Running) or ran next (Preempted); else -1.
	CPU int32
	// Cause is what ended a wait (Blocked), or why the state is Unknown; a
	// preemption has none here, as several tasks may have had the CPU: see Turns.
	Cause Cause
	Stack uint32 // where the task blocked, 0 if not taken
	On    On     // the call it left its CPU in, and what it waits on, as far as they are known
}

// Turn is a stretch of time in which one task had a CPU.
type Turn struct {
	Begin, End int64
	Task       sched.TaskID // TID 0: the CPU was idle
	Why        string       // not empty: it is not known who had it, and why not
}

// Tasks returns the tasks by thread number and begin. The slice is the graph's own.
func (g *Graph) Tasks() []Task { return g.tasks }

// Task returns what is known of a task.
func (g *Graph) Task(id sched.TaskID) (Task, bool) {
	i, ok := g.index[id]
	if !ok {
		return Task{}, false
	}
	return g.tasks[i], true
}

// TaskAt returns the task that had a thread number at time t.
func (g *Graph) TaskAt(tid int32, t int64) (Task, bool) {
	i := g.lookup(tid, t)
	if i < 0 || t >= g.tasks[i].End {
		return Task{}, false
	}
	return g.tasks[i], true
}

// lookup returns the last task with a thread number that began by t, -1 if none did.
func (g *Graph) lookup(tid int32, t int64) int32 {
	n := sort.Search(len(g.tasks), func(i int) bool {
		k := &g.tasks[i]
		return k.ID.TID > tid || k.ID.TID == tid && k.Begin > t
	})
	if n == 0 || g.tasks[n-1].ID.TID != tid {
		return -1
	}
	return int32(n - 1)
}

// Intervals returns a task's line in time order. Its intervals tile the time
// from Task.Begin to Task.End.
func (g *Graph) Intervals(id sched.TaskID) iter.Seq[Interval] {
	return func(yield func(Interval) bool) {
		task, ok := g.index[id]
		if !ok {
			return
		}
		for i := range g.lines[task].spans {
			if !yield(g.interval(task, i)) {
				return
			}
		}
	}
}

// StateAt returns the interval of a task's line that holds t.
func (g *Graph) StateAt(id sched.TaskID, t int64) (Interval, bool) {
	task, ok := g.index[id]
	if !ok || t < g.tasks[task].Begin || t >= g.tasks[task].End {
		return Interval{}, false
	}
	return g.interval(task, g.find(task, t)), true
}

func (g *Graph) interval(task int32, i int) Interval {
	s := &g.lines[task].spans[i]
	return Interval{Begin: s.begin, End: g.spanEnd(task, i), State: s.state, CPU: s.cpu, Cause: g.cause(s), Stack: s.stack, On: g.ons[s.on]}
}

// find returns the index of the span that holds t.
func (g *Graph) find(task int32, t int64) int {
	spans := g.lines[task].spans
	return sort.Search(len(spans), func(i int) bool { return spans[i].begin > t }) - 1
}

func (g *Graph) spanEnd(task int32, i int) int64 {
	if spans := g.lines[task].spans; i+1 < len(spans) {
		return spans[i+1].begin
	}
	return g.tasks[task].End
}

func (g *Graph) cause(s *span) Cause {
	switch {
	case s.flags&flagWoken != 0:
		c := causeOf(s.ctx, s.vector)
		if c.Kind == CauseTask {
			c.Task = g.tasks[s.waker].ID
		}
		return c
	case s.why != whyNone && (s.state == Blocked || s.state == Unknown):
		return unknown(s.why)
	}
	return Cause{}
}

// TellsCalls says whether the recording has the system calls in which tasks leave
// their CPUs: then one that names none was in none.
func (g *Graph) TellsCalls() bool {
	return slices.ContainsFunc(g.ons, func(on On) bool { return on.Call != 0 })
}

// CPUs returns the numbers of the CPUs that had events, in order.
func (g *Graph) CPUs() []int32 { return g.cpus }

// Turns returns who had a CPU, in time order.
func (g *Graph) Turns(cpu int32) iter.Seq[Turn] {
	return func(yield func(Turn) bool) {
		turns := g.lanes[cpu]
		for i := range turns {
			if !yield(g.turn(turns, i)) {
				return
			}
		}
	}
}

func (g *Graph) turn(turns []turn, i int) Turn {
	t := Turn{Begin: turns[i].begin, End: g.End, Why: whyWords[turns[i].why], Task: sched.TaskID{Host: g.Host}}
	if i+1 < len(turns) {
		t.End = turns[i+1].begin
	}
	if k := turns[i].task; k >= 0 {
		t.Task = g.tasks[k].ID
	}
	return t
}

// Graph returns the graph of the events so far, closed at the window [begin,
// end). More events may follow, for a later graph.
func (b *Builder) Graph(begin, end int64) *Graph { return b.graph(begin, end, false) }

// graph lets go of what the builder holds as soon as the graph has it, if it is
// the last.
func (b *Builder) graph(begin, end int64, last bool) *Graph {
	end = max(begin, end)
	g := &Graph{Begin: begin, End: end, Host: b.opt.Host, Loss: b.loss,
		index: make(map[sched.TaskID]int32), lanes: make(map[int32][]turn), facts: b.facts, ons: make([]On, 1), gil: make(map[int32][]tenure)}
	g.Loss.Spans = slices.Clone(b.loss.Spans)
	for i := range g.Loss.Spans {
		s := &g.Loss.Spans[i]
		s.Begin = max(s.Begin, begin)
		s.End = max(s.End, s.Begin)
	}
	lost := mergeLoss(g.Loss.Spans)
	var creators []int32
	for _, tid := range sortedKeys(b.lines) {
		l := b.lines[tid]
		for i := range l.gens {
			if g.addTask(l, i, tid, lost) {
				creators = append(creators, l.gens[i].creator)
			}
		}
		if last {
			delete(b.lines, tid)
		}
	}
	g.link(creators)
	g.cpus = sortedKeys(b.lanes)
	for _, cpu := range g.cpus {
		g.lanes[cpu] = g.closeLane(b.lanes[cpu])
	}
	for pid, list := range g.facts.readings {
		g.gil[pid] = g.tenures(list)
	}
	for i := range g.lines {
		g.lines[i].groups = g.groups(int32(i))
	}
	g.memory = make([]memory, len(g.lines))
	g.warn()
	return g
}

func sortedKeys[V any](m map[int32]V) []int32 {
	keys := make([]int32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// mergeLoss returns the union of the spans of loss, sorted.
func mergeLoss(spans []LossSpan) []LossSpan {
	sorted := slices.SortedFunc(slices.Values(spans), func(a, b LossSpan) int { return cmp.Compare(a.Begin, b.Begin) })
	var out []LossSpan
	for _, s := range sorted {
		if n := len(out); n > 0 && s.Begin <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
		} else {
			out = append(out, s)
		}
	}
	return out
}

// touches tells whether events were lost within [begin, end]. A loss lies
// behind the event at its begin, but may reach the one at its end.
func touches(lost []LossSpan, begin, end int64) bool {
	i := sort.Search(len(lost), func(i int) bool { return lost[i].End >= begin })
	return i < len(lost) && lost[i].Begin < end
}
