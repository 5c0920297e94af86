// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"slices"
)

// tally is a function's part of a class: samples, or ns for a wait.
type tally struct{ self, total int64 }

// tallies sums a value over functions: at the top, and anywhere.
func tallies(stacks map[*Stack]Values, at func(*Stack) *Frame, value func(Values) int64) map[functionKey]tally {
	sums := make(map[functionKey]tally)
	seen := make(map[functionKey]bool) // recursion counts once
	for s, v := range stacks {
		n := value(v)
		self := at(s)
		if self == nil {
			continue
		}
		t := sums[keyOf(self)]
		t.self += n
		sums[keyOf(self)] = t
		clear(seen)
		for i := range s.Frames {
			f := &s.Frames[i]
			k := keyOf(f)
			if f.Kind == KindPathprof || seen[k] {
				continue
			}
			seen[k] = true
			t := sums[k]
			t.total += n
			sums[k] = t
		}
	}
	return sums
}

// listed functions are those at the top, and the Python functions that called
// them: those have a share with callees only.
func listed(k functionKey, t tally) bool { return t.self > 0 || k.kind == KindPython }

// lineKey is a line of a function as people know it.
type lineKey struct {
	functionKey
	at int32
}

func lineOf(f *Frame) lineKey { return lineKey{keyOf(f), f.Line} }

// maxResampled is how many functions or lines of a class have an interval by
// resampling; those with fewer samples than these have one by the design effect.
const maxResampled = 100

// functions are those of a class on a CPU, with intervals.
func (e *evidence) functions(class *Class) []Function {
	sums := tallies(e.stacks, top, func(v Values) int64 { return v.Samples })
	selves := estimates(e, class.Doubt, keyOf)
	var out []Function
	for k, t := range sums {
		if !listed(k, t) {
			continue
		}
		f := k.function(float64(t.total) / float64(class.Samples))
		est, ok := selves[k]
		if !ok { // it only called others
			est = e.estimate(make([]float64, len(e.blocks)), class.Doubt, false)
		}
		f.Estimate = est
		out = append(out, f)
	}
	sortFunctions(out)
	return out
}

// lines are the lines of a class on a CPU that samples hit, with intervals.
func (e *evidence) lines(class *Class) []Line {
	var out []Line
	for k, est := range estimates(e, class.Doubt, lineOf) {
		out = append(out, k.line(est))
	}
	sortLines(out)
	return out
}

// estimates are those of all keys of the tops of stacks.
func estimates[K comparable](e *evidence, doubt Doubt, key func(*Frame) K) map[K]Estimate {
	samples := make(map[K][]float64)
	sum := make(map[K]float64)
	for _, h := range e.hits {
		f := top(h.stack)
		if f == nil {
			continue
		}
		k := key(f)
		if samples[k] == nil {
			samples[k] = make([]float64, len(e.blocks))
		}
		samples[k][e.in[h.unit]] += float64(h.n)
		sum[k] += float64(h.n)
	}
	least := 0.0
	if len(sum) > maxResampled {
		counts := make([]float64, 0, len(sum))
		for _, n := range sum {
			counts = append(counts, n)
		}
		slices.Sort(counts)
		least = counts[len(counts)-maxResampled] + 1
	}
	out := make(map[K]Estimate, len(samples))
	for k, list := range samples {
		out[k] = e.estimate(list, doubt, sum[k] >= least)
	}
	return out
}

// waitFunctions are the functions a class off the CPU waited in, by time. Their
// times are exact: no samples, and an interval of no width.
func waitFunctions(stacks map[*Stack]Values, ns int64) []Function {
	sums := tallies(stacks, waitTop, func(v Values) int64 { return v.PathNs })
	var out []Function
	for k, t := range sums {
		if !listed(k, t) {
			continue
		}
		f := k.function(float64(t.total) / float64(ns))
		f.Estimate = exact(t.self, ns)
		out = append(out, f)
	}
	sortFunctions(out)
	return out
}

// waitLines are the lines a class off the CPU waited in.
func waitLines(stacks map[*Stack]Values, ns int64) []Line {
	sums := make(map[lineKey]int64)
	for s, v := range stacks {
		if f := waitTop(s); f != nil {
			sums[lineOf(f)] += v.PathNs
		}
	}
	var out []Line
	for k, n := range sums {
		out = append(out, k.line(exact(n, ns)))
	}
	sortLines(out)
	return out
}

// exact is a part of a measured time.
func exact(part, whole int64) Estimate {
	share := float64(part) / float64(whole)
	return Estimate{Share: share, Low: share, High: share, Ns: part, NsLow: part, NsHigh: part, Method: MethodExact}
}

func (k functionKey) function(total float64) Function {
	return Function{Name: k.name, File: k.file, Line: k.line, Kind: k.kind, TotalShare: total}
}

func (k lineKey) line(e Estimate) Line {
	return Line{Function: k.name, File: k.file, Line: k.at, Kind: k.kind, Estimate: e}
}

// sortFunctions puts the largest share first; the order is the same each time.
func sortFunctions(list []Function) {
	slices.SortFunc(list, func(a, b Function) int {
		return cmp.Or(
			cmp.Compare(b.Share, a.Share),
			cmp.Compare(b.TotalShare, a.TotalShare),
			cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
}

// sortLines puts the largest share first; the order is the same each time.
func sortLines(list []Line) {
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(
			cmp.Compare(b.Share, a.Share),
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Function, b.Function),
			cmp.Compare(a.Kind, b.Kind),
		)
	})
}
