// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"pathprof/join/sched"
)

// gilSim is a process whose threads compute with the GIL, wait for it in timed
// pieces, and sleep without it, as CPython's do (ceval_gil.c). It knows who has the
// GIL at each instant. Each thread has a CPU of its own.
type gilSim struct {
	*rand.Rand
	now     int64
	threads []gilThread
	holder  int // index, -1 free
	events  []sched.Event
	truth   []tenure // task: index of the thread, -1 free
}

type gilThread struct {
	doing gilState
	until int64 // of the present piece or sleep; of the holder: when it lets go
}

type gilState uint8

const (
	gilComputes gilState = iota // with the GIL
	gilWaits                    // for it
	gilSleeps                   // without it
)

const gilInterval = 5000

func (s *gilSim) ref(i int) sched.Ref { return sched.Ref{TID: int32(i + 1), PID: 1} }

func (s *gilSim) holding() sched.Ref {
	if s.holder < 0 {
		return sched.Nobody
	}
	return s.ref(s.holder)
}

func (s *gilSim) give(to int) {
	s.holder = to
	s.truth = append(s.truth, tenure{s.now, int32(to)})
}

func (s *gilSim) on(i int) {
	s.events = append(s.events, sched.Event{Time: s.now, CPU: int32(i), Kind: sched.KindSwitch, Other: s.ref(i)})
}

// off takes a thread off its CPU, to wait for the GIL or to sleep.
func (s *gilSim) off(i int, doing gilState, length int64) {
	ev := sched.Event{Time: s.now, CPU: int32(i), Kind: sched.KindSwitch, Task: s.ref(i), State: 1, Stack: 3, Holder: s.holding()}
	if doing == gilWaits {
		ev.Call, ev.Object, ev.Timeout, ev.Lock = sched.CallFutex, 0x10, gilInterval, sched.LockGIL
	}
	s.events = append(s.events, ev)
	s.threads[i] = gilThread{doing, s.now + length}
}

func (s *gilSim) wake(i int, ev sched.Event) {
	ev.Time, ev.Kind, ev.Task = s.now, sched.KindWaking, s.ref(i)
	s.events = append(s.events, ev)
	s.now += 1 + s.Int64N(4)
	s.on(i)
	s.now += 1 + s.Int64N(4)
}

// take lets a running thread have the GIL, or wait for it.
func (s *gilSim) take(i int) {
	if s.holder < 0 {
		s.give(i)
		s.threads[i] = gilThread{gilComputes, s.now + 10 + s.Int64N(40_000)}
		return
	}
	s.off(i, gilWaits, gilInterval)
}

// release lets the holder go on to sleep, or to wait for the GIL again; one who
// waits gets it.
func (s *gilSim) release() {
	h := s.holder
	s.give(-1)
	for _, i := range s.Perm(len(s.threads)) {
		if s.threads[i].doing == gilWaits {
			s.wake(i, sched.Event{CPU: int32(h), Other: s.ref(h), Ctx: sched.ContextTask})
			s.take(i)
			break
		}
	}
	s.now++
	if s.IntN(2) == 0 {
		s.off(h, gilSleeps, s.Int64N(30_000))
	} else {
		s.take(h)
	}
}

func simulateGIL(seed uint64, steps int) *gilSim {
	s := &gilSim{Rand: rand.New(rand.NewPCG(seed, 7)), holder: -1, truth: []tenure{{never, -1}}}
	s.threads = make([]gilThread, 2+s.IntN(4))
	for i := range s.threads {
		s.now++
		s.on(i)
		s.take(i)
	}
	for range steps {
		next := 0
		for i := range s.threads {
			if s.threads[i].until < s.threads[next].until {
				next = i
			}
		}
		s.now = max(s.now+1, s.threads[next].until)
		switch {
		case next == s.holder:
			s.release()
		case s.threads[next].doing == gilWaits: // times out, and asks for the GIL
			s.wake(next, sched.Event{CPU: int32(next), Ctx: sched.ContextHrtimer})
			s.take(next)
			if h := s.holder; h >= 0 && h != next {
				s.threads[h].until = min(s.threads[h].until, s.now+10+s.Int64N(200))
			}
		default:
			s.wake(next, sched.Event{CPU: int32(next), Ctx: sched.ContextHrtimer})
			s.take(next)
		}
	}
	return s
}

func (s *gilSim) holderAt(t int64) int32 {
	return s.truth[lastBy(s.truth, t, func(t *tenure) int64 { return t.begin })].task
}

// At each instant of a wait for the GIL the path is with the thread that has it, or
// says that it does not know; it knows nearly always. Pieces are one wait. No
// instant is blamed on a timer.
func TestHolders(t *testing.T) {
	var waited, untold, pieces int64
	for seed := range uint64(300) {
		s := simulateGIL(seed, 200)
		g := buildSequential(t, s.events, 0, s.now)
		checkSlabs(t, s.Rand, g, s.events)
		for i := range 2 * len(s.threads) { // both readings of each
			i, causal := i/2, i%2 == 1
			p, err := g.path(sched.TaskID{TID: int32(i + 1)}, 0, s.now, causal)
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckPath(p); err != nil {
				t.Fatal(err)
			}
			for _, seg := range p.Segments {
				if seg.Wait < 0 || p.Waits[seg.Wait].On.Lock != sched.LockGIL {
					continue
				}
				waited += seg.End - seg.Begin
				if seg.Cause.Kind == CauseUnknown && seg.Cause.Lock == sched.LockGIL {
					untold += seg.End - seg.Begin
					continue
				}
				if msg := s.judge(&seg); msg != "" {
					t.Fatalf("seed %d, path of %d: %s", seed, i+1, msg)
				}
			}
			for _, w := range p.Waits {
				if w.On.Lock == sched.LockGIL {
					pieces += int64(w.Pieces)
				}
			}
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
	t.Logf("%d ns waited in %d pieces, %d untold", waited, pieces, untold)
	if untold*100 > waited {
		t.Errorf("%d ns of %d are unknown", untold, waited)
	}
}

// judge compares a segment of a wait for the GIL with the truth, but for the
// instants in which the lock is free and its next holder on the way.
func (s *gilSim) judge(seg *Segment) string {
	for _, at := range []int64{seg.Begin, (seg.Begin + seg.End) / 2, seg.End - 1} {
		truth := s.holderAt(at)
		if truth >= 0 && seg.Task.TID != truth+1 {
			return fmt.Sprintf("%+v, want thread %d at %d", *seg, truth+1, at)
		}
	}
	if seg.Cause.Kind == CauseTimer {
		return fmt.Sprintf("%+v is blamed on a timer", *seg)
	}
	return ""
}
