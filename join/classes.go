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
	}
	c.classes[i].Ns += length
	c.classes[i].Segments++
	return i
}

// add counts one entry of a class.
func (c *classifier) add(i int, e Entry) {
	class := &c.classes[i]
	class.Samples += e.Values.Samples
	if e.Status != StatusUnknown {
		class.Status = addStatus(class.Status, e.Status, e.Values)
	}
	if e.Values.Samples == 0 && onCPU(class.Key.State) {
		class.Unsampled += e.Values.PathNs
	}
}

// finish puts the classes into the path, most time first, the earlier on the
// path of equals first, with their functions.
func (c *classifier) finish(path *ThreadPath, loss lossRule, workers int) {
	order := make([]int, len(c.classes))
	for i := range c.classes {
		class := &c.classes[i]
		order[i] = i
		if c.wall > 0 {
			class.Share = float64(class.Ns) / float64(c.wall)
		}
		sortStatus(class.Status)
		if onCPU(class.Key.State) {
			class.Doubt.Lost = loss.in(class.Ns, class.Samples)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(c.classes[b].Ns, c.classes[a].Ns) })
	place := make([]int, len(order))
	path.Classes = make([]Class, len(order))
	for to, from := range order {
		path.Classes[to] = c.classes[from]
		place[from] = to
	}
	groups := make([][]int, len(order))
	for i, class := range path.ClassOf {
		path.ClassOf[i] = place[class]
	}
	for i := range groups {
		groups[i] = []int{i}
	}
	path.judge(path.Classes, groups, workers)
}

// Pool returns classes that hold groups of the path's classes, by their indices,
// together: sums, and shares with the intervals of all samples of the group. The
// keys are those of the groups' first. A class is in one group at most.
func (t *ThreadPath) Pool(groups [][]int) []Class {
	out := make([]Class, len(groups))
	for i, group := range groups {
		sum := &out[i]
		for _, c := range group {
			class := &t.Classes[c]
			if c == group[0] {
				sum.Key = class.Key
			}
			sum.Ns += class.Ns
			sum.Share += class.Share
			sum.Segments += class.Segments
			sum.Samples += class.Samples
			for _, s := range class.Status {
				sum.Status = addStatus(sum.Status, s.Status, Values{Samples: s.Samples, PathNs: s.Ns})
			}
			sum.Unsampled += class.Unsampled
			sum.Doubt.Lost += class.Doubt.Lost
		}
	}
	t.judge(out, groups, 1)
	return out
}

// judge fills in functions and lines of classes that hold these groups.
func (t *ThreadPath) judge(classes []Class, groups [][]int, workers int) {
	all := t.gather(groups)
	_ = parallel(len(all), workers, func(i int) error {
		c, e := &classes[i], all[i]
		if onCPU(c.Key.State) {
			c.Clusters = len(e.blocks)
			c.Doubt.Unknown = unknownTops(e.stacks)
			c.Functions = e.functions(c)
			if t.lines {
				c.Lines = e.lines(c)
			}
			return nil
		}
		c.Functions = waitFunctions(e.stacks, c.Ns)
		if t.lines {
			c.Lines = waitLines(e.stacks, c.Ns)
		}
		return nil
	})
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
// the innermost of all; nil if the stack has no code, or the time is tracing's.
func top(s *Stack) *Frame {
	var inner *Frame
	if s.tracing {
		return nil
	}
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
