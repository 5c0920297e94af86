// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// Who kept an event loop from the others is named, for how long in all and at once: a
// coroutine that sleeps without awaiting, one that computes in a coroutine it awaits, and a
// callback; not those that only wait.
func TestEventLoop(t *testing.T) {
	needRecorder(t)
	rounds, minors := "2", []string{"3.11"}
	if os.Getenv("PATHPROF_FULL") != "" {
		rounds, minors = "10", []string{"3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13"}
	}
	for _, minor := range minors {
		t.Run(minor, func(t *testing.T) {
			var truth struct {
				TID   int32                 `json:"tid"`
				Turns map[string][][2]int64 `json:"turns"`
			}
			dir := recordProgram(t, perftest.PythonPath(t, minor), &truth, "testdata/loop.py", rounds)
			r := report(t, dir, "--segments")
			p := pathOf(t, &r, truth.TID)
			loop := p.Loop
			all := int64(0)
			for name, turns := range truth.Turns {
				var sum, longest, preempted int64
				for _, turn := range turns {
					inWindow(p, turn[0], turn[1], func(s *join.SegmentReport, ns int64) {
						if s.State == "preempted" {
							preempted += ns
						}
					})
					sum += turn[1] - turn[0]
					longest = max(longest, turn[1]-turn[0])
				}
				all += sum
				i := slices.IndexFunc(loop, func(task join.LoopTask) bool {
					return task.Name == name || strings.HasSuffix(name, "."+task.Name) // up to 3.10 names are not qualified
				})
				if i < 0 {
					t.Errorf("%s has no turn in %+v", name, loop)
					continue
				}
				t.Logf("%s: %d ms, longest %d, want %d and %d", loop[i].Name, loop[i].Ns/1e6, loop[i].LongestNs/1e6, sum/1e6, longest/1e6)
				// Where it begins and ends is known to a sample or two, not if the CPU is lost there.
				slack := sum/10 + int64(len(turns))*4e6
				if loop[i].Ns > sum+slack || loop[i].Ns < sum-slack-preempted || loop[i].LongestNs > loop[i].Ns || 2*loop[i].LongestNs < longest-preempted {
					t.Errorf("%s: %+v, want %d ns, %d of them at once", name, loop[i], sum, longest)
				}
			}
			for _, task := range loop {
				if (task.Name == "ticker" || task.Name == "main") && task.Ns > all/4 {
					t.Errorf("%s only waits: %+v", task.Name, task)
				}
			}
		})
	}
}
