// SPDX-License-Identifier: Apache-2.0

package join

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// server answers requests: each is a running segment and a wait. Its truth is
// what it would show if it ran forever.
type server struct {
	run, wait float64 // average lengths, in periods
	alike     float64
	slow      float64 // function b takes so many times as long
}

// record makes a recording of so many periods.
func (s *server) record(rng *rand.Rand, stacks []*Stack, periods int64) *Profile {
	const period = 1_000_000
	task := ThreadInfo{ID: sched.TaskID{TID: 10}, PID: 10, Process: "app", Thread: "app"}
	key := ClassKey{State: execgraph.Running, PID: 10, TID: 10, Task: task.ID, ProcessName: "app", ThreadName: "app"}
	waiting := key
	waiting.State = execgraph.Blocked
	waiting.Cause = Reason{Kind: execgraph.CauseTimer, Detail: "hrtimer"}
	waiting.Wait = waiting.Cause
	t := &ThreadPath{Thread: task, Classes: []Class{{Key: key}, {Key: waiting}}}
	end := periods * period
	t.Path = execgraph.Path{Target: task.ID, End: end}
	for now, next := int64(0), rng.Int64N(period); now < end; {
		p := dirichlet(rng, s.alike)
		slow := 1 + p[1]*(s.slow-1)
		length := min(1+int64(s.run*period*gamma(rng, 4)/4*slow), end-now)
		counts := make([]int64, len(p))
		for next = max(next, now+(next-now)%period); next < now+length; next += period {
			f := pick(rng, p)
			if rng.Float64() > 1/slow { // the time that came on top
				f = 1
			}
			counts[f]++
		}
		segment := len(t.ClassOf)
		t.Path.Segments = append(t.Path.Segments, execgraph.Segment{Begin: now, End: now + length, State: execgraph.Running, Wait: -1})
		t.ClassOf = append(t.ClassOf, 0)
		t.fill(segment, length, counts, stacks)
		if now += length; now >= end {
			break
		}
		length = min(1+int64(s.wait*period*rng.ExpFloat64()), end-now)
		t.Path.Segments = append(t.Path.Segments, execgraph.Segment{Begin: now, End: now + length, State: execgraph.Blocked, Wait: segment})
		t.ClassOf = append(t.ClassOf, 1)
		t.Entries = append(t.Entries, Entry{Stack: stacks[0], Segment: segment + 1, Values: Values{PathNs: length}})
		t.Classes[1].Ns += length
		t.Classes[1].Segments++
		now += length
		for next < now { // the timer does not stop, but finds nobody
			next += period
		}
	}
	return &Profile{EndNs: end, Samples: t.Classes[0].Samples, Paths: []ThreadPath{*t}}
}

// truth is a function's part of the wall time.
func (s *server) truth(f int) float64 {
	slow := 1 + shares[1]*(s.slow-1)
	run := s.run * slow
	part := shares[f] / slow
	if f == 1 {
		part = shares[1] * s.slow / slow
	}
	return part * run / (run + s.wait)
}

func findRow(c *Comparison, function, state string) *Difference {
	for i := range c.Threads {
		for j := range c.Threads[i].Rows {
			if d := &c.Threads[i].Rows[j]; d.Function == function && d.State == state {
				return d
			}
		}
	}
	return nil
}

// TestCompareCoverage compares recordings of known programs: intervals of
// differences hold the truth, where nothing changed no more than the stated part
// of comparisons finds anything, and what is said to be detectable is detected.
func TestCompareCoverage(t *testing.T) {
	runs := often(25, 400)
	stacks := worldStacks()
	before := server{run: 5, wait: 3, alike: 0.1, slow: 1}
	after := before
	after.slow = 4
	tests := []struct {
		name string
		a, b server
	}{{"nothing changed", before, before}, {"one function is slower", before, after}}
	for n, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			results := make([]compareOutcome, runs)
			_ = parallel(runs, runtime.GOMAXPROCS(0), func(i int) error {
				rng := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				c := Compare(tt.a.record(rng, stacks, 3000), tt.b.record(rng, stacks, 2000), CompareOptions{})
				for f, name := range []string{"a", "b"} {
					d := findRow(&c, name, "running")
					truth := 1e9 * (tt.b.truth(f) - tt.a.truth(f))
					results[i].total++
					if *d.Time.Low <= truth && truth <= *d.Time.High {
						results[i].inside++
					}
				}
				for _, d := range c.Threads[0].Rows {
					results[i].anything = results[i].anything || d.Significant
				}
				d := findRow(&c, "b", "running")
				results[i].found = d.Significant && d.Time.By > 0
				results[i].detectable = *d.Detectable
				return nil
			})
			var inside, total, anything, found int
			var detectable float64
			for _, r := range results {
				inside, total = inside+r.inside, total+r.total
				detectable += r.detectable / float64(runs)
				if r.anything {
					anything++
				}
				if r.found {
					found++
				}
			}
			coverage, any, power := float64(inside)/float64(total), float64(anything)/float64(runs), float64(found)/float64(runs)
			change := 1e9 * (tt.b.truth(1) - tt.a.truth(1))
			t.Logf("coverage %.3f; something found in %.3f; b changed by %.3g, found in %.3f, detectable %.3g",
				coverage, any, change, power, detectable)
			if coverage < leastRate(0.93, runs) || coverage > mostRate(0.98, runs) {
				t.Errorf("coverage %.3f, want 0.93 to 0.98", coverage)
			}
			if n == 0 && any > mostRate(0.07, runs) {
				t.Errorf("something found in %.3f of comparisons of the same program", any)
			}
			if n == 1 && change > detectable && power < leastRate(0.75, runs) {
				t.Errorf("a change of %.3g found in %.3f, but %.3g is called detectable", change, power, detectable)
			}
			if n == 1 && power < leastRate(0.5, runs) {
				t.Errorf("a change of %.3g found in %.3f only", change, power)
			}
		})
	}
}

type compareOutcome struct {
	inside, total   int
	anything, found bool
	detectable      float64
}

// A profile differs in nothing from itself.
func TestCompareSame(t *testing.T) {
	s := server{run: 5, wait: 3, slow: 1}
	p := s.record(rand.New(rand.NewPCG(1, 1)), worldStacks(), 2000)
	c := Compare(p, p, CompareOptions{})
	if len(c.Threads) != 1 || c.Threads[0].Thread != "app/app" || c.Tested < 4 || c.Unit != "second" {
		t.Fatalf("%+v", c)
	}
	var wall float64
	for _, d := range c.Threads[0].Rows {
		if d.Significant || d.Time.By != 0 || d.Points.By != 0 || d.Q == nil || *d.Q < 0.99 || d.Method == DiffNone {
			t.Errorf("%+v", d)
		}
		if d.Function == "" {
			wall += d.PerUnit[0]
		}
	}
	if math.Abs(wall-1e9) > 1 {
		t.Errorf("classes take %v ns of a second", wall)
	}
	p.Aggregated = true
	c = Compare(p, p, CompareOptions{Requests: [2]int64{10, 20}})
	if d := findRow(&c, "a", "running"); d.Method != DiffSamples || d.Time.Low == nil || c.Unit != "request" {
		t.Errorf("of sums: %+v", d)
	}
	if d := findRow(&c, "a", "blocked"); d.Method != DiffNone || d.P != nil || d.Time.Low != nil {
		t.Errorf("waits of sums: %+v", d)
	}
	// Twice the requests in the same time: half the time for each.
	if d := findRow(&c, "", "blocked"); math.Abs(d.PerUnit[0]-2*d.PerUnit[1]) > 1e-6*d.PerUnit[0] {
		t.Errorf("per request: %+v", d)
	}
	if c := Compare(p, &Profile{}, CompareOptions{}); len(c.Threads) != 1 || c.Threads[0].WallNs[1] != 0 {
		t.Errorf("with nothing: %+v", c)
	}
}

// Names of tasks that differ from start to start are the same.
func TestPlain(t *testing.T) {
	for name, want := range map[string]string{
		"python3/4711": "python3/…", "task python3/4711": "task python3/…", "sh/tid 12": "sh/…",
		"app/worker-3": "app/worker-3", "kworker/0:1": "kworker/0:1", "app/app": "app/app", "7/7x": "7/7x",
	} {
		if got := plain(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// The correction, worked out by hand: of p = 0.01, 0.02, 0.03, 0.2 the q are
// 0.04, 0.04, 0.04, 0.2.
func TestBenjaminiHochberg(t *testing.T) {
	var c Comparison
	c.Threads = []ThreadDiff{{}}
	zero := 0.0
	for _, p := range []float64{0.2, 0.01, 0.03, 0.02} {
		c.Threads[0].Rows = append(c.Threads[0].Rows, Difference{P: &p, Time: Change{Low: &zero, High: &zero}})
	}
	c.Threads[0].Rows = append(c.Threads[0].Rows, Difference{})
	c.correct()
	for i, want := range []float64{0.2, 0.04, 0.04, 0.04} {
		d := c.Threads[0].Rows[i]
		if math.Abs(*d.Q-want) > 1e-12 || d.Significant != (want < 0.05) {
			t.Errorf("p %v: q %v, significant %v, want %v", *d.P, *d.Q, d.Significant, want)
		}
	}
	if c.Tested != 4 || c.Threads[0].Rows[4].Q != nil {
		t.Errorf("%d tested", c.Tested)
	}
}

// Newcombe's own example: 56 of 70 and 48 of 80 differ by 0.2 in [0.0524, 0.3339].
func TestNewcombe(t *testing.T) {
	var e [2]Estimate
	for i, k := range [2][2]int64{{48, 80}, {56, 70}} {
		e[i].Share = float64(k[0]) / float64(k[1])
		e[i].Low, e[i].High = Wilson(k[0], k[1])
	}
	if low, high := newcombe(e); math.Abs(low-0.0524) > 5e-5 || math.Abs(high-0.3339) > 5e-5 {
		t.Errorf("[%.4f, %.4f], want [0.0524, 0.3339]", low, high)
	}
}
