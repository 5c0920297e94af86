// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"math/rand/v2"
	"slices"

	"pathprof/join/sched"
)

// sim is a scheduler that does random things and knows the truth about them.
type sim struct {
	*rand.Rand
	opt    simOptions
	now    int64
	cur    []*simTask // by CPU, nil if idle
	tasks  []*simTask // all that ever were
	tids   int32
	events []sched.Event
	// truth of the CPUs: who came when.
	lanes [][]simTurn
	lost  []int64 // by CPU: events dropped since the last one kept
}

type simOptions struct {
	cpuBound bool // only tasks wake tasks, and all initial states are known
	loss     bool
	ties     bool
}

type simTask struct {
	tid, pid int32
	parent   *simTask
	born     int64 // -1: before the recording
	state    State
	changed  int64
	// truth are the times at which the state changed.
	truth []simChange
	// waits by the time at which they ended.
	waits  map[int64]simWait
	raced  bool // woken while it is about to sleep
	seen   int64
	parked bool // left its CPU to sleep after its wake-up
}

type simChange struct {
	t     int64
	state State
}

type simWait struct {
	ctx    sched.Context
	vector int32
	waker  *simTask
}

type simTurn struct {
	t    int64
	task *simTask
}

// simulate makes a random recording of n events over [0, s.now].
func simulate(seed uint64, n int, opt simOptions) *sim {
	s := &sim{Rand: rand.New(rand.NewPCG(seed, 4)), opt: opt}
	cpus := 1 + s.IntN(5)
	s.cur, s.lanes, s.lost = make([]*simTask, cpus), make([][]simTurn, cpus), make([]int64, cpus)
	dump := opt.cpuBound || s.IntN(3) > 0
	for range 2 + s.IntN(12) {
		k := s.add(nil, []State{Preempted, Blocked}[s.IntN(2)], -1)
		if c := s.IntN(cpus); s.cur[c] == nil && (k.state == Preempted) {
			s.cur[c] = k
			k.set(0, Running)
		}
	}
	for c, k := range s.cur {
		s.lanes[c] = []simTurn{{0, k}}
	}
	for i := 0; len(s.events) < n && i < 4*n; i++ {
		if !opt.ties || s.IntN(10) < 4 {
			s.now += 1 + s.Int64N(9)
		}
		if dump && i < len(s.tasks) && s.tasks[i].born < 0 && s.tasks[i].state != dead {
			s.dump(s.tasks[i])
			continue
		}
		s.act(s.IntN(cpus))
	}
	s.now++
	for c, lost := range s.lost {
		if lost > 0 {
			s.keep(sched.Event{Time: s.now, CPU: int32(c), Kind: sched.KindLost, Count: lost})
			s.lost[c] = 0
		}
	}
	s.now++
	return s
}

func (s *sim) add(parent *simTask, state State, born int64) *simTask {
	s.tids++
	k := &simTask{tid: s.tids, pid: s.tids, parent: parent, born: born, waits: make(map[int64]simWait), seen: forever}
	if born >= 0 && s.IntN(2) == 0 { // the number of a task that died before
		for _, old := range s.tasks {
			if old.state == dead && old.changed < s.now && !slices.ContainsFunc(s.tasks, func(o *simTask) bool {
				return o.tid == old.tid && (o.state != dead || o.changed >= s.now)
			}) {
				k.tid, k.pid = old.tid, old.tid
				break
			}
		}
	}
	k.set(max(born, 0), state)
	s.tasks = append(s.tasks, k)
	return k
}

func (k *simTask) set(t int64, state State) {
	k.state, k.changed = state, t
	k.truth = append(k.truth, simChange{t, state})
}

// at is the true state at time t.
func (k *simTask) at(t int64) State {
	state := Unknown
	for _, c := range k.truth {
		if c.t <= t {
			state = c.state
		}
	}
	return state
}

// successor is the state of the task that has a dead one's number.
func (s *sim) successor(tid int32, t int64) State {
	for _, k := range s.tasks {
		if state := k.at(t); k.tid == tid && state != Unknown && state != dead {
			return state
		}
	}
	return dead
}

func (k *simTask) ref() sched.Ref {
	if k == nil {
		return sched.Ref{}
	}
	return sched.Ref{TID: k.tid, PID: k.pid}
}

// id is the task's identity in the graph.
func (k *simTask) id() sched.TaskID { return sched.TaskID{TID: k.tid, Start: max(k.born, 0)} }

func (s *sim) keep(ev sched.Event) { s.events = append(s.events, ev) }

// emit records an event of a CPU, or loses it.
func (s *sim) emit(ev sched.Event) bool {
	ev.Time = s.now
	if s.opt.loss && s.IntN(12) == 0 {
		s.lost[ev.CPU]++
		return false
	}
	if n := s.lost[ev.CPU]; n > 0 {
		s.keep(sched.Event{Time: s.now, CPU: ev.CPU, Kind: sched.KindLost, Count: n})
		s.lost[ev.CPU] = 0
	}
	s.keep(ev)
	return true
}

func (s *sim) dump(k *simTask) {
	state := uint32(sched.StateRunning)
	if k.state == Blocked {
		state = sched.StateInterruptible
	}
	s.keep(sched.Event{Time: s.now, CPU: -1, Kind: sched.KindTask, Task: k.ref(), State: state})
}

func (s *sim) act(c int) {
	k := s.cur[c]
	switch r := s.IntN(100); {
	case r < 45:
		s.schedule(c)
	case r < 85:
		s.wake(c)
	case r < 88 && k != nil && k.changed < s.now:
		child := s.add(k, Preempted, s.now)
		s.emit(sched.Event{CPU: int32(c), Kind: sched.KindFork, Task: child.ref(), Other: k.ref()})
	case r < 90 && k != nil && k.changed < s.now && !s.opt.loss:
		s.exec(c, k)
	}
}

// exec lets a task go on under another number.
func (s *sim) exec(c int, k *simTask) {
	next := s.add(k, Running, s.now)
	k.seen, next.seen = min(k.seen, s.now), s.now
	k.set(s.now, dead)
	s.cur[c] = next
	s.lanes[c] = append(s.lanes[c], simTurn{s.now, next})
	s.emit(sched.Event{CPU: int32(c), Kind: sched.KindExec, Task: next.ref(), Other: k.ref()})
}

func (s *sim) schedule(c int) {
	var next *simTask
	for _, i := range s.Perm(len(s.tasks)) {
		if s.tasks[i].state == Preempted && s.IntN(4) > 0 {
			next = s.tasks[i]
			break
		}
	}
	prev := s.cur[c]
	if prev == next {
		return
	}
	ev := sched.Event{CPU: int32(c), Kind: sched.KindSwitch, Task: prev.ref(), Other: next.ref(), Stack: s.Uint32N(3)}
	if prev != nil {
		s.leave(prev, &ev)
	}
	if next != nil {
		next.set(s.now, Running)
		next.raced, next.parked = false, false
		next.seen = min(next.seen, s.now)
	}
	s.cur[c] = next
	s.lanes[c] = append(s.lanes[c], simTurn{s.now, next})
	s.emit(ev)
}

func (s *sim) leave(k *simTask, ev *sched.Event) {
	k.seen = min(k.seen, s.now)
	switch r := s.IntN(20); {
	case r == 0 && k.changed < s.now && k.born < s.now:
		ev.State = sched.StateDead
		k.set(s.now, dead)
	case r < 7:
		ev.Preempt = s.IntN(2) == 0
		k.set(s.now, Preempted)
	default:
		ev.State = []uint32{sched.StateInterruptible, sched.StateUninterruptible, sched.StateIdle}[s.IntN(3)]
		if k.raced {
			k.set(s.now, Preempted) // it was put back on the queue
			k.parked = true
		} else {
			k.set(s.now, Blocked)
		}
	}
	k.raced = false
}

func (s *sim) wake(c int) {
	k := s.tasks[s.IntN(len(s.tasks))]
	by := s.cur[c]
	if k.state == dead || k.parked || by == k || s.opt.cpuBound && by == nil {
		return
	}
	ev := sched.Event{CPU: int32(c), Kind: sched.KindWaking, Task: k.ref(), Other: by.ref(), Ctx: sched.ContextTask}
	if !s.opt.cpuBound && s.IntN(3) == 0 || by == nil {
		ev.Ctx = []sched.Context{sched.ContextHardirq, sched.ContextSoftirq, sched.ContextHrtimer, sched.ContextTimer}[s.IntN(4)]
		ev.Vector = s.Int32N(4)
	}
	switch k.state {
	case Blocked:
		w := simWait{ctx: ev.Ctx, vector: ev.Vector}
		if ev.Ctx == sched.ContextTask {
			w.waker = by
		}
		if k.changed < s.now { // a wait of no length is none
			k.waits[s.now] = w
		}
		k.set(s.now, Preempted)
	case Running:
		k.raced = true
	}
	s.emit(ev)
}
