// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Compare says what changed from a to b. Threads, classes and functions are
// matched by name; numbers of tasks are no part of a name.
func Compare(a, b *Profile, opt CompareOptions) Comparison {
	inA, cutA := sides(a)
	inB, cutB := sides(b)
	c := Comparison{
		Unit: "second", FalseDiscovery: falseDiscovery,
		A: Compared{Samples: a.Samples, Slices: cutA.n, Requests: opt.Requests[0]},
		B: Compared{Samples: b.Samples, Slices: cutB.n, Requests: opt.Requests[1]},
	}
	if opt.Requests[0] > 0 && opt.Requests[1] > 0 {
		c.Unit = "request"
	}
	for _, name := range slices.Sorted(maps.Keys(union(inA, inB))) {
		t := threadDiff(name, [2]*side{orEmpty(inA[name], cutA.n), orEmpty(inB[name], cutB.n)}, &opt)
		c.A.WallNs += t.WallNs[0]
		c.B.WallNs += t.WallNs[1]
		c.Threads = append(c.Threads, t)
	}
	slices.SortStableFunc(c.Threads, func(x, y ThreadDiff) int {
		return cmp.Compare(y.WallNs[0]+y.WallNs[1], x.WallNs[0]+x.WallNs[1])
	})
	c.correct()
	return c
}

func union[K comparable, V any](a, b map[K]V) map[K]bool {
	out := make(map[K]bool, len(a)+len(b))
	for k := range a {
		out[k] = true
	}
	for k := range b {
		out[k] = true
	}
	return out
}

// orEmpty is a side, or one without anything.
func orEmpty(s *side, n int) *side {
	if s == nil {
		return &side{whole: make([]float64, n)}
	}
	return s
}

// threadDiff compares the threads of one name.
func threadDiff(name string, s [2]*side, opt *CompareOptions) ThreadDiff {
	t := ThreadDiff{Thread: name}
	var scale [2]float64
	for i := range s {
		t.WallNs[i], t.PathCount[i] = int64(s[i].wall), s[i].paths
		scale[i] = 1e9
		if opt.Requests[0] > 0 && opt.Requests[1] > 0 {
			scale[i] = s[i].wall / float64(opt.Requests[i])
		}
	}
	type block struct {
		class     Difference
		functions []Difference
	}
	var blocks []block
	for _, k := range slices.SortedFunc(maps.Keys(union(s[0].rows, s[1].rows)), compareClasses) {
		var rows [2]*sideClass
		for i := range s {
			if rows[i] = s[i].rows[k]; rows[i] == nil {
				rows[i] = &sideClass{slices: make([]float64, len(s[i].whole))}
			}
		}
		b := block{class: classDiff(k, s, rows)}
		b.class.finish(scale)
		for _, f := range sortedFunctions(union(rows[0].functions, rows[1].functions)) {
			d := functionDiff(b.class, f, s, rows)
			d.finish(scale)
			b.functions = append(b.functions, d)
		}
		slices.SortStableFunc(b.functions, byChange)
		blocks = append(blocks, b)
	}
	slices.SortStableFunc(blocks, func(x, y block) int { return byChange(x.class, y.class) })
	for _, b := range blocks {
		t.Rows = append(append(t.Rows, b.class), b.functions...)
	}
	return t
}

// byChange puts the largest change of time first.
func byChange(a, b Difference) int {
	return cmp.Compare(math.Abs(b.Time.By), math.Abs(a.Time.By))
}

func sortedFunctions(set map[functionKey]bool) []functionKey {
	return slices.SortedFunc(maps.Keys(set), func(a, b functionKey) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.file, b.file), cmp.Compare(a.line, b.line), cmp.Compare(a.kind, b.kind))
	})
}

// classDiff is a class on both sides: its time is measured.
func classDiff(k diffClass, s [2]*side, rows [2]*sideClass) Difference {
	d := Difference{Wait: k.wait, State: k.state, Cause: k.cause, Task: k.task}
	for i, r := range rows {
		d.Ns[i], d.Samples[i] = r.ns, r.samples
		d.spread[i] = rate(r.slices, s[i].whole, s[i].wall, 0, 0, 0)
		d.Share[i] = d.spread[i].share
		if r.ns > 0 {
			d.class = r.state
		}
	}
	return d
}

// functionDiff is a function of a class on both sides.
func functionDiff(class Difference, k functionKey, s [2]*side, rows [2]*sideClass) Difference {
	d := Difference{Wait: class.Wait, State: class.State, Cause: class.Cause, Task: class.Task, class: class.class}
	d.Function, d.File, d.Line, d.Kind = k.name, k.file, k.line, k.kind
	few := 0
	var shares [2]Estimate
	for i, r := range rows {
		f := r.functions[k]
		if f == nil {
			f = &sideFunction{slices: make([]float64, len(s[i].whole))}
			if r.samples > 0 {
				f.Low, f.High = Wilson(0, r.samples)
			}
		}
		shares[i] = f.Estimate
		d.Ns[i], d.Samples[i], d.Share[i] = f.Ns, f.Samples, f.Share
		d.spread[i] = rate(scaled(f.slices, f.Ns), s[i].whole, s[i].wall, float64(r.ns), f.Samples, r.samples)
		if onCPU(class.class) && (f.TooFew || f.Samples == 0) {
			few++
		}
	}
	d.TooFew = few == 2
	d.Points.By = d.Share[1] - d.Share[0]
	if onCPU(class.class) && rows[0].samples > 0 && rows[1].samples > 0 {
		low, high := newcombe(shares)
		d.Points.Low, d.Points.High = &low, &high
	}
	return d
}

// newcombe is the interval of a difference of two shares with intervals
// (R. G. Newcombe, 1998, method 10).
func newcombe(e [2]Estimate) (low, high float64) {
	by := e[1].Share - e[0].Share
	low = by - math.Hypot(e[1].Share-e[1].Low, e[0].High-e[0].Share)
	high = by + math.Hypot(e[1].High-e[1].Share, e[0].Share-e[0].Low)
	return max(low, -1), min(high, 1)
}

// scaled makes a list sum to a total: time without samples is not in the slices.
func scaled(list []float64, total int64) []float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	out := make([]float64, len(list))
	for i, x := range list {
		if sum > 0 {
			out[i] = x * float64(total) / sum
		}
	}
	return out
}

// finish computes the difference of times per unit; scale is ns of wall time
// in a unit.
func (d *Difference) finish(scale [2]float64) {
	var variance, freedom float64
	known, samples := true, true
	for i := range d.spread {
		e := &d.spread[i]
		d.PerUnit[i] = e.share * scale[i]
		v := math.Pow(e.error*scale[i], 2)
		variance += v
		freedom += v * v / e.freedom
		known = known && (e.known || d.Ns[i] == 0)
		samples = samples && math.IsInf(e.freedom, 1)
	}
	d.Time.By = d.PerUnit[1] - d.PerUnit[0]
	if d.Function == "" {
		d.Points.By = d.Share[1] - d.Share[0]
	}
	d.Method = DiffSlices
	switch {
	case !known || variance == 0:
		d.Method = DiffNone
		return
	case samples:
		d.Method = DiffSamples
	}
	// B. L. Welch (1947).
	t := student(variance * variance / freedom)
	half := t.Quantile(0.975) * math.Sqrt(variance)
	low, high := d.Time.By-half, d.Time.By+half
	d.Time.Low, d.Time.High = &low, &high
	if d.Function == "" && scale[0] == scale[1] {
		l, h := low/scale[0], high/scale[0]
		d.Points.Low, d.Points.High = &l, &h
	}
	if !d.TooFew {
		p := 2 * t.CDF(-math.Abs(d.Time.By)/math.Sqrt(variance))
		d.P = &p
	}
}

// student is Student's distribution; with so many degrees of freedom nothing
// tells it from the normal one.
func student(freedom float64) distuv.StudentsT {
	if math.IsNaN(freedom) || freedom > 1e6 {
		freedom = 1e6
	}
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: max(freedom, 1)}
}

// correct judges all differences at once: among those it calls significant no
// more than falseDiscovery are expected to be chance (Y. Benjamini and Y. Hochberg, 1995).
func (c *Comparison) correct() {
	var tested []*Difference
	for i := range c.Threads {
		for j := range c.Threads[i].Rows {
			if d := &c.Threads[i].Rows[j]; d.P != nil {
				tested = append(tested, d)
			}
		}
	}
	slices.SortStableFunc(tested, func(a, b *Difference) int { return cmp.Compare(*a.P, *b.P) })
	c.Tested = len(tested)
	m, least, found := float64(len(tested)), 1.0, 0
	for i := len(tested) - 1; i >= 0; i-- {
		least = min(least, *tested[i].P*m/float64(i+1))
		q := least
		tested[i].Q = &q
		if q <= falseDiscovery && found == 0 {
			found = i + 1
		}
		tested[i].Significant = q <= falseDiscovery
	}
	for _, d := range tested {
		if *d.Time.High > *d.Time.Low {
			d.detect(falseDiscovery * min(float64(found+1), m) / m)
		}
	}
}

// detect says which difference is found four times of five, where one is called
// significant at that level.
func (d *Difference) detect(level float64) {
	error := (*d.Time.High - *d.Time.Low) / 2 / z95
	normal := distuv.UnitNormal
	by := error * (normal.Quantile(1-level/2) + normal.Quantile(0.8))
	d.Detectable = &by
}
