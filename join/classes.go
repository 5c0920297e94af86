// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"math"
	"slices"
)

// classifier groups the segments of one path and sums up what lies on them.
type classifier struct {
	wall    int64
	byKey   map[ClassKey]int
	classes []Class
	stacks  []map[*Stack]Values // per class
}

func newClassifier(wall int64) *classifier {
	return &classifier{wall: wall, byKey: make(map[ClassKey]int)}
}

// index returns the number of a segment's class and adds its length to it.
func (c *classifier) index(key ClassKey, length int64) int {
	i, ok := c.byKey[key]
	if !ok {
		i = len(c.classes)
		c.byKey[key] = i
		c.classes = append(c.classes, Class{Key: key})
		c.stacks = append(c.stacks, make(map[*Stack]Values))
	}
	c.classes[i].Ns += length
	c.classes[i].Segments++
	return i
}

// add counts one entry of a class.
func (c *classifier) add(i int, e Entry) {
	class := &c.classes[i]
	class.Samples += e.Values.Samples
	if e.Values.Samples == 0 && onCPU(class.Key.State) {
		class.Unsampled += e.Values.PathNs
		return
	}
	v := c.stacks[i][e.Stack]
	v.Samples += e.Values.Samples
	v.PathNs += e.Values.PathNs
	c.stacks[i][e.Stack] = v
}

// finish puts the classes into the path, most time first, the earlier on the
// path of equals first, with their functions.
func (c *classifier) finish(path *ThreadPath, loss lossRule) {
	order := make([]int, len(c.classes))
	for i := range c.classes {
		class := &c.classes[i]
		order[i] = i
		if c.wall > 0 {
			class.Share = float64(class.Ns) / float64(c.wall)
		}
		if onCPU(class.Key.State) {
			class.Doubt.Lost = loss.in(class.Ns, class.Samples)
			class.Functions = sampledFunctions(c.stacks[i], class)
		} else {
			class.Functions = waitFunctions(c.stacks[i], class.Ns)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.classes[b].Ns, c.classes[a].Ns) })
	place := make([]int, len(order))
	path.Classes = make([]Class, len(order))
	for to, from := range order {
		path.Classes[to] = c.classes[from]
		place[from] = to
	}
	for i, class := range path.ClassOf {
		path.ClassOf[i] = place[class]
	}
}

// lossRule says how many samples a class may have lost.
type lossRule struct {
	lost      int64   // samples the recording lost, of all CPUs and tasks
	samples   int64   // samples it kept
	period    float64 // ns of CPU time between samples; 0: not related to time
	throttled bool    // the kernel stopped a counter, and says not for how long
}

// maxRoom keeps counts of a damaged recording within an int64.
const maxRoom = 1 << 50

// in bounds the samples lost of a class that kept n in ns on a CPU. With a clock
// event no more can be missing than its time has room for: what was lost
// elsewhere does not make this class less certain. Throttled samples are counted
// by nobody, so the room is all that is known. Other events have no such bound;
// their losses count in proportion.
func (l lossRule) in(ns, n int64) int64 {
	switch {
	case l.lost <= 0 && !l.throttled:
		return 0
	case l.period > 0:
		room := max(int64(min(math.Ceil(float64(ns)/l.period), maxRoom))-n, 0)
		if l.throttled {
			return room
		}
		return min(room, l.lost)
	case l.lost > 0 && l.samples > 0:
		return int64(min(math.Ceil(float64(l.lost)*float64(n)/float64(l.samples)), maxRoom))
	}
	return 0
}

// functionKey is a function as people know it. Two code objects of the same
// name, file and first line are the same function.
type functionKey struct {
	name, file string
	line       int32
	kind       string
}

func keyOf(f *Frame) functionKey {
	return functionKey{f.Name, or(f.File, f.Mapping), f.FirstLine, f.Kind}
}

// top is the frame a stack's time belongs to: the innermost Python frame, else
// the innermost of all; nil if the stack has no code.
func top(s *Stack) *Frame {
	var inner *Frame
	for i := range s.Frames {
		f := &s.Frames[i]
		if f.Kind == KindPython {
			return f
		}
		if inner == nil && f.Kind != KindPathprof {
			inner = f
		}
	}
	return inner
}

// waitTop is top for a wait: without Python frames the innermost native one,
// because in the kernel every wait ends in the same schedule().
func waitTop(s *Stack) *Frame {
	f := top(s)
	if f == nil || f.Kind != KindKernel {
		return f
	}
	for i := range s.Frames {
		if s.Frames[i].Kind == KindNative {
			return &s.Frames[i]
		}
	}
	return f
}

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

// sampledFunctions are the functions of a class on a CPU, with intervals.
func sampledFunctions(stacks map[*Stack]Values, class *Class) []Function {
	n := class.Samples
	class.Doubt.Unknown = unknownTops(stacks)
	sums := tallies(stacks, top, func(v Values) int64 { return v.Samples })
	var out []Function
	for k, t := range sums {
		if !listed(k, t) {
			continue
		}
		f := k.function(float64(t.self)/float64(n), float64(t.total)/float64(n))
		f.Samples = t.self
		f.Low, f.High = Interval(t.self, n, class.Doubt)
		f.TooFew = TooFew(t.self, n)
		out = append(out, f)
	}
	sortFunctions(out)
	return out
}

// unknownTops counts the samples whose Python function is not known. A missing
// thread state is such a doubt only where the same task does run Python at other
// times; else it is a thread of a C library.
func unknownTops(stacks map[*Stack]Values) int64 {
	var unreadable, stateless int64
	python := false
	for s, v := range stacks {
		switch s.missing {
		case missingTop:
			unreadable += v.Samples
		case missingThread:
			stateless += v.Samples
		}
		if f := top(s); f != nil && f.Kind == KindPython {
			python = true
		}
	}
	if python {
		return unreadable + stateless
	}
	return unreadable
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
		f := k.function(float64(t.self)/float64(ns), float64(t.total)/float64(ns))
		f.Low, f.High = f.Share, f.Share
		out = append(out, f)
	}
	sortFunctions(out)
	return out
}

func (k functionKey) function(share, total float64) Function {
	return Function{Name: k.name, File: k.file, Line: k.line, Kind: k.kind, Share: share, TotalShare: total}
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
