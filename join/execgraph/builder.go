// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"errors"
	"fmt"

	"pathprof/join/sched"
)

// Options of a [Builder]. The zero value works.
type Options struct {
	// Host is the number of the host all events come from.
	Host uint16
	// Tolerance is how late an event may come, in ns, compared with the latest
	// one before it: it then counts as that one's contemporary. 0 means 1 ms.
	Tolerance int64
}

// WithDefaults returns the options that take effect.
func (o Options) WithDefaults() Options {
	if o.Tolerance <= 0 {
		o.Tolerance = 1e6
	}
	return o
}

// Errors of [Builder.Add]. The event is left out and counted in [Loss]; the
// caller may go on.
var (
	ErrOrder     = errors.New("event out of time order")
	ErrMalformed = errors.New("malformed event")
)

// Loss is what a graph could not know.
type Loss struct {
	Events int64      // lost before they were recorded, over all CPUs
	Spans  []LossSpan // when, in the order of their ends
	// Late events were taken as contemporaries of the one before. Disordered
	// and Malformed ones were left out.
	Late, Disordered, Malformed int64
}

// LossSpan is a stretch in which events of a CPU were lost.
type LossSpan struct {
	CPU        int32
	Begin, End int64
	Count      int64
}

// Builder makes a [Graph] from the events of one host. It is not safe for
// concurrent use.
type Builder struct {
	opt   Options
	unit  bool // starts from unknown state
	lines map[int32]*line
	lanes map[int32]*lane
	facts facts
	loss  Loss
	now   int64 // latest time
	first int64 // time of the first event as it came, forever if none
	idx   int   // number of events
}

// NewBuilder returns a builder that expects a recording's first event.
func NewBuilder(opt Options) *Builder {
	return &Builder{
		opt:   opt.WithDefaults(),
		lines: make(map[int32]*line),
		lanes: make(map[int32]*lane),
		facts: newFacts(),
		now:   never,
		first: forever,
	}
}

// Add takes the next event. Events come in time order; those with the same
// time in the order in which they happened. Only the task dump is free of that: it says most
// if it comes first, whatever its time.
func (b *Builder) Add(ev sched.Event) error {
	if err := b.add(&ev); err != nil {
		return fmt.Errorf("%w: %v", err, ev)
	}
	return nil
}

func (b *Builder) add(ev *sched.Event) error {
	if !wellFormed(ev) {
		b.loss.Malformed++
		return ErrMalformed
	}
	b.idx++
	if ev.Kind == sched.KindTask {
		b.dumped(ev)
		return nil
	}
	b.first = min(b.first, ev.Time)
	if ev.Time < b.now {
		if uint64(b.now)-uint64(ev.Time) > uint64(b.opt.Tolerance) {
			b.loss.Disordered++
			return ErrOrder
		}
		b.loss.Late++
		ev.Time = b.now
	}
	b.now = ev.Time
	b.take(ev)
	return nil
}

// wellFormed tells whether an event makes sense on its own.
func wellFormed(ev *sched.Event) bool {
	if ev.Time == never || ev.Time == forever || ev.Task.TID < 0 || ev.Other.TID < 0 {
		return false
	}
	switch ev.Kind {
	case sched.KindSwitch, sched.KindLost, sched.KindReceive, sched.KindIO, sched.KindQueue:
		return ev.CPU >= 0
	case sched.KindObject, sched.KindSend, sched.KindThrottle:
		return true
	case sched.KindWaking, sched.KindFork, sched.KindExec, sched.KindExit, sched.KindComm, sched.KindTask,
		sched.KindWork, sched.KindWorkEnd:
		return ev.Task.TID > 0 // the idle tasks are not woken, and do not end
	}
	return false
}

// take advances the lines and lanes that a timely event is about.
func (b *Builder) take(ev *sched.Event) {
	switch ev.Kind {
	case sched.KindSwitch:
		b.switched(ev)
	case sched.KindLost:
		b.lost(ev)
	case sched.KindWaking:
		b.woken(ev)
	case sched.KindFork:
		b.forked(ev)
	case sched.KindExec, sched.KindComm:
		if old := ev.Other.TID; ev.Kind == sched.KindExec && old != 0 && old != ev.Task.TID && ev.CPU >= 0 {
			b.renamed(ev)
		}
		b.line(ev.Task.TID).set(attrs{pid: ev.Task.PID, name: ev.Name})
	case sched.KindExit:
		b.line(ev.Task.TID).set(attrs{pid: ev.Task.PID, exited: true})
	default:
		b.facts.tell(ev)
	}
	if ev.CPU >= 0 {
		b.lane(ev.CPU).last = ev.Time
	}
}

func (b *Builder) switched(ev *sched.Event) {
	lane := b.lane(ev.CPU)
	out := op{kind: opOut, idx: b.idx, t: ev.Time, cpu: ev.CPU, stack: ev.Stack, to: Preempted,
		open: lane.pending, proof: lane.proof(ev.Time)}
	if lane.pending {
		out.proof = ev.Time // settled when the unit is merged
	}
	switch {
	case sched.Blocked(ev.State, ev.Preempt):
		out.to = Blocked
	case !ev.Preempt && ev.State&(sched.StateDead|sched.StateZombie) != 0:
		out.to = dead
	}
	b.facts.left(ev, out.to == Blocked)
	gone := lane.name(naming{idx: b.idx, t: ev.Time, prev: ev.Task.TID, next: ev.Other.TID})
	b.gone(gone, ev.CPU)
	if ev.Task.TID != 0 {
		l := b.line(ev.Task.TID)
		l.set(attrs{pid: ev.Task.PID})
		l.feed(&out)
	}
	if ev.Other.TID != 0 {
		l := b.line(ev.Other.TID)
		l.feed(&op{kind: opIn, idx: b.idx, t: ev.Time, cpu: ev.CPU})
		l.set(attrs{pid: ev.Other.PID})
	}
}

func (b *Builder) lost(ev *sched.Event) {
	lane := b.lane(ev.CPU)
	n := max(ev.Count, 0)
	b.loss.Events = addSaturated(b.loss.Events, n)
	b.loss.Spans = append(b.loss.Spans, LossSpan{CPU: ev.CPU, Begin: lane.last, End: ev.Time, Count: n})
	gone := lane.name(naming{idx: b.idx, t: ev.Time, lost: true, next: nobody})
	b.gone(gone, ev.CPU)
}

// gone passes on that a task had left a CPU unseen. A unit knows that only of
// tasks that it saw there, so that their lines are not open.
func (b *Builder) gone(d departure, cpu int32) {
	if d.tid > 0 {
		b.line(d.tid).apply(&op{kind: opGone, idx: b.idx, cpu: cpu, proof: d.last, why: d.why})
	}
}

func (b *Builder) woken(ev *sched.Event) {
	w := wake{ok: true, ctx: ev.Ctx, vector: ev.Vector, t: ev.Time, cpu: ev.CPU, stack: ev.Stack}
	if ev.Ctx == sched.ContextTask {
		if w.waker = ev.Other.TID; w.waker == 0 {
			w.ctx = sched.ContextIdle
		} else {
			b.line(w.waker).set(attrs{pid: ev.Other.PID})
		}
	}
	l := b.line(ev.Task.TID)
	l.feed(&op{kind: opWake, idx: b.idx, t: ev.Time, wake: w})
	l.set(attrs{pid: ev.Task.PID})
}

func (b *Builder) forked(ev *sched.Event) {
	a := attrs{pid: ev.Task.PID, name: ev.Name}
	if ev.Other.PID != ev.Task.PID {
		a.parent = ev.Other.PID // a new thread has its creator's parent instead
	}
	if ev.Other.TID != 0 {
		b.line(ev.Other.TID).set(attrs{pid: ev.Other.PID})
	}
	l := b.line(ev.Task.TID)
	l.feed(&op{kind: opBirth, idx: b.idx, t: ev.Time, creator: ev.Other.TID})
	l.set(a)
}

// renamed handles an exec by a thread that is not its process' first: it takes
// over that one's number, whose task has ended by then (fs/exec.c, de_thread).
// Between that and the event it can already be seen under its new number.
func (b *Builder) renamed(ev *sched.Event) {
	lane := b.lane(ev.CPU)
	end := op{kind: opRename, idx: b.idx, t: ev.Time, cpu: ev.CPU, open: lane.pending, proof: lane.proof(ev.Time)}
	if lane.pending {
		end.proof = ev.Time // settled when the unit is merged
	}
	gone := lane.name(naming{idx: b.idx, t: ev.Time, prev: ev.Other.TID, alias: ev.Task.TID, next: ev.Task.TID})
	b.gone(gone, ev.CPU)
	b.line(ev.Other.TID).feed(&end)
	b.line(ev.Task.TID).feed(&op{kind: opBecome, idx: b.idx, t: ev.Time, cpu: ev.CPU, creator: ev.Other.TID})
}

func (b *Builder) dumped(ev *sched.Event) {
	o := op{kind: opDump, idx: b.idx, to: Unknown, stack: ev.Stack}
	if on := (On{Call: ev.Call, Object: ev.Object}); on != (On{}) {
		b.facts.dumped[ev.Task.TID] = on
	}
	a := attrs{pid: ev.Task.PID, name: ev.Name, parent: ev.Other.PID, hasStart: true, start: ev.Count}
	switch {
	case ev.State&(sched.StateDead|sched.StateZombie) != 0:
		a.zombie = true
	case ev.State&sched.StateRunning == 0 && sched.Blocked(ev.State, false):
		o.to = Blocked
	}
	l := b.line(ev.Task.TID)
	l.feed(&o)
	l.set(a)
}

func (b *Builder) line(tid int32) *line {
	l := b.lines[tid]
	if l == nil {
		l = newLine()
		if b.unit {
			l.open, l.prefix = true, new(prefix)
		}
		b.lines[tid] = l
	}
	return l
}

func (b *Builder) lane(cpu int32) *lane {
	n := b.lanes[cpu]
	if n == nil {
		n = newLane(b.unit)
		b.lanes[cpu] = n
	}
	return n
}

func addSaturated(a, b int64) int64 {
	if a > forever-b {
		return forever
	}
	return a + b
}
