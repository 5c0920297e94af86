// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"maps"
	"math"
	"regexp"
	"slices"

	"pathprof/join/execgraph"
)

// Comparison says what changed from one profile to another. It is the JSON
// contract of `pathprof diff --json`: fields are added, never renamed. Times per
// unit are ns per second of wall time, or per request.
type Comparison struct {
	Unit    string       `json:"unit"` // second or request
	A       Compared     `json:"a"`
	B       Compared     `json:"b"`
	Threads []ThreadDiff `json:"threads"` // most wall time first
	// Tested is how many differences were tested at once; of those called
	// significant no more than FalseDiscovery are expected to be chance.
	Tested         int     `json:"tested"`
	FalseDiscovery float64 `json:"false_discovery_rate"`
}

// Compared is one side of a comparison.
type Compared struct {
	WallNs  int64 `json:"wall_ns"` // of all its paths
	Samples int64 `json:"samples"`
	// Slices of time that were taken as independent of each other; 1: the
	// profile does not know when things happened.
	Slices   int   `json:"slices"`
	Requests int64 `json:"requests,omitempty"`
}

// ThreadDiff is what changed on the paths of threads of one name.
type ThreadDiff struct {
	Thread string `json:"thread"`
	// WallNs and PathCount of A and B.
	WallNs    [2]int64     `json:"wall_ns"`
	PathCount [2]int       `json:"paths"`
	Rows      []Difference `json:"differences"` // classes, each followed by its functions
}

// Difference is one class, or one function within a class, on both sides.
type Difference struct {
	Wait  string `json:"wait"` // empty: not within a wait of the target
	State string `json:"state"`
	Cause string `json:"cause"`
	Task  string `json:"task"`
	// Function is empty for the class itself.
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int32  `json:"line"`
	Kind     string `json:"kind"`

	Ns      [2]int64 `json:"ns"`      // in A and B
	Samples [2]int64 `json:"samples"` // 0 where time is measured
	// Share of the class' samples, of the wall time for a class itself; Points is
	// the difference of both, with its 95 % interval.
	Share  [2]float64 `json:"share"`
	Points Change     `json:"share_change"`
	// PerUnit is ns per second or request; Time is the difference.
	PerUnit [2]float64 `json:"per_unit_ns"`
	Time    Change     `json:"change"`
	// P is the probability of such a difference of times by chance, Q the same
	// corrected for all that were tested. Nil: not tested.
	P           *float64 `json:"p"`
	Q           *float64 `json:"q"`
	Significant bool     `json:"significant"`
	// Detectable is the difference of times that would have been found four times of
	// five. Nil if that is not known.
	Detectable *float64   `json:"detectable"`
	TooFew     bool       `json:"too_few,omitempty"`
	Method     DiffMethod `json:"method"`
	class      execgraph.State
	spread     [2]rateError
}

// Change is B less A, with its 95 % interval; nil ends are not known.
type Change struct {
	By   float64  `json:"by"`
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// DiffMethod says what an interval of a difference rests on.
type DiffMethod string

// The methods.
const (
	// DiffSlices: Welch's t-test over slices of time, never narrower than chance.
	DiffSlices DiffMethod = "time-slices"
	// DiffSamples: the chance of so few samples, because it is larger than what
	// slices show, or because when they were taken is not known. Then it is not known
	// either how much the program varies by itself.
	DiffSamples DiffMethod = "samples"
	// DiffNone: nothing tells.
	DiffNone DiffMethod = "none"
)

// CompareOptions of [Compare]; the zero value compares seconds.
type CompareOptions struct {
	// Requests that A and B served: compare time per request. 0: not known.
	Requests [2]int64
}

// timeSlices is into how many pieces a recording is cut. Few, so that what lasts
// for a while (a request, a collection of garbage) does not count many times over.
const timeSlices = 32

// falseDiscovery is the part of the significant differences that may be chance.
const falseDiscovery = 0.05

// numbered matches names of threads that only have a number.
var numbered = regexp.MustCompile(`/(tid )?\d+$`)

// plain is a task's name without what differs from start to start.
func plain(name string) string { return numbered.ReplaceAllString(name, "/…") }

// plainReason is a wait or cause without what differs from start to start.
func plainReason(r Reason) string { return plain(r.String()) }

// diffClass is a class as it is found again in another recording.
type diffClass struct {
	wait, state, cause, task string
}

func diffClassOf(k *ClassKey) diffClass {
	c := diffClass{plainReason(k.Wait), k.State.String(), plainReason(k.Cause), plain(k.Thread().String())}
	if k.State == execgraph.Preempted {
		c.cause = "" // whoever it was
	}
	return c
}

// side is one profile's threads of one name.
type side struct {
	wall  float64
	paths int
	whole []float64 // wall time by slice
	rows  map[diffClass]*sideClass
}

// sideClass is a class on one side.
type sideClass struct {
	state     execgraph.State
	ns        int64
	samples   int64
	slices    []float64 // ns
	functions map[functionKey]*sideFunction
}

// sideFunction is a function of a class on one side.
type sideFunction struct {
	Estimate
	slices []float64 // ns
}

// slicing cuts a profile's time.
type slicing struct {
	begin, end int64
	n          int
}

// sides cuts a profile into threads by name.
func sides(p *Profile) (map[string]*side, slicing) {
	cut := slicing{p.BeginNs, p.EndNs, timeSlices}
	if p.Aggregated || cut.end-cut.begin < timeSlices {
		cut.n = 1
	}
	out := make(map[string]*side)
	for i := range p.Paths {
		t := &p.Paths[i]
		name := plain(t.Thread.String())
		s := out[name]
		if s == nil {
			s = &side{whole: make([]float64, cut.n), rows: make(map[diffClass]*sideClass)}
			out[name] = s
		}
		s.paths++
		s.wall += float64(t.Path.End - t.Path.Begin)
		cut.spread(s.whole, t.Path.Begin, t.Path.End, float64(t.Path.End-t.Path.Begin))
		s.add(t, cut)
	}
	return out, cut
}

// spread lays an amount evenly over the slices that a time touches.
func (c slicing) spread(slices []float64, begin, end int64, amount float64) {
	if c.n == 1 || end <= begin {
		slices[0] += amount
		return
	}
	width := float64(c.end-c.begin) / float64(c.n)
	from, to := float64(begin-c.begin)/width, float64(end-c.begin)/width
	first, last := max(int(from), 0), min(int(to), c.n-1)
	for i := first; i <= last; i++ {
		part := min(to, float64(i+1)) - max(from, float64(i))
		slices[i] += amount * max(part, 0) / (to - from)
	}
}

// add lays a path on a side.
func (s *side) add(t *ThreadPath, cut slicing) {
	keys := make([]diffClass, len(t.Classes))
	members := make(map[diffClass][]int)
	for i := range t.Classes {
		keys[i] = diffClassOf(&t.Classes[i].Key)
		members[keys[i]] = append(members[keys[i]], i)
	}
	order := slices.SortedFunc(maps.Keys(members), compareClasses)
	groups := make([][]int, len(order))
	for i, k := range order {
		groups[i] = members[k]
	}
	for i, sum := range t.Pool(groups) {
		s.row(order[i], &sum, cut.n).pool(&sum, cut.n)
	}
	for i := range t.Path.Segments {
		seg := &t.Path.Segments[i]
		cut.spread(s.rows[keys[t.ClassOf[i]]].slices, seg.Begin, seg.End, float64(seg.End-seg.Begin))
	}
	for _, e := range t.Entries {
		seg := &t.Path.Segments[e.Segment]
		at := top
		if !onCPU(seg.State) {
			at = waitTop
		}
		if f := at(e.Stack); f != nil {
			row := s.rows[keys[t.ClassOf[e.Segment]]]
			cut.spread(row.function(keyOf(f), cut.n).slices, seg.Begin, seg.End, float64(e.Values.PathNs))
		}
	}
}

func (s *side) row(k diffClass, c *Class, n int) *sideClass {
	r := s.rows[k]
	if r == nil {
		r = &sideClass{state: c.Key.State, slices: make([]float64, n), functions: make(map[functionKey]*sideFunction)}
		s.rows[k] = r
	}
	return r
}

// pool adds a class of one path to those of others.
func (r *sideClass) pool(c *Class, n int) {
	before := r.samples
	r.ns += c.Ns
	r.samples += c.Samples
	for i := range c.Functions {
		f := &c.Functions[i]
		if f.Share == 0 {
			continue
		}
		g := r.function(functionKey{f.Name, f.File, f.Line, f.Kind}, n)
		if before == 0 {
			g.Estimate = f.Estimate
			continue
		}
		// Several paths: their samples together, as far as numbers go.
		g.Samples += f.Samples
		g.Ns += f.Ns
	}
	if before > 0 && r.samples > 0 {
		for _, f := range r.functions {
			f.Share = float64(f.Samples) / float64(r.samples)
			f.Low, f.High = Wilson(f.Samples, r.samples)
			f.TooFew = TooFew(f.Samples, r.samples)
		}
	}
}

func (r *sideClass) function(k functionKey, n int) *sideFunction {
	f := r.functions[k]
	if f == nil {
		f = &sideFunction{slices: make([]float64, n)}
		r.functions[k] = f
	}
	return f
}

func compareClasses(a, b diffClass) int {
	return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.wait, b.wait), cmp.Compare(a.state, b.state), cmp.Compare(a.cause, b.cause))
}

// rateError is how well one side knows a part of its wall time.
type rateError struct {
	share, error float64
	freedom      float64 // degrees of freedom; infinite where samples decide
	known        bool
}

// rate is the part of the wall time that slices show. Its error is never smaller
// than that of so many samples of a class; n is 0 for measured times.
func rate(part, whole []float64, wall float64, class float64, k, n int64) rateError {
	if wall <= 0 {
		return rateError{}
	}
	r := ratio{part: part, whole: whole, size: 1}
	s := r.spread()
	e := rateError{share: s.share, error: s.error, freedom: float64(len(whole) - 1), known: len(whole) > 1}
	if n > 0 {
		// A. Agresti and B. Caffo (2000): two samples more, so that none at all is no certainty.
		p := (float64(k) + 1) / (float64(n) + 2)
		chance := class / wall * math.Sqrt(p*(1-p)/float64(n))
		if chance > e.error {
			e.error, e.freedom, e.known = chance, math.Inf(1), true
		}
	}
	return e
}
