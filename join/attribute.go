// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"math/bits"
	"slices"
	"sort"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// unsampled holds the time of running segments between two samples.
const unsampled = "[unsampled]"

// joiner lays samples and waits on the segments of paths. It is read-only while
// paths are joined, so that several can be at the same time.
type joiner struct {
	names   *names
	graph   *execgraph.Graph
	stacks  *stackSet
	samples map[sched.TaskID][]recording.Sample // in time order
	targets map[int32]bool                      // process numbers
	python  map[int32]bool                      // those that run it, or may
	begin   int64                               // of the recording
	thinned bool                                // some blocked stacks were left out
	loss    lossRule
	lines   bool // lines are wanted, too
	workers int  // for one path
}

// span is samples[task][lo:hi], as it was laid on a segment.
type span struct {
	task   sched.TaskID
	lo, hi int
}

// joined is one thread's path and what was used for it.
type joined struct {
	path  ThreadPath
	spans []span
	// outside and off count samples of the thread itself that lie outside the
	// window, and within it where the graph does not have the thread on a CPU.
	outside, off int64
}

// join lays everything on one path. It returns an error where the path does not
// tile its window, so that no output can hold time that was not there.
func (j *joiner) join(path execgraph.Path) (joined, error) {
	if err := tiles(&path); err != nil {
		return joined{}, fmt.Errorf("path of %s: %w", j.names.label(path.Target), err)
	}
	out := joined{path: ThreadPath{
		Thread:  j.names.of(path.Target),
		Path:    path,
		ClassOf: make([]int, len(path.Segments)),
		lines:   j.lines,
		Entries: make([]Entry, 0, len(path.Segments)),
	}}
	classes := newClassifier(path.End - path.Begin)
	o := newOverlay(j, &path)
	out.path.Waits = o.waits
	ends, own := j.lay(&out, o)
	var sum int64
	for i, polling := range busy(&path, out.path.Entries, ends) {
		seg := &path.Segments[i]
		c := classes.index(o.key(&path, seg, polling), seg.End-seg.Begin)
		out.path.ClassOf[i] = c
		for _, e := range out.path.Entries[first(ends, i):ends[i]] {
			classes.add(c, e)
			sum += e.Values.PathNs
		}
	}
	if sum != path.End-path.Begin {
		return joined{}, fmt.Errorf("path of %s: segments hold %d ns of a window of %d ns",
			j.names.label(path.Target), sum, path.End-path.Begin)
	}
	out.path.Modes, out.path.Loop = o.modes.shares(), o.loop.list()
	for _, m := range out.path.Modes {
		sum -= m.Ns
	}
	if sum != 0 {
		return joined{}, fmt.Errorf("path of %s: modes miss %d ns of %d ns", j.names.label(path.Target), sum, path.End-path.Begin)
	}
	mine := j.samples[path.Target]
	inside := int64(indexAt(mine, path.End) - indexAt(mine, path.Begin))
	out.outside, out.off = int64(len(mine))-inside, inside-own
	classes.finish(&out.path, j.loss, max(j.workers, 1))
	return out, nil
}

// lay makes the entries of a path: those of segment i end at ends[i]. own counts the
// samples of the target's.
func (j *joiner) lay(out *joined, o *overlay) (ends []int, own int64) {
	path := &out.path.Path
	ends = make([]int, len(path.Segments))
	for i := range path.Segments {
		seg := &path.Segments[i]
		var s span
		if onCPU(seg.State) {
			s = j.within(seg)
			if s.hi > s.lo {
				out.spans = append(out.spans, s)
			}
			if seg.Task == path.Target {
				own += int64(s.hi - s.lo)
			}
			out.path.Entries = j.divide(out.path.Entries, i, seg, s)
		} else {
			out.path.Entries = append(out.path.Entries, Entry{
				Stack: j.waitStack(seg), Segment: i, Values: Values{PathNs: seg.End - seg.Begin},
			})
		}
		o.lay(path, seg, s, out.path.Entries[first(ends, i):])
		ends[i] = len(out.path.Entries)
	}
	return ends, own
}

// first is where the entries of segment i begin, if those of each end at ends.
func first(ends []int, i int) int {
	if i == 0 {
		return 0
	}
	return ends[i-1]
}

// tiles checks that segments follow each other without gap or overlap from the
// window's begin to its end.
func tiles(path *execgraph.Path) error {
	at := path.Begin
	for i := range path.Segments {
		seg := &path.Segments[i]
		if seg.Begin != at || seg.End <= seg.Begin {
			return fmt.Errorf("segment %d is [%d, %d) after %d", i, seg.Begin, seg.End, at)
		}
		at = seg.End
	}
	if at != path.End {
		return fmt.Errorf("segments end at %d, the window at %d", at, path.End)
	}
	return nil
}

// onCPU tells whether a task in this state can be sampled. What a CPU does for
// an interrupt is a sample of the task it interrupted.
func onCPU(s execgraph.State) bool {
	return s == execgraph.Running || s == execgraph.Interrupted
}

// within finds the samples of a segment's task inside the segment.
func (j *joiner) within(seg *execgraph.Segment) span {
	list := j.samples[seg.Task]
	return span{task: seg.Task, lo: indexAt(list, seg.Begin), hi: indexAt(list, seg.End)}
}

// indexAt is the index of the first sample at or after t.
func indexAt(list []recording.Sample, t int64) int {
	return sort.Search(len(list), func(i int) bool { return list[i].Time >= t })
}

// divide appends the entries of a segment on a CPU: its samples, one entry for
// each stack, with its time divided over them.
func (j *joiner) divide(out []Entry, segment int, seg *execgraph.Segment, s span) []Entry {
	length := seg.End - seg.Begin
	if s.lo == s.hi {
		return append(out, Entry{
			Stack: j.stacks.with(unsampled, 0), Segment: segment, Values: Values{PathNs: length},
		})
	}
	list := j.samples[s.task][s.lo:s.hi]
	parts := shareOut(length, weights(list))
	type key struct {
		stack  *Stack
		status Status
	}
	at := make(map[key]int, 8)
	for i := range list {
		st := j.sampleStack(&list[i])
		k := key{st, statusOf(&list[i], st)}
		e, ok := at[k]
		if !ok {
			e = len(out)
			at[k] = e
			out = append(out, Entry{Stack: st, Segment: segment, Status: k.status})
		}
		v := &out[e].Values
		v.Samples++
		v.Event += list[i].Value
		v.PathNs += parts[i]
	}
	return out
}

func (j *joiner) sampleStack(s *recording.Sample) *Stack {
	if s.Stack == 0 {
		return j.stacks.none("not taken")
	}
	return j.stacks.get(s.Stack)
}

// waitStack is the stack of a segment off the CPU: where its task blocked, or a
// frame that says why that is not known.
func (j *joiner) waitStack(seg *execgraph.Segment) *Stack {
	switch seg.State {
	case execgraph.Preempted:
		by := "[preempted by " + j.names.reason(seg.Cause).Detail + "]"
		if seg.Cause.Kind != execgraph.CauseTask {
			by = "[preempted: " + or(j.names.reason(seg.Cause).Detail, "by whom is unknown") + "]"
		}
		return j.stacks.with(by, j.runnableStack(seg))
	case execgraph.Blocked:
		if seg.Stack != 0 {
			return j.stacks.waited(seg.Stack)
		}
		return j.stacks.none(j.whyNoStack(seg))
	}
	return j.stacks.with("[unknown: "+or(seg.Cause.Why, "not recorded")+"]", seg.Stack)
}

// runnableStack is the stack of a task that waits for a CPU, 0 if it is not known.
// One that was woken and did not run since still stands where it blocked.
func (j *joiner) runnableStack(seg *execgraph.Segment) uint32 {
	if seg.Stack != 0 || j.graph == nil {
		return seg.Stack
	}
	// The path cuts such an interval by who has the CPU; the graph has it whole.
	runnable, ok := j.graph.StateAt(seg.Task, seg.Begin)
	if !ok || runnable.State != execgraph.Preempted {
		return 0
	}
	before, ok := j.graph.StateAt(seg.Task, runnable.Begin-1)
	if !ok || before.State != execgraph.Blocked {
		return 0
	}
	return before.Stack
}

// whyNoStack says why a blocked segment has no stack, as far as that is known:
// only threads of targets leave one, at the moment they block.
func (j *joiner) whyNoStack(seg *execgraph.Segment) string {
	switch {
	case !j.targets[j.names.of(seg.Task).PID]:
		return "not a thread of the target"
	case seg.Begin <= j.begin:
		return "blocked before the recording began"
	case j.thinned:
		return StopWords(recording.StopThinned)
	}
	return "not taken"
}

// weights are what a segment's time is divided by: what each sample stands for.
// With a fixed period that is the same for all. Values that are no weights (a
// damaged recording) count as equal.
func weights(list []recording.Sample) []int64 {
	w := make([]int64, len(list))
	var sum int64
	for i := range list {
		w[i] = list[i].Value
		sum += w[i]
		if w[i] <= 0 || sum <= 0 {
			for i := range w {
				w[i] = 1
			}
			break
		}
	}
	return w
}

// shareOut divides total by weights into integers that sum to it exactly: the
// parts are rounded down, and what remains goes to the largest remainders, the
// earlier of equals first. Weights are positive and their sum fits an int64.
func shareOut(total int64, weights []int64) []int64 {
	var sum uint64
	for _, w := range weights {
		sum += uint64(w)
	}
	parts := make([]int64, len(weights))
	rest := make([]uint64, len(weights))
	left := total
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(total), uint64(w))
		var q uint64
		q, rest[i] = bits.Div64(hi, lo, sum)
		parts[i] = int64(q)
		left -= int64(q)
	}
	order := make([]int, len(weights))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case rest[a] > rest[b]:
			return -1
		case rest[a] < rest[b]:
			return 1
		}
		return 0
	})
	for _, i := range order[:left] {
		parts[i]++
	}
	return parts
}
