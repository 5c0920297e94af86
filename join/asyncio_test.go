// SPDX-License-Identifier: Apache-2.0

package join

import (
	"slices"
	"testing"
)

// loopStackOf is a stack, innermost first, of FILE:FUNCTION.
func loopStackOf(frames ...[2]string) *Stack {
	s := &Stack{}
	for _, f := range frames {
		s.Frames = append(s.Frames, Frame{File: f[0], Name: f[1], FirstLine: 1, Kind: KindPython})
	}
	return s
}

const (
	eventsFile = "/usr/lib/python3.11/asyncio/events.py"
	baseFile   = "/usr/lib/python3.11/asyncio/base_events.py"
	locksFile  = "/usr/lib/python3.11/asyncio/locks.py"
)

// Whose turn it is, in stacks of asyncio.
func TestLoopFrame(t *testing.T) {
	run, once := [2]string{eventsFile, "Handle._run"}, [2]string{baseFile, "BaseEventLoop._run_once"}
	for _, c := range []struct {
		name  string
		stack *Stack
		want  string
	}{
		{"a coroutine", loopStackOf([2]string{"app.py", "Shop.slow"}, run, once), "Shop.slow"},
		{"a function that a coroutine calls", loopStackOf([2]string{"app.py", "parse"}, [2]string{"app.py", "inner"}, [2]string{"app.py", "Shop.slow"}, run, once), "Shop.slow"},
		{"through asyncio's own code", loopStackOf([2]string{"app.py", "inner"}, [2]string{locksFile, "Lock.acquire"}, [2]string{"app.py", "Shop.slow"}, run, once), "Shop.slow"},
		{"up to 3.10", loopStackOf([2]string{"app.py", "slow"}, [2]string{eventsFile, "_run"}, once), "slow"},
		{"the loop itself", loopStackOf([2]string{"/usr/lib/python3.11/selectors.py", "EpollSelector.select"}, once), ""},
		{"asyncio's callback", loopStackOf([2]string{locksFile, "Lock._wake_up_first"}, run, once), ""},
		{"no loop", loopStackOf([2]string{"app.py", "main"}), ""},
	} {
		got := ""
		if f := loopFrame(c.stack); f != nil {
			got = f.Name
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// Turns: a runs 10, loses the CPU for 5, runs 10; without a sample for 3, loses the CPU for 6; a runs 1.
// The loop polls. b waits 7; who had the loop while it lost the CPU for 2 then, it or a, is not known. a runs 4; then the loop itself, which
// loses the CPU for 9.
func TestLoopClock(t *testing.T) {
	run := [2]string{eventsFile, "Handle._run"}
	a, b := loopStackOf([2]string{"app.py", "a"}, run), loopStackOf([2]string{"app.py", "b"}, run)
	loop := loopStackOf([2]string{baseFile, "BaseEventLoop._run_once"})
	c := loopClock{tasks: make(map[loopKey]*LoopTask)}
	at := func(s *Stack, ns, samples int64) { c.note(s, Values{PathNs: ns, Samples: samples}, true) }
	at(a, 10, 1)
	c.keep(5)
	at(a, 10, 1)
	at(&Stack{Frames: []Frame{{Name: unsampled, Kind: KindPathprof}}}, 3, 0)
	c.keep(6)
	at(a, 1, 1)
	at(loop, 100, 0)
	at(b, 7, 0)
	c.keep(2)
	at(a, 4, 1)
	at(loop, 1, 1)
	c.keep(9)
	want := []LoopTask{
		{Name: "a", File: "app.py", Line: 1, Ns: 36, LongestNs: 32, Samples: 4},
		{Name: "b", File: "app.py", Line: 1, Ns: 7, LongestNs: 7},
	}
	if got := c.list(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
