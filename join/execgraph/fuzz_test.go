// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"errors"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"

	"pathprof/join/sched"
)

// garbage makes events of bytes: few tasks and CPUs, so that they meet in all
// impossible ways.
func garbage(data []byte) (events []sched.Event) {
	now := int64(0)
	for ; len(data) >= 4; data = data[4:] {
		a, b, c, d := data[0], data[1], data[2], data[3]
		now += int64(a>>4)%5 - int64(a>>7) // now and then back in time
		ev := sched.Event{
			Time: now, CPU: int32(b>>6) % 3, Kind: sched.Kind(a & 31 % 18),
			Task: sched.Ref{TID: int32(c & 7 % 6), PID: int32(c>>6) + 2}, Other: sched.Ref{TID: int32(c>>3) & 7 % 6, PID: int32(d >> 6)},
			State: []uint32{0, 1, 2, 0x80, 0x10, 0x20, 0x10000, 0x40}[d&7], Preempt: d&0x78 == 8, Stack: uint32(b & 1),
			Ctx: sched.Context(b & 15 % 10), Vector: int32(d>>4) - 1, Count: int64(d) - 9,
		}
		if c&32 != 0 { // causes: few values, so that they meet
			ev.Call = []sched.Call{sched.CallFutex, sched.CallEpollWait, sched.CallRecvfrom, 0}[d&3]
			ev.Object, ev.Timeout, ev.Lock = uint64(d>>2)&3, int64(c>>4)&3, sched.LockKind(b&7)
			ev.Holder = sched.Ref{TID: int32(d>>4)&7 - 1, PID: 2}
			ev.Conn, ev.Seq = uint64(b>>1)&1, uint32(d)&7
		}
		if d == 255 {
			ev.Time, ev.CPU = int64(a)<<55, -1
		}
		if b&32 != 0 {
			ev.Name = string('a' + rune(d&3))
		}
		events = append(events, ev)
	}
	return events
}

// checkGarbage tests what must hold for any events whatever.
func checkGarbage(t *testing.T, events []sched.Event) {
	t.Helper()
	b := NewBuilder(Options{Tolerance: 2})
	for _, ev := range events {
		_ = b.Add(ev)
	}
	g := b.Graph(1, max(b.now, 1)-1)
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
	n := len(events)
	for _, cuts := range [][]int{{n / 2}, {n / 3, n / 2, n / 2, 2 * n / 3, n - n/9}} {
		got, err := Build(Options{Tolerance: 2}, slabs(events, cuts), g.Begin, g.End, 3)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(graphText(g), graphText(got)); d != "" {
			t.Fatalf("from slabs cut at %v: %s", cuts, d)
		}
	}
	for _, task := range g.Tasks() {
		for _, window := range [][2]int64{{g.Begin, g.End}, {g.Begin - 7, g.End + 7}, {task.Begin + 1, task.End - 1}} {
			p, err := g.ActivePath(task.ID, window[0], window[1])
			if errors.Is(err, ErrNoWindow) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			causal, err := g.CausalPath(task.ID, window[0], window[1])
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range []Path{p, causal} {
				if err := CheckPath(p); err != nil {
					t.Fatalf("%v\n%s", err, strings.Join(pathText(p), "\n"))
				}
			}
		}
	}
}

func FuzzBuilder(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{4, 40, 400, 4000} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) { checkGarbage(t, garbage(data)) })
}

func TestGarbage(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 3))
		data := make([]byte, r.IntN(600))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		checkGarbage(t, garbage(data))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestShuffled loses, repeats and displaces events of sound traces: nearly right is
// another kind of wrong.
func TestShuffled(t *testing.T) {
	for seed := range uint64(500) {
		s := simulate(seed, 150, simOptions{loss: seed%2 == 0, ties: seed%3 == 0})
		var events []sched.Event
		for _, ev := range s.events {
			switch s.IntN(20) {
			case 0:
				continue
			case 1:
				events = append(events, ev)
			case 2:
				ev.Time -= s.Int64N(20)
			case 3:
				ev.CPU = int32(s.IntN(2))
			}
			events = append(events, ev)
		}
		checkGarbage(t, events)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestAddErrors(t *testing.T) {
	for _, ev := range []sched.Event{
		{},
		{Time: 5, Kind: 77, Task: sched.Ref{TID: 1}},
		{Time: 5, Kind: sched.KindWaking},
		{Time: 5, Kind: sched.KindSwitch, CPU: -1, Task: sched.Ref{TID: 1}},
		{Time: 5, Kind: sched.KindSwitch, Task: sched.Ref{TID: -1}},
		{Time: never, Kind: sched.KindExit, Task: sched.Ref{TID: 1}},
	} {
		b := NewBuilder(Options{})
		if err := b.Add(ev); !errors.Is(err, ErrMalformed) {
			t.Errorf("Add(%v) = %v, want %v", ev, err, ErrMalformed)
		}
		if g := b.Graph(0, 10); g.Loss.Malformed != 1 || len(g.Warnings) != 1 {
			t.Errorf("%v: loss %+v, warnings %q", ev, g.Loss, g.Warnings)
		}
	}
	b := NewBuilder(Options{Tolerance: 10})
	out := sched.Event{Kind: sched.KindSwitch, Task: sched.Ref{TID: 1}, State: sched.StateInterruptible}
	for _, c := range []struct {
		t    int64
		want error
	}{{100, nil}, {90, nil}, {89, ErrOrder}, {101, nil}, {-1 << 62, ErrOrder}} {
		out.Time = c.t
		if err := b.Add(out); !errors.Is(err, c.want) {
			t.Errorf("event at %d: %v, want %v", c.t, err, c.want)
		}
	}
	if g := b.Graph(0, 200); g.Loss.Late != 1 || g.Loss.Disordered != 2 {
		t.Errorf("loss %+v", g.Loss)
	}
}

func TestBuildError(t *testing.T) {
	broken := errors.New("torn batch")
	parts := slabs(simulate(1, 100, simOptions{}).events, []int{20, 40, 60, 80})
	parts[3] = func() iter.Seq2[sched.Event, error] {
		return func(yield func(sched.Event, error) bool) { yield(sched.Event{}, broken) }
	}
	if g, err := Build(Options{}, parts, 0, 100, 2); g != nil || !errors.Is(err, broken) {
		t.Errorf("Build = %v, %v, want %v", g, err, broken)
	}
	if g, err := Build(Options{Host: 3}, nil, 0, 100, 0); err != nil || g.Host != 3 || g.Check() != nil {
		t.Errorf("Build of nothing = %+v, %v", g, err)
	}
}

func TestActivePathErrors(t *testing.T) {
	g := buildSequential(t, parseEvents(t, []string{"10 cpu0 switch task=1 next=0 state=S"}), 0, 20)
	id := g.Tasks()[0].ID
	for _, c := range []struct {
		id         sched.TaskID
		begin, end int64
		want       error
	}{
		{sched.TaskID{TID: 9}, 0, 20, ErrNoTask},
		{sched.TaskID{TID: 1, Host: 1}, 0, 20, ErrNoTask},
		{id, 5, 5, ErrNoWindow},
		{id, 6, 5, ErrNoWindow},
		{id, never, forever, ErrNoWindow},
	} {
		if _, err := g.ActivePath(c.id, c.begin, c.end); !errors.Is(err, c.want) {
			t.Errorf("ActivePath(%v, %d, %d): %v, want %v", c.id, c.begin, c.end, err, c.want)
		}
	}
	p, err := g.ActivePath(id, 100, 200) // all outside
	if err != nil || CheckPath(p) != nil || len(p.Segments) != 1 || p.Segments[0].Cause.Why != WhyOutside {
		t.Errorf("path outside of the recording: %+v, %v", p, err)
	}
}
