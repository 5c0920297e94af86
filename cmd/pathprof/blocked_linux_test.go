// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// blockedFor is the shortest wait whose stack is held to be the published one.
const blockedFor = 1e6

// stretch is a time in a function, as a program published it: begin, end, name.
type stretch struct {
	begin, end int64
	function   string
}

// UnmarshalJSON reads [begin, end, "name"].
func (s *stretch) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&s.begin, &s.end, &s.function})
}

// blockedStack is where a thread left the CPU to wait, and for how long.
type blockedStack struct {
	begin, end int64
	names      []string // Python functions, outermost first
	stop       recording.StopReason
}

// blockedStacks returns the waits of threads that lasted blockedFor, by thread.
func blockedStacks(t *testing.T, dir string) map[int32][]blockedStack {
	t.Helper()
	r, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frames, err1 := r.Frames()
	stacks, err2 := r.Stacks()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	open, list := map[int32]blockedStack{}, map[int32][]blockedStack{}
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != sched.KindSwitch {
			continue
		}
		if b, ok := open[e.Other.TID]; ok {
			if b.end = e.Time; b.end-b.begin >= blockedFor {
				list[e.Other.TID] = append(list[e.Other.TID], b)
			}
			delete(open, e.Other.TID)
		}
		if e.Stack == 0 || !sched.Blocked(e.State, e.Preempt) {
			continue
		}
		b := blockedStack{begin: e.Time, stop: stacks[e.Stack].PythonStop}
		for _, id := range slices.Backward(stacks[e.Stack].Python) {
			b.names = append(b.names, frames[id].Name)
		}
		open[e.Task.TID] = b
	}
	return list
}

// A thread's blocked stack shows what it had published to be about to block in,
// for every wait of a millisecond and more.
func TestBlockedTruth(t *testing.T) {
	needRecorder(t)
	minors := []string{"3.8", "3.14"}
	if os.Getenv("PATHPROF_FULL") == "1" {
		minors = versions
	}
	for _, minor := range minors {
		t.Run(minor, func(t *testing.T) {
			var truth map[string][]stretch
			_, dir := recordScript(t, perftest.PythonPath(t, minor), "blocks.py", &truth)
			stacks := blockedStacks(t, dir)
			right, seen := 0, map[string]int{}
			for tid, log := range truth {
				n, err := strconv.ParseInt(tid, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range stacks[int32(n)] {
					i := sort.Search(len(log), func(i int) bool { return log[i].end > b.begin })
					if i == len(log) || b.begin < log[i].begin {
						continue // between two
					}
					if why := b.wrong(log[i].function); why != "" {
						t.Errorf("%d ns in %s: %s", b.end-b.begin, log[i].function, why)
						continue
					}
					right++
					seen[log[i].function]++
				}
			}
			t.Logf("%d waits show the published function: %v", right, seen)
			if right < 60 || len(seen) < 8 {
				t.Errorf("%d waits in %d functions only: %v", right, len(seen), seen)
			}
		})
	}
}

// wrong says what is wrong with a blocked stack of a thread that is in a function.
func (b *blockedStack) wrong(function string) string {
	if b.stop != recording.StopComplete {
		return fmt.Sprintf("stop reason %v", b.stop)
	}
	inside := slices.DeleteFunc(slices.Clone(b.names), func(name string) bool { return !strings.HasPrefix(name, "Blocker.in_") })
	if len(inside) != 1 || inside[0] != "Blocker."+function {
		return strings.Join(b.names, ";")
	}
	return ""
}
