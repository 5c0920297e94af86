// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"

	"pathprof/join"
	"pathprof/join/execgraph"
)

const (
	maxReadings = 6     // lines in which the readings differ
	minReading  = 0.005 // of the window, for a difference that is told
)

// readings writes the two readings of a path side by side where they differ; what
// is the same in both is one line, so that each column sums to the wall time.
func (r *textReport) readings(p *join.ThreadPath) {
	list, through := readingLines(p)
	total := float64(max(wall(p), 1))
	same, told := join.ReadingShare{}, []readingLine{}
	for _, s := range list {
		if d := float64(max(s.whole-s.causal, s.causal-s.whole)); d >= minReading*total {
			told = append(told, s)
			continue
		}
		same.WholeNs += s.whole
		same.CausalNs += s.causal
	}
	switch {
	case float64(through) < minReading*total:
		return
	case len(told) == 0:
		fmt.Fprintln(r.w, "  readings of the waits: whole window and causal agree")
		return
	}
	fmt.Fprintln(r.w, "\n  readings of the waits: what who ended them did all the while, and only since it was set going itself")
	t := r.grid(column{title: "whole", right: true}, column{title: "causal", right: true}, column{max: max(r.width-26, 30)})
	var rest readingLine
	for i, s := range told {
		if i < maxReadings {
			t.AppendRow([]any{inUnit(s.whole, wall(p)), inUnit(s.causal, wall(p)), printable(s.words)})
		} else {
			rest.whole += s.whole
			rest.causal += s.causal
		}
	}
	if rest.whole > 0 || rest.causal > 0 {
		t.AppendRow([]any{inUnit(rest.whole, wall(p)), inUnit(rest.causal, wall(p)), "else"})
	}
	t.AppendRow([]any{inUnit(same.WholeNs, wall(p)), inUnit(same.CausalNs, wall(p)), "alike in both"})
	fmt.Fprintln(r.w, indent(t.Render(), 4))
}

// readingLine is a line of the table of readings.
type readingLine struct {
	words         string
	whole, causal int64
}

// readingLines puts what has the same name into one line each, and says how long
// the path leads through other tasks.
func readingLines(p *join.ThreadPath) (out []readingLine, through int64) {
	for i := range p.Readings {
		s := &p.Readings[i]
		words := s.State.String()
		if s.Cause.Kind != execgraph.CauseNone {
			words += " (" + s.Cause.String() + ")"
		}
		words += " " + s.Thread.String()
		if s.Thread.ID != p.Thread.ID {
			through += s.WholeNs
		}
		k := slices.IndexFunc(out, func(l readingLine) bool { return l.words == words })
		if k < 0 {
			k = len(out)
			out = append(out, readingLine{words: words})
		}
		out[k].whole += s.WholeNs
		out[k].causal += s.CausalNs
	}
	slices.SortStableFunc(out, func(a, b readingLine) int { return cmp.Compare(max(b.whole, b.causal), max(a.whole, a.causal)) })
	return out, through
}
