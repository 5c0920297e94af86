// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"sync"
	"sync/atomic"

	"pathprof/join/sched"
)

// stretch is a part of a wait, from begin (never: its own) up to end, with what
// the path leads through.
type stretch struct {
	begin, end int64
	// The path continues in task, which was running at bound (forever: at no
	// certain time), if that is not -1; else it is a leaf with a cause.
	task  int32
	bound int64
	cause Cause
}

// waiting is a wait as a path meets it: spans first to last of a task's line.
type waiting struct {
	task        int32
	first, last int
	until       int64 // its end
}

// waitAt returns the wait in which span i of a frame's task lies; ok is false if it
// lies in none. Of a logical wait that goes on beyond the frame's bound only the
// pieces before are one: the task did something in between, as it shows.
func (g *Graph) waitAt(f *frame, i int) (w waiting, ok bool) {
	spans := g.lines[f.task].spans
	first, last := g.groupAt(f.task, i)
	for last > first && g.spanEnd(f.task, last) > f.bound {
		last--
		for spans[last].state != Blocked {
			last--
		}
	}
	if i > last {
		first, last = i, i
	}
	return waiting{f.task, first, last, g.spanEnd(f.task, last)}, spans[last].state == Blocked
}

// gilOf returns whose process' GIL a wait is for.
func (g *Graph) gilOf(w *waiting) (pid int32, ok bool) {
	pid = g.tasks[w.task].PID
	on := &g.ons[g.lines[w.task].spans[w.last].on]
	return pid, on.Lock == sched.LockGIL && len(g.gil[pid]) > 0
}

// route tells where the path of a wait leads at pos.
func (g *Graph) route(w *waiting, pos int64) stretch {
	if pid, ok := g.gilOf(w); ok {
		holder, from, until := g.holderAt(pid, pos)
		s := stretch{begin: from, end: min(until, w.until), task: holder, bound: forever}
		if holder < 0 || holder == w.task {
			s.task, s.cause = -1, Cause{Kind: CauseUnknown, Why: WhyHolder, Lock: sched.LockGIL}
		}
		return s
	}
	list := g.resolve(w)
	for len(list) > 1 && list[0].end <= pos {
		list = list[1:]
	}
	return list[0]
}

// stretches is a resolved wait.
type stretches []stretch

// memory remembers the resolved waits of a task, by their last spans. Many
// paths lead through the same waits; each is resolved once.
type memory struct {
	once  sync.Once
	waits []atomic.Pointer[stretches]
}

// resolve returns where the path of a wait leads, from its begin to its end.
func (g *Graph) resolve(w *waiting) stretches {
	m := &g.memory[w.task]
	m.once.Do(func() { m.waits = make([]atomic.Pointer[stretches], len(g.lines[w.task].spans)) })
	if list := m.waits[w.last].Load(); list != nil {
		return *list
	}
	var list stretches
	for pos := int64(never); pos < w.until; {
		s := g.lead(w, pos)
		s.begin = pos
		list = append(list, s)
		pos = s.end
	}
	m.waits[w.last].Store(&list)
	return list
}

// lead tells where the path of a wait that is not for the GIL leads from pos on.
func (g *Graph) lead(w *waiting, pos int64) stretch {
	s := &g.lines[w.task].spans[w.last]
	cause := g.cause(s)
	if cause.Kind != CauseTask {
		return g.behind(w.task, pos, w.until, s.wakeCPU, cause)
	}
	if g.inNetRX(s.waker) {
		deferred := cause
		deferred.Ctx, deferred.Vector = sched.ContextSoftirq, softirqNetRX
		if r := g.behind(w.task, pos, w.until, s.wakeCPU, deferred); r.cause.Kind != CauseTask {
			return r
		}
	}
	if k, ok := g.workAt(s.waker, w.until); ok {
		if q, ok := g.queuing(k); ok && q.t > pos && q.tid != g.tasks[s.waker].ID.TID {
			return g.beforeWork(w, pos, q)
		}
	}
	return stretch{end: w.until, task: s.waker, bound: w.until}
}

// beforeWork is the part of a wait before the work that ended it was queued.
func (g *Graph) beforeWork(w *waiting, pos int64, q queued) stretch {
	if q.ctx != sched.ContextTask {
		return g.behind(w.task, pos, q.t, q.cpu, causeOf(q.ctx, q.vector))
	}
	if by := g.alive(q.tid, q.t); q.tid > 0 && by >= 0 && by != w.task {
		return stretch{end: q.t, task: by, bound: q.t}
	}
	// The task queued it itself, before it slept, or nobody knows who did: the
	// worker's own line has it.
	return stretch{end: w.until, task: g.lines[w.task].spans[w.last].waker, bound: w.until}
}

// behind continues a wait of a task, which an interrupt on a CPU ended at t, in who
// sent the packet or gave the disk its order. Since then it is the network's or
// the disk's time.
func (g *Graph) behind(task int32, pos, t int64, cpu int32, cause Cause) stretch {
	l := g.linkOf(cpu, t, cause.Ctx, cause.Vector)
	if l.kind == CauseNone {
		return stretch{end: t, task: -1, cause: cause}
	}
	if l.task >= 0 && l.task != task && l.at > pos && l.at <= t {
		return stretch{end: l.at, task: l.task, bound: l.at}
	}
	return stretch{end: t, task: -1, cause: g.linked(l, cause)}
}

// linked is the cause that a link makes of a wake-up in an interrupt.
func (g *Graph) linked(l link, cause Cause) Cause {
	out := Cause{Kind: l.kind, Ctx: cause.Ctx, Vector: cause.Vector}
	if l.kind == CauseDisk {
		out.Vector = l.dev
	}
	if l.task >= 0 {
		out.Task = g.tasks[l.task].ID
	}
	return out
}

// wait describes a wait that a path meets from begin to end.
func (g *Graph) wait(w *waiting, begin, end int64) Wait {
	spans := g.lines[w.task].spans
	s := &spans[w.last]
	out := Wait{Begin: begin, End: end, Stack: s.stack, On: g.ons[s.on], Pieces: 1, Cause: g.cause(s), WakerStack: s.wakeStack}
	for i := w.first; i < w.last; i++ {
		if spans[i].state == Blocked {
			out.Pieces++
		}
	}
	if pid, ok := g.gilOf(w); ok {
		out.WakerStack = 0
		out.Cause = Cause{Kind: CauseUnknown, Why: WhyHolder, Lock: sched.LockGIL}
		if h := g.longestHolder(pid, begin, end); h >= 0 && h != w.task {
			out.Cause = Cause{Kind: CauseTask, Ctx: sched.ContextTask, Task: g.tasks[h].ID, Lock: sched.LockGIL}
			out.By = ByHolder
		}
		return out
	}
	ctx, vector := s.ctx, s.vector
	if out.Cause.Kind == CauseTask {
		g.released(w, &out)
		if !g.inNetRX(s.waker) {
			return out
		}
		ctx, vector = sched.ContextSoftirq, softirqNetRX
	}
	if s.flags&flagWoken == 0 {
		return out
	}
	l := g.linkOf(s.wakeCPU, w.until, ctx, vector)
	if l.kind != CauseNone {
		out.Cause, out.Took = g.linked(l, Cause{Ctx: ctx, Vector: vector}), l.took
	}
	if l.kind == CauseNetwork && l.task >= 0 {
		out.Took = w.until - l.at
	}
	return out
}

// released tells of a wait that a task ended whether that task was the lock's
// holder, how long it held it, and on what work the kernel worker was.
func (g *Graph) released(w *waiting, out *Wait) {
	waker := g.lines[w.task].spans[w.last].waker
	if k, ok := g.workAt(waker, w.until); ok {
		out.Work = k.name
	}
	if out.On.Call != sched.CallFutex {
		return
	}
	out.By, out.Cause.Lock = ByWaker, out.On.Lock
	if h := out.On.Holder; h.TID > 0 {
		if i := g.alive(h.TID, w.until); i >= 0 {
			out.Holder = g.tasks[i].ID
		}
		if out.Holder == out.Cause.Task {
			out.By = ByHolder
		}
	}
	if out.By == ByHolder || out.On.Lock == sched.LockMutex {
		out.HeldNs = g.heldFor(waker, out.On.Object, w.until)
	}
}

// maxHeldSpans bounds how far back the beginning of a lock's possession is
// looked for.
const maxHeldSpans = 256

// heldFor is how long a task had a lock at t, by the end of its own wait for the
// same one; 0 if it did not wait for it, or too long ago.
func (g *Graph) heldFor(task int32, object uint64, t int64) int64 {
	k := &g.lines[task]
	i := g.find(task, t)
	for n := 0; i >= 0 && n < maxHeldSpans; i, n = i-1, n+1 {
		s := &k.spans[i]
		if on := &g.ons[s.on]; s.state == Blocked && on.Call == sched.CallFutex && on.Object == object {
			return max(t-g.spanEnd(task, i), 0)
		}
	}
	return 0
}
