// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"errors"
	"fmt"

	"pathprof/join/sched"
)

// ErrInvariant is in every error of [CheckPath] and [Graph.Check].
var ErrInvariant = errors.New("invariant broken")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvariant, fmt.Sprintf(format, args...))
}

// CheckPath tests what every active path promises: its segments are not empty
// and tile the window without gap or overlap, so that they sum to it exactly; those within
// a wait tile that wait; each has a cause unless its task ran; a wait
// without a known cause comes with a warning.
func CheckPath(p Path) error {
	if p.End <= p.Begin {
		return broken("window [%d, %d) is empty", p.Begin, p.End)
	}
	pos, sum := p.Begin, int64(0)
	inWait := make([]int64, len(p.Waits))
	for i := range p.Segments {
		s := &p.Segments[i]
		if s.Begin != pos || s.End <= s.Begin {
			return broken("segment %d is [%d, %d), want it to begin at %d", i, s.Begin, s.End, pos)
		}
		pos = s.End
		sum += s.End - s.Begin
		if err := checkSegment(&p, s); err != nil {
			return fmt.Errorf("segment %d: %w", i, err)
		}
		if s.Wait >= 0 {
			inWait[s.Wait] += s.End - s.Begin
		}
		if i > 0 {
			before := p.Segments[i-1]
			before.Begin, before.End = s.Begin, s.End
			if before == *s {
				return broken("segments %d and %d are one", i-1, i)
			}
		}
	}
	if pos != p.End || sum != p.End-p.Begin {
		return broken("segments end at %d and sum to %d, want %d and %d", pos, sum, p.End, p.End-p.Begin)
	}
	end := p.Begin
	for i, w := range p.Waits {
		if w.Begin < end || w.End <= w.Begin || w.End > p.End {
			return broken("wait %d is [%d, %d) after %d", i, w.Begin, w.End, end)
		}
		end = w.End
		if inWait[i] != w.End-w.Begin {
			return broken("segments of wait %d sum to %d, want %d", i, inWait[i], w.End-w.Begin)
		}
		if w.Cause.Kind == CauseNone || w.Cause.Kind == CauseUnknown && (w.Cause.Why == "" || len(p.Warnings) == 0) {
			return broken("wait %d has neither a cause nor a warning", i)
		}
	}
	return nil
}

func checkSegment(p *Path, s *Segment) error {
	if s.Wait < -1 || s.Wait >= len(p.Waits) || s.Depth < 0 {
		return broken("wait %d, depth %d", s.Wait, s.Depth)
	}
	if s.Depth == 0 && (s.Task != p.Target || (s.Wait >= 0) != (s.State == Blocked)) || s.Depth > 0 && s.Wait < 0 {
		return broken("task %d, wait %d at depth %d", s.Task.TID, s.Wait, s.Depth)
	}
	if s.Wait >= 0 && (s.Begin < p.Waits[s.Wait].Begin || s.End > p.Waits[s.Wait].End) {
		return broken("[%d, %d) is outside of its wait", s.Begin, s.End)
	}
	if s.Cause.Kind == CauseUnknown && s.Cause.Why == "" {
		return broken("cause unknown without a reason")
	}
	ok := false
	switch s.State {
	case Running, Interrupted:
		ok = s.Cause == (Cause{}) && s.CPU >= 0
	case Preempted:
		ok = s.Cause.Kind == CauseUnknown || s.Cause.Kind == CauseLimit || s.Cause.Kind == CauseTask && s.Cause.Task != s.Task
	case Blocked: // a leaf: a task as its cause would have been followed
		ok = s.Cause.Kind != CauseNone && s.Cause.Kind != CauseTask
	case Unknown:
		ok = s.Cause.Kind == CauseUnknown
	}
	if !ok || s.CPU >= 0 && s.State != Running && s.State != Interrupted {
		return broken("%v on cpu %d with cause %+v", s.State, s.CPU, s.Cause)
	}
	return nil
}

// Check tests what every graph promises: the intervals of each task tile its life, the
// turns of each CPU the window; each wait has a cause or a reason why not; the task
// that ended a wait existed then, so edges go forward in time.
func (g *Graph) Check() error {
	if len(g.index) != len(g.tasks) || len(g.lines) != len(g.tasks) {
		return broken("%d tasks, %d keys, %d lines", len(g.tasks), len(g.index), len(g.lines))
	}
	for i := range g.tasks {
		t := &g.tasks[i]
		if i > 0 && (t.ID.TID < g.tasks[i-1].ID.TID || t.ID.TID == g.tasks[i-1].ID.TID && t.Begin < g.tasks[i-1].End) {
			return broken("tasks %+v and %+v overlap", g.tasks[i-1], *t)
		}
		if err := g.checkLine(t); err != nil {
			return fmt.Errorf("task %d from %d: %w", t.ID.TID, t.Begin, err)
		}
	}
	for _, cpu := range g.cpus {
		pos, last := g.Begin, Turn{}
		for t := range g.Turns(cpu) {
			if t.Begin != pos || t.End <= t.Begin || t.Why != "" && t.Task.TID != 0 {
				return broken("cpu %d: turn %+v after %+v", cpu, t, last)
			}
			pos, last = t.End, t
		}
		if pos != g.End {
			return broken("cpu %d: turns end at %d, want %d", cpu, pos, g.End)
		}
	}
	return nil
}

func (g *Graph) checkLine(t *Task) error {
	if t.Begin < g.Begin || t.End > g.End || t.End < t.Begin {
		return broken("lives [%d, %d)", t.Begin, t.End)
	}
	pos := t.Begin
	for v := range g.Intervals(t.ID) {
		if v.Begin != pos || v.End <= v.Begin {
			return broken("interval [%d, %d), want it to begin at %d", v.Begin, v.End, pos)
		}
		pos = v.End
		ok := false
		switch v.State {
		case Running, Interrupted:
			ok = v.CPU >= 0 && v.Cause == (Cause{})
		case Preempted:
			ok = v.Cause == (Cause{})
		case Blocked:
			ok = v.CPU < 0 && g.checkCause(v)
		case Unknown:
			ok = v.CPU < 0 && v.Cause.Kind == CauseUnknown && v.Cause.Why != ""
		}
		if !ok {
			return broken("%+v", v)
		}
	}
	if pos != t.End {
		return broken("line ends at %d, want %d", pos, t.End)
	}
	return nil
}

// checkCause tests the cause of a wait.
func (g *Graph) checkCause(v Interval) bool {
	switch v.Cause.Kind {
	case CauseTask:
		waker, ok := g.Task(v.Cause.Task)
		return ok && waker.Begin <= v.End && v.Cause.Ctx == sched.ContextTask
	case CauseUnknown:
		return v.Cause.Why != ""
	}
	return v.Cause.Kind != CauseNone
}
