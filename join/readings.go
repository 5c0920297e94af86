// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"slices"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// ReadingShare is the time that a path leads through one task in one state, in both
// readings of it (see execgraph): of the whole window, and causal.
type ReadingShare struct {
	Thread ThreadInfo
	State  execgraph.State
	// Cause of a wait or of what is unknown; a task that runs or wants to has none.
	Cause             Reason
	WholeNs, CausalNs int64
}

// compare sums up two readings of a path, most time first.
func (n *names) compare(whole, causal *execgraph.Path) []ReadingShare {
	type key struct {
		task  sched.TaskID
		state execgraph.State
		cause Reason
	}
	at := make(map[key]int)
	words := make(map[execgraph.Cause]Reason)
	var out []ReadingShare
	share := func(s *execgraph.Segment) *ReadingShare {
		k := key{task: s.Task, state: s.State}
		if s.State != execgraph.Preempted {
			cause, ok := words[s.Cause]
			if !ok {
				cause = n.reason(s.Cause)
				words[s.Cause] = cause
			}
			k.cause = cause
		}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, ReadingShare{Thread: n.of(s.Task), State: s.State, Cause: k.cause})
		}
		return &out[i]
	}
	for i := range whole.Segments {
		s := &whole.Segments[i]
		share(s).WholeNs += s.End - s.Begin
	}
	for i := range causal.Segments {
		s := &causal.Segments[i]
		share(s).CausalNs += s.End - s.Begin
	}
	slices.SortStableFunc(out, func(a, b ReadingShare) int {
		return cmp.Or(cmp.Compare(max(b.WholeNs, b.CausalNs), max(a.WholeNs, a.CausalNs)), cmp.Compare(b.WholeNs, a.WholeNs))
	})
	return out
}
