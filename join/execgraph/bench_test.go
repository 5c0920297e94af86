// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"fmt"
	"testing"

	"pathprof/join/sched"
)

// relay makes a trace of n rounds in which tasks 1 to k pass a baton: whoever has it
// wakes the next one, then sleeps. So each task waits for all others, in turn.
func relay(k, n int) []sched.Event {
	var events []sched.Event
	ref := func(i int) sched.Ref { return sched.Ref{TID: int32(i%k + 1), PID: 1} }
	cpu := func(i int) int32 { return int32(i % k % 64) }
	for i := range k {
		state := uint32(sched.StateInterruptible)
		if i == 0 {
			state = sched.StateRunning
		}
		events = append(events, sched.Event{CPU: -1, Kind: sched.KindTask, Task: ref(i), State: state})
	}
	for i := range n {
		t := int64(i) * 100
		events = append(events,
			sched.Event{Time: t + 50, CPU: cpu(i), Kind: sched.KindWaking, Task: ref(i + 1), Other: ref(i), Ctx: sched.ContextTask},
			sched.Event{Time: t + 52, CPU: cpu(i), Kind: sched.KindSwitch, Task: ref(i), State: sched.StateInterruptible},
			sched.Event{Time: t + 54, CPU: cpu(i + 1), Kind: sched.KindSwitch, Other: ref(i + 1)})
	}
	return events
}

// TestLinear counts steps instead of time: on paths that share one long chain, the
// work per segment must stay the same however long the chain and however many
// tasks there are, in both readings. Each wait is resolved once.
func TestLinear(t *testing.T) {
	for _, c := range []struct{ tasks, rounds int }{{10, 1000}, {10, 2000}, {100, 2000}, {1000, 4000}} {
		end := int64(c.rounds) * 100
		g := buildSequential(t, relay(c.tasks, c.rounds), 0, end)
		steps, segments := 0, 0
		first := make(map[[2]int]*stretches)
		for i := range 20 {
			w := &walker{g: g, causal: i%2 == 1, path: Path{Target: g.tasks[i/2].ID, Begin: 0, End: end}}
			w.walk(int32(i / 2))
			w.warn()
			if err := CheckPath(w.path); err != nil {
				t.Fatal(err)
			}
			steps += w.steps
			segments += len(w.path.Segments)
			for k := range g.memory {
				for n := range g.memory[k].waits {
					key, at := [2]int{k, n}, g.memory[k].waits[n].Load()
					if first[key] != nil && first[key] != at {
						t.Fatalf("wait %d of task %d was resolved anew", n, k)
					}
					first[key] = at
				}
			}
		}
		resolved := 0
		for _, at := range first {
			if at != nil {
				resolved++
			}
		}
		if resolved > c.rounds+10 { // each round ends a wait, and each path's last one goes on
			t.Errorf("%d tasks, %d rounds: %d waits resolved", c.tasks, c.rounds, resolved)
		}
		if steps > 4*segments {
			t.Errorf("%d tasks, %d rounds: %d steps for %d segments", c.tasks, c.rounds, steps, segments)
		}
	}
}

func BenchmarkBuilder(b *testing.B) {
	events := relay(200, 333_333)
	b.ReportMetric(float64(len(events)), "events/op")
	b.ReportAllocs()
	for b.Loop() {
		build := NewBuilder(Options{})
		for i := range events {
			ev := events[i]
			if err := build.add(&ev); err != nil {
				b.Fatal(err)
			}
		}
		build.Graph(0, 333_333*100)
	}
}

func BenchmarkBuild(b *testing.B) {
	events := relay(200, 333_333)
	cuts := []int{250_000, 500_000, 750_000}
	for _, workers := range []int{1, 2} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) {
			for b.Loop() {
				if _, err := Build(Options{}, slabs(events, cuts), 0, 333_333*100, workers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkPaths walks paths that all lead through the same chain; ns/segment must
// not grow with its length or their number.
func BenchmarkPaths(b *testing.B) {
	for _, rounds := range []int{1000, 2000, 4000} {
		g := buildSequential(b, relay(1000, rounds), 0, int64(rounds)*100)
		for _, paths := range []int{250, 1000} {
			for _, causal := range []bool{false, true} {
				b.Run(fmt.Sprintf("rounds=%d/paths=%d/causal=%v", rounds, paths, causal), func(b *testing.B) {
					segments := 0
					for b.Loop() {
						segments = 0
						for _, t := range g.Tasks()[:paths] {
							p, err := g.path(t.ID, g.Begin, g.End, causal)
							if err != nil {
								b.Fatal(err)
							}
							segments += len(p.Segments)
						}
					}
					b.ReportMetric(float64(segments), "segments/op")
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(segments), "ns/segment")
				})
			}
		}
	}
}
