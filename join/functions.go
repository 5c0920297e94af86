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

// calleeKey is a native function that a Python function called.
type calleeKey struct{ caller, native functionKey }

// ofTop makes a key of the frame that a stack's time belongs to.
func ofTop[K any](key func(*Frame) K) func(*Stack) (K, bool) {
	return func(s *Stack) (k K, ok bool) {
		if f := top(s); f != nil {
			return key(f), true
		}
		return k, false
	}
}

// calleeOf is the native function that ran, or entered the kernel, for the
// innermost Python function of a stack.
func calleeOf(s *Stack) (k calleeKey, ok bool) {
	if s.tracing {
		return k, false
	}
	for i := range s.Frames {
		switch f := &s.Frames[i]; {
		case f.Kind == KindPython:
			k.caller = keyOf(f)
			return k, ok
		case f.Kind == KindNative && !ok:
			k.native, ok = keyOf(f), true
		}
	}
	return k, false
}

// maxResampled is how many functions or lines of a class have an interval by
// resampling; those with fewer samples than these have one by the design effect.
const maxResampled = 100

// functions are those of a class on a CPU, with intervals.
func (e *evidence) functions(class *Class) []Function {
	sums := tallies(e.stacks, top, func(v Values) int64 { return v.Samples })
	selves := estimates(e, class.Doubt, ofTop(keyOf))
	callees := make(map[functionKey][]Callee)
	for k, est := range estimates(e, class.Doubt, calleeOf) {
		callees[k.caller] = append(callees[k.caller], Callee{k.native.name, k.native.file, est})
	}
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
		f.Estimate, f.Native = est, callees[k]
		sortCallees(f.Native)
		out = append(out, f)
	}
	sortFunctions(out)
	return out
}

// lines are the lines of a class on a CPU that samples hit, with intervals.
func (e *evidence) lines(class *Class) []Line {
	var out []Line
	for k, est := range estimates(e, class.Doubt, ofTop(lineOf)) {
		out = append(out, k.line(est))
	}
	sortLines(out)
	return out
}

// estimates are those of all keys of stacks.
func estimates[K comparable](e *evidence, doubt Doubt, key func(*Stack) (K, bool)) map[K]Estimate {
	samples := make(map[K][]float64)
	sum := make(map[K]float64)
	for _, h := range e.hits {
		k, ok := key(h.stack)
		if !ok {
			continue
		}
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

// sortCallees puts the largest share first; the order is the same each time.
func sortCallees(list []Callee) {
	slices.SortFunc(list, func(a, b Callee) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File))
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
