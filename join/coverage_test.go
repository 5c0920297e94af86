// SPDX-License-Identifier: Apache-2.0

package join

import (
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"pathprof/join/execgraph"
)

// world is a kind of program whose shares are known: its truth is what it would
// show if it ran forever.
type world struct {
	name     string
	runs     int
	segments int
	// length of a segment is, on average, as many periods.
	length float64
	// alike is the correlation of two samples of one segment: 0 if all segments
	// have the same shares.
	alike float64
}

// shares of the functions of a world, by their index.
var shares = []float64{0.50, 0.05, 0.01, 0.44}

// run makes a recording of the world: segments of uneven length, one after
// another, a timer that starts at a random phase, and functions that take turns
// much faster than it fires.
func (w *world) run(rng *rand.Rand, stacks []*Stack) *ThreadPath {
	const period = 1_000_000
	t := &ThreadPath{Classes: []Class{{Key: ClassKey{State: execgraph.Running}}}}
	now, next := int64(0), rng.Int64N(period)
	for i := range w.segments {
		length := int64(w.length * period)
		if w.segments > 1 {
			length = int64(w.length * period * gamma(rng, 4) / 4)
		}
		p := dirichlet(rng, w.alike)
		counts := make([]int64, len(p))
		for ; next < now+length; next += period {
			counts[pick(rng, p)]++
		}
		now += length
		t.Path.Segments = append(t.Path.Segments, execgraph.Segment{State: execgraph.Running, Wait: -1})
		t.ClassOf = append(t.ClassOf, 0)
		t.fill(i, length, counts, stacks)
	}
	return t
}

// fill adds the entries of a segment on a CPU, as the joiner divides its time.
func (t *ThreadPath) fill(segment int, length int64, counts []int64, stacks []*Stack) {
	var n int64
	for _, k := range counts {
		n += k
	}
	left := length
	for f, k := range counts {
		if k > 0 {
			v := Values{Samples: k, PathNs: length * k / n}
			left -= v.PathNs
			t.Entries = append(t.Entries, Entry{Stack: stacks[f], Segment: segment, Values: v})
		}
	}
	if n == 0 {
		t.Entries = append(t.Entries, Entry{Stack: stacks[len(stacks)-1], Segment: segment, Values: Values{PathNs: left}})
	} else {
		t.Entries[len(t.Entries)-1].Values.PathNs += left
	}
	c := &t.Classes[0]
	c.Ns += length
	c.Segments++
	c.Samples += n
}

// worldStacks are one stack for each function, and one without any.
func worldStacks() []*Stack {
	var out []*Stack
	for i := range shares {
		out = append(out, &Stack{Frames: []Frame{{Name: string(rune('a' + i)), Kind: KindPython, Line: int32(i)}}})
	}
	return append(out, &Stack{Frames: []Frame{{Name: unsampled, Kind: KindPathprof}}})
}

// pick draws a function by its share.
func pick(rng *rand.Rand, p []float64) int {
	u := rng.Float64()
	for i, share := range p {
		if u -= share; u < 0 {
			return i
		}
	}
	return len(p) - 1
}

// dirichlet draws the shares of one segment.
func dirichlet(rng *rand.Rand, alike float64) []float64 {
	if alike == 0 {
		return shares
	}
	p := make([]float64, len(shares))
	sum := 0.0
	for i, share := range shares {
		p[i] = gamma(rng, share*(1/alike-1))
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// gamma draws from the gamma distribution (G. Marsaglia, W. Tsang, 2000).
func gamma(rng *rand.Rand, shape float64) float64 {
	if shape < 1 {
		return gamma(rng, shape+1) * math.Pow(1-rng.Float64(), 1/shape)
	}
	d := shape - 1./3
	c := 1 / math.Sqrt(9*d)
	for {
		x := rng.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v *= v * v
		if math.Log(1-rng.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// outcome counts the statements of many runs about one function.
type outcome struct{ stated, inside, timeInside, wilson int }

// TestCoverage simulates recordings of programs whose shares are known. Of the
// intervals that are stated, 93 to 97 % have to hold the truth, of shares and of
// times, whether a class has one segment or many, and however much these differ.
// With PATHPROF_FULL it simulates 10,000. Seeds are fixed.
func TestCoverage(t *testing.T) {
	worlds := []world{
		{"one segment", often(600, 4000), 1, 4000, 0},
		{"many segments, all alike", often(60, 2500), 40, 90, 0},
		{"many segments that differ", often(60, 2500), 40, 90, 0.01},
		{"many short segments that differ much", often(40, 1000), 120, 25, 0.05},
	}
	stacks := worldStacks()
	for n, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			results := make([][3]outcome, w.runs)
			_ = parallel(w.runs, runtime.GOMAXPROCS(0), func(i int) error {
				rng := rand.New(rand.NewPCG(uint64(n), uint64(i)))
				c := w.run(rng, stacks).Pool([][]int{{0}})[0]
				for _, f := range c.Functions {
					if f.Name == "d" {
						continue
					}
					results[i][f.Name[0]-'a'].count(&f.Estimate, shares[f.Name[0]-'a'], c.Ns, c.Samples)
				}
				return nil
			})
			for f := range 3 {
				var sum outcome
				for _, r := range results {
					sum.stated += r[f].stated
					sum.inside += r[f].inside
					sum.timeInside += r[f].timeInside
					sum.wilson += r[f].wilson
				}
				sum.judge(t, shares[f], &w)
			}
		})
	}
}

// count takes one statement into account.
func (o *outcome) count(e *Estimate, truth float64, ns, n int64) {
	if e.TooFew {
		return
	}
	o.stated++
	if e.Low <= truth && truth <= e.High {
		o.inside++
	}
	if time := truth * float64(ns); float64(e.NsLow) <= time && time <= float64(e.NsHigh) {
		o.timeInside++
	}
	if low, high := Wilson(e.Samples, n); low <= truth && truth <= high {
		o.wilson++
	}
}

// full tells whether simulations are to have all their runs; by default they have
// few, which the race detector makes slow enough.
var full = os.Getenv("PATHPROF_FULL") != ""

// often is how many runs a simulation makes.
func often(few, all int) int {
	if full {
		return all
	}
	return few
}

// leastRate is the bound of a rate that is to be at least so high, seen in n runs:
// few of them may miss it by three and a half standard errors, which is no chance.
func leastRate(rate float64, n int) float64 {
	if full {
		return rate
	}
	return rate - 3.5*math.Sqrt(rate*(1-rate)/float64(n))
}

// mostRate is the same of a rate that is to be at most so high.
func mostRate(rate float64, n int) float64 { return 1 - leastRate(1-rate, n) }

// judge holds what many runs stated against the bounds.
func (o *outcome) judge(t *testing.T, truth float64, w *world) {
	t.Helper()
	if o.stated < w.runs*9/10 {
		t.Errorf("%g %%: only %d of %d runs say anything", 100*truth, o.stated, w.runs)
	}
	rate := func(n int) float64 { return float64(n) / float64(o.stated) }
	t.Logf("%2g %%: %d stated, coverage of shares %.3f, of times %.3f; Wilson's alone %.3f",
		100*truth, o.stated, rate(o.inside), rate(o.timeInside), rate(o.wilson))
	low, high := leastRate(0.93, o.stated), mostRate(0.97, o.stated)
	for _, c := range []float64{rate(o.inside), rate(o.timeInside)} {
		if c < low || c > high {
			t.Errorf("%g %%: coverage %.3f, want %.3f to %.3f", 100*truth, c, low, high)
		}
	}
	if w.alike > 0 && rate(o.wilson) > 0.9 {
		t.Errorf("%g %%: Wilson's interval alone holds %.3f: the segments do not differ, so this test shows nothing",
			100*truth, rate(o.wilson))
	}
}
