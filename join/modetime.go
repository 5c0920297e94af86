// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// ModeShare is the time of a path in one mode, ns. ExtrapolatedNs of it are of
// running segments without a sample: they count as the samples of the same task in
// segments alike in length do.
type ModeShare struct {
	Mode           Mode  `json:"mode"`
	Ns             int64 `json:"ns"`
	ExtrapolatedNs int64 `json:"extrapolated_ns,omitempty"`
}

// modeClock sums up the modes of a path.
type modeClock struct {
	j      *joiner
	calls  bool // the recording says in which call a task leaves its CPU
	sums   map[Mode]*ModeShare
	tasks  map[sched.TaskID]*taskModes
	stacks map[uint32]Mode // of kernel stacks
}

func newModeClock(j *joiner) modeClock {
	return modeClock{
		j: j, calls: j.graph != nil && j.graph.TellsCalls(),
		sums: make(map[Mode]*ModeShare), tasks: make(map[sched.TaskID]*taskModes), stacks: make(map[uint32]Mode),
	}
}

func (c *modeClock) add(m Mode, ns int64) *ModeShare {
	s := c.sums[m]
	if s == nil {
		s = &ModeShare{Mode: m}
		c.sums[m] = s
	}
	s.Ns += ns
	return s
}

// minModeSamples in segments of a length are enough: segments of other lengths
// say something else, and chance evens out over the lengths.
const minModeSamples = 3

// taskModes are the samples of a task in segments of about 2^n ns, for each n.
// Short segments are the ones that have no sample, and those between two waits:
// more of them is system calls than of long ones.
type taskModes [64]struct {
	unsampled int64 // ns
	samples   map[Mode]int64
}

// running divides a segment on a CPU over the modes of its samples.
func (c *modeClock) running(seg *execgraph.Segment, s span) {
	length := seg.End - seg.Begin
	if m := c.kernelOr(seg, ModeUnknown); s.lo == s.hi && m != ModeUnknown {
		c.add(m, length)
		return
	}
	t := c.tasks[seg.Task]
	if t == nil {
		t = new(taskModes)
		c.tasks[seg.Task] = t
	}
	alike := &t[bits.Len64(uint64(length))]
	if s.lo == s.hi {
		alike.unsampled += length
		return
	}
	list := c.j.samples[s.task][s.lo:s.hi]
	parts := shareOut(length, weights(list))
	if alike.samples == nil {
		alike.samples = make(map[Mode]int64)
	}
	for i := range list {
		m := c.sampled(seg, &list[i])
		c.add(m, parts[i])
		alike.samples[m]++
	}
}

// around sums up the samples in segments of about 2^n ns, and if these are few in
// shorter and longer ones.
func (t *taskModes) around(n int, into map[Mode]int64) (samples int64) {
	take := func(i int) {
		if i < 0 || i >= len(t) {
			return
		}
		for m, k := range t[i].samples {
			into[m] += k
			samples += k
		}
	}
	take(n)
	for d := 1; d < len(t) && samples < minModeSamples; d++ {
		take(n - d)
		take(n + d)
	}
	return samples
}

// extrapolate divides the time of segments without a sample as that of segments
// alike. A task without any sample is like the others of its process.
func (c *modeClock) extrapolate() {
	for id, t := range c.tasks {
		for n := range t {
			ns := t[n].unsampled
			if ns == 0 {
				continue
			}
			all := make(map[Mode]int64)
			if t.around(n, all) == 0 {
				for other, o := range c.tasks {
					if c.j.names.of(other).PID == c.j.names.of(id).PID {
						o.around(n, all)
					}
				}
			}
			c.spread(ns, all)
		}
	}
}

// spread divides time over modes by weights.
func (c *modeClock) spread(ns int64, all map[Mode]int64) {
	if len(all) == 0 {
		c.add(ModeUnknown, ns)
		return
	}
	modes := slices.Sorted(maps.Keys(all))
	w := make([]int64, len(modes))
	for i, m := range modes {
		w[i] = all[m]
	}
	for i, part := range shareOut(ns, w) {
		c.add(modes[i], part).ExtrapolatedNs += part
	}
}

// shares lists the modes, most time first.
func (c *modeClock) shares() []ModeShare {
	c.extrapolate()
	out := make([]ModeShare, 0, len(c.sums))
	for _, s := range c.sums {
		if s.Ns > 0 {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b ModeShare) int { return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Mode, b.Mode)) })
	return out
}
