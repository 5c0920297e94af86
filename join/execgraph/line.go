// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"math"

	"pathprof/join/sched"
)

// never is the time before all times: that of a state which came from before
// the first event. After all times: forever.
const (
	never   = math.MinInt64
	forever = math.MaxInt64
)

// dead is the state of a line between a task's end and the next task with the
// same thread number.
const dead State = 255

// span is an interval of a line. It ends where the next one begins.
type span struct {
	begin  int64
	waker  int32 // thread number of the waker; in a Graph the index of its task
	vector int32
	cpu    int32 // where it ran; where it ran next if Preempted; -1 if neither
	stack  uint32
	// In a Graph: on is the index in its table of what the task waits on, 0 none.
	on uint32
	// wakeCPU and wakeStack: where the wake-up happened.
	wakeCPU   int32
	wakeStack uint32
	state     State
	ctx       sched.Context
	why       why
	flags     uint8
}

const (
	flagWoken   uint8 = 1 << iota // Blocked: waker, ctx and vector are set
	flagRaced                     // Preempted: its wake-up came before its switch-out
	flagLimited                   // Preempted: by the CPU limit of a cgroup; waker is its index
)

// wake is a wake-up that may turn out to matter.
type wake struct {
	ok     bool
	ctx    sched.Context
	vector int32
	waker  int32
	cpu    int32
	stack  uint32
	t      int64
}

// attrs are the properties of a task that no state depends on.
type attrs struct {
	name     string
	pid      int32
	parent   int32
	exited   bool
	zombie   bool // dumped in state Z
	hasStart bool
	start    int64 // of the dump, if hasStart
}

// add lets later attributes win, but the first start time: a dump cannot
// speak for a younger task.
func (a *attrs) add(b attrs) {
	if b.name != "" {
		a.name = b.name
	}
	if b.pid != 0 {
		a.pid = b.pid
	}
	if b.parent != 0 {
		a.parent = b.parent
	}
	if b.hasStart && !a.hasStart {
		a.hasStart, a.start = true, b.start
	}
	a.exited = a.exited || b.exited
	a.zombie = a.zombie || b.zombie
}

// gen is one task among those that had a thread number one after the other.
type gen struct {
	attrs
	begin, end int64
	born       bool
	creator    int32 // thread number of who forked it, or of who it was before
	renamed    bool  // it had another number before
	from       int   // index of its first span
}

// opKind is what happens to one task.
type opKind uint8

const (
	opWake   opKind = iota // it is woken
	opIn                   // it gets a CPU
	opOut                  // it leaves a CPU
	opGone                 // its CPU shows that it left unseen
	opBirth                // it is forked
	opDump                 // it is found in some state
	opRename               // it goes on under another number
	opBecome               // another task goes on under its number
)

// op is an event as seen by one task.
type op struct {
	kind opKind
	// open: the out's proof depends on what earlier units say about the CPU.
	open  bool
	to    State // out: the state it leaves in; dump: the state it is in
	why   why   // gone
	cpu   int32
	stack uint32
	idx   int // place of the event in its unit
	t     int64
	// proof: out: the CPU did not switch after that time, t if nothing is
	// proven. Gone: the last time the task is sure to have been there.
	proof   int64
	creator int32
	wake    wake
}

// line is the state of one thread number, a small machine driven by ops, and
// what it has come through so far.
type line struct {
	state State
	why   why
	cpu   int32
	stack uint32
	since int64
	// first wake-up while the state is initially unknown; last one while it is
	// unknown or running, kept through a sleep that it may have preceded.
	first, last wake
	dumped      bool
	spans       []span
	gens        []gen
	// prefix is what happened within a unit while the line was open: its state
	// depended on the units before.
	open   bool
	prefix *prefix
}

func newLine() *line {
	return &line{why: whyOutside, since: never, cpu: -1, gens: []gen{{begin: never, end: forever}}}
}

// task is the generation that lives now, or lived last.
func (l *line) task() *gen { return &l.gens[len(l.gens)-1] }

// set adds attributes. A dead task has none to come.
func (l *line) set(a attrs) {
	switch {
	case l.open && l.prefix.asleep:
		l.prefix.mid.add(a)
	case l.open:
		l.prefix.pre.add(a)
	case l.state != dead:
		l.task().add(a)
	}
}

// close ends the present interval at t as s; empty ones are not kept.
func (l *line) close(t int64, s span) {
	if t > l.since {
		s.begin = l.since
		l.spans = append(l.spans, s)
		l.since = t
	}
}

// enter begins a state without any knowledge of wake-ups.
func (l *line) enter(s State, t int64, cpu int32) {
	l.state, l.since, l.cpu, l.why, l.stack = s, t, cpu, whyNone, 0
	l.first, l.last = wake{}, wake{}
}

// begin starts another task under the same thread number.
func (l *line) begin(t int64, born bool, creator int32) {
	l.gens = append(l.gens, gen{begin: t, end: forever, born: born, creator: creator, from: len(l.spans)})
	l.since = t
}

// apply is the state machine.
func (l *line) apply(o *op) {
	switch o.kind {
	case opWake:
		l.wake(o)
	case opIn:
		l.in(o)
	case opOut:
		l.out(o)
	case opGone:
		if l.state == Running && l.cpu == o.cpu {
			l.close(o.proof, span{state: Running, cpu: l.cpu})
			l.enter(Unknown, l.since, -1)
			l.why = o.why
		}
	case opBirth:
		if l.state != dead {
			// Its end was not seen, nor what led there.
			l.close(o.t, span{state: Unknown, cpu: -1, why: whyNoSwitch})
			l.task().end = o.t
		}
		l.enter(Preempted, o.t, -1)
		l.begin(o.t, true, o.creator)
	case opRename:
		l.rename(o)
	case opBecome:
		l.become(o)
	case opDump:
		if l.state == Unknown && l.since == never && !l.first.ok && !l.dumped && o.to == Blocked {
			l.enter(Blocked, never, -1)
			l.stack = o.stack // taken from outside, while it did not run
		}
		l.dumped = true
	}
}

func (l *line) wake(o *op) {
	switch l.state {
	case Blocked:
		w := o.wake
		l.close(o.t, span{state: Blocked, cpu: -1, stack: l.stack, waker: w.waker, ctx: w.ctx, vector: w.vector,
			flags: flagWoken, wakeCPU: w.cpu, wakeStack: w.stack})
		l.enter(Preempted, o.t, -1)
	case Running:
		l.last = o.wake
	case Unknown:
		// After a loss the task may have run and slept unseen: only the
		// beginning allows the conclusion drawn from the first wake-up.
		if !l.first.ok && l.since == never {
			l.first = o.wake
		}
		l.last = o.wake
	}
}

func (l *line) in(o *op) {
	switch l.state {
	case dead:
		l.begin(o.t, false, 0)
	case Unknown:
		if l.first.ok {
			l.close(l.first.t, span{state: Unknown, cpu: -1, why: l.why})
			l.close(o.t, span{state: Preempted, cpu: o.cpu})
		}
		l.close(o.t, span{state: Unknown, cpu: -1, why: l.why})
	case Blocked:
		if l.last.ok {
			l.close(o.t, span{state: Preempted, cpu: o.cpu, stack: l.stack, flags: flagRaced})
		}
		l.close(o.t, span{state: Blocked, cpu: -1, stack: l.stack, why: whyNoWakeup})
	case Preempted:
		l.close(o.t, span{state: Preempted, cpu: o.cpu})
	case Running:
		l.close(o.t, span{state: Unknown, cpu: -1, why: whyNoSwitch})
	}
	l.enter(Running, o.t, o.cpu)
}

func (l *line) out(o *op) {
	if l.state != Running || l.cpu != o.cpu {
		l.appear(o)
	}
	l.close(o.t, span{state: Running, cpu: o.cpu})
	last := l.last
	l.enter(o.to, o.t, -1)
	switch o.to {
	case Blocked:
		l.stack, l.last = o.stack, last
	case dead:
		l.task().end = o.t
		l.task().exited = true
	}
}

// appear handles a task that leaves a CPU without having been seen there. It had
// the CPU as long as nobody else is known to, unless it was itself seen
// elsewhere later.
func (l *line) appear(o *op) {
	q := o.t
	if o.proof > l.since || l.since == never {
		q = max(o.proof, l.since)
	}
	last := l.last
	switch l.state {
	case dead:
		l.begin(q, false, 0)
		last = wake{}
	case Unknown:
		l.close(q, span{state: Unknown, cpu: -1, why: l.why})
	case Blocked:
		l.close(q, span{state: Blocked, cpu: -1, stack: l.stack, why: whyNoWakeup})
		last = wake{}
	case Preempted:
		l.close(q, span{state: Preempted, cpu: o.cpu})
	case Running:
		l.close(q, span{state: Unknown, cpu: -1, why: whyNoSwitch})
		last = wake{}
	}
	l.enter(Running, q, o.cpu)
	if last.ok && last.t >= q {
		l.last = last
	}
}

// rename ends a task whose number is no more. If it was seen under the new one
// before the event told so, it ended then.
func (l *line) rename(o *op) {
	end := o.t
	switch {
	case l.state == dead:
		end = l.task().end
	case l.state == Unknown && l.why == whyNoSwitch && l.since > never:
		end = l.since
	default:
		if l.state != Running || l.cpu != o.cpu {
			l.appear(o)
		}
		l.close(o.t, span{state: Running, cpu: o.cpu})
	}
	l.enter(dead, o.t, -1)
	l.task().end = end
	l.task().exited = true
}

// become begins a task that had another number until now, and runs.
func (l *line) become(o *op) {
	if l.state == Running && l.cpu == o.cpu {
		// It was seen under this number before the event told so.
		l.close(o.t, span{state: Running, cpu: o.cpu})
		l.task().born, l.task().creator, l.task().renamed = true, o.creator, true
	} else {
		if l.state != dead {
			// The end of whoever had it was not seen.
			l.close(o.t, span{state: Unknown, cpu: -1, why: whyNoSwitch})
			l.task().end = o.t
		}
		l.begin(o.t, true, o.creator)
		l.task().renamed = true
	}
	l.enter(Running, o.t, o.cpu)
}
