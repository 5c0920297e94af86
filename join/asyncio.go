// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"slices"
	"strings"

	"pathprof/join/execgraph"
)

// LoopTask is what an event loop's thread did for one coroutine (or callback): the
// outermost function below the loop's own. Tasks of the same coroutine are one.
type LoopTask struct {
	Name string `json:"name"` // qualified from 3.11 on
	File string `json:"file"`
	Line int32  `json:"line"` // first line
	// Ns of the path in which it had the loop, so that the others waited;
	// LongestNs without anybody else between.
	Ns        int64 `json:"ns"`
	LongestNs int64 `json:"longest_ns"`
	Samples   int64 `json:"samples"`
}

// loopFrame finds the function that an event loop runs in a stack: below
// Handle._run (asyncio/events.py, 3.8–3.13), without asyncio's own frames.
func loopFrame(s *Stack) *Frame {
	var found *Frame
	for i := range s.Frames { // innermost first
		f := &s.Frames[i]
		if f.Kind != KindPython {
			continue
		}
		if strings.HasSuffix(f.File, "/asyncio/events.py") && (f.Name == "Handle._run" || f.Name == "_run") {
			return found
		}
		if !strings.Contains(f.File, "/asyncio/") {
			found = f
		}
	}
	return nil
}

// loopKey tells coroutines apart.
type loopKey struct {
	name, file string
	line       int32
}

// loopClock sums up what a loop's thread did for whom.
type loopClock struct {
	tasks   map[loopKey]*LoopTask
	current *LoopTask // who has the loop
	since   int64     // ns that it had it
	sure    bool      // it has had it at the last sample
	lost    int64     // ns since then, in which the thread lost its CPU
}

// note adds an entry of the target's own time, in the order of the path.
func (c *loopClock) note(s *Stack, v Values, own bool) {
	f := loopFrame(s)
	if f == nil {
		c.sure = false
		if own && !isUnsampled(s) {
			c.current, c.since, c.lost = nil, 0, 0
		}
		return
	}
	k := loopKey{f.Name, f.File, f.FirstLine}
	t := c.tasks[k]
	if t == nil {
		t = &LoopTask{Name: f.Name, File: f.File, Line: f.FirstLine}
		c.tasks[k] = t
	}
	if c.current != t {
		c.current, c.since, c.lost = t, 0, 0
	}
	c.since += c.lost + v.PathNs
	t.Ns += c.lost + v.PathNs
	c.lost, c.sure = 0, v.Samples > 0
	t.Samples += v.Samples
	t.LongestNs = max(t.LongestNs, c.since)
}

// keep notes time for which the thread lost its CPU. It is whose turn it was at the
// last sample. If the thread ran since, without one, it is his if he has the loop
// afterwards, too; else nobody knows.
func (c *loopClock) keep(ns int64) {
	if c.lost += ns; !c.sure || c.current == nil {
		return
	}
	c.since += c.lost
	c.current.Ns += c.lost
	c.current.LongestNs = max(c.current.LongestNs, c.since)
	c.lost = 0
}

// isUnsampled: time of which it is not known who had it ends nobody's turn.
func isUnsampled(s *Stack) bool { return len(s.Frames) == 1 && s.Frames[0].Kind == KindPathprof }

// list returns the tasks, most time first.
func (c *loopClock) list() []LoopTask {
	out := make([]LoopTask, 0, len(c.tasks))
	for _, t := range c.tasks {
		out = append(out, *t)
	}
	slices.SortFunc(out, func(a, b LoopTask) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return out
}

// loopStack is the stack by which a segment counts for the event loop: where the
// target stood, also while the path leads through others.
func (j *joiner) loopStack(path *execgraph.Path, seg *execgraph.Segment) *Stack {
	switch {
	case seg.Wait >= 0 && path.Waits[seg.Wait].Stack != 0:
		return j.stacks.waited(path.Waits[seg.Wait].Stack)
	case seg.Depth == 0:
		if id := j.runnableStack(seg); id != 0 {
			return j.stacks.waited(id)
		}
	}
	return nil
}
