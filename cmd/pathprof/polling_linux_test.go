// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// Loops that wait busily are shown as such, with what they ask; loops that work are
// not. The amount of CPU time is given, so that a busy machine has as many samples.
func TestPolling(t *testing.T) {
	needRecorder(t)
	asks := map[string]string{"spin_yield": "sched_yield", "spin_poll": "poll", "spin_select": "select", "spin_lock": "a lock", "spin_clock": "the clock"}
	loops := []string{"100", "spin_yield", "work", "spin_select", "work_talk", "spin_lock"}
	minors := []string{"3.11"}
	if os.Getenv("PATHPROF_FULL") != "" {
		minors = []string{"3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"}
		loops = append(loops, "work_timed", "spin_poll", "work_locked", "spin_clock")
		loops[0] = "300"
	}
	for _, minor := range minors {
		t.Run(minor, func(t *testing.T) {
			var truth struct {
				PID   int32 `json:"pid"`
				Loops []struct {
					Name  string `json:"name"`
					Begin int64  `json:"begin_ns"`
					End   int64  `json:"end_ns"`
				} `json:"loops"`
			}
			dir := recordProgram(t, perftest.PythonPath(t, minor), &truth, "testdata/spins.py", loops...)
			p, err := analyse(t.Context(), dir, window{})
			if err != nil {
				t.Fatal(err)
			}
			for _, loop := range truth.Loops {
				busy, all := pollingIn(p.profile, truth.PID, loop.Begin, loop.End)
				want := asks[loop.Name]
				t.Logf("%s: %v of %d ns on the CPU", loop.Name, busy, all)
				if all < 50e6 || want != "" && busy[want]*10 < all*8 || want == "" && len(busy) > 0 {
					t.Errorf("%s: polling %v of %d ns, want %q", loop.Name, busy, all, want)
				}
			}
		})
	}
}

// pollingIn sums up a main thread's time on the CPU in [begin, end), and what of it is
// busy waiting, by what is asked.
func pollingIn(p *join.Profile, pid int32, begin, end int64) (busy map[string]int64, all int64) {
	busy = make(map[string]int64)
	for i := range p.Paths {
		t := &p.Paths[i]
		if t.Thread.ID.TID != pid {
			continue
		}
		for k, seg := range t.Path.Segments {
			ns := min(seg.End, end) - max(seg.Begin, begin)
			if ns <= 0 || !onCPU(seg.State) || seg.Depth > 0 {
				continue
			}
			all += ns
			if word := t.Classes[t.ClassOf[k]].Key.Polling; word != "" {
				busy[word] += ns
			}
		}
	}
	return busy, all
}
