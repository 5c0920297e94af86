// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	"pathprof/join"
)

// lines writes the lines of code of a class: where it ran, or where it waited,
// with the time that went into each.
func (r *textReport) lines(g *classGroup) {
	fmt.Fprintln(r.w, "  "+shorten(printable(g.Key.String()), r.width-2))
	words := (r.width - 62) / 2
	columns := []column{
		{title: "self", right: true, min: 7}, {title: "95 % interval", right: true, min: 13},
		{title: "time", right: true, min: 10}, {title: "95 % interval", right: true, min: 19},
		{title: "line", max: words, left: true}, {title: "function", max: words},
	}
	if r.listed {
		for i := range columns {
			columns[i].title = ""
		}
	}
	t := r.grid(columns...)
	var few, left int64
	for i, l := range g.Lines {
		if l.TooFew || i >= r.top {
			few++
			left += l.Samples
			continue
		}
		shares, times := "measured", "measured"
		if l.Method != join.MethodExact {
			shares = fmt.Sprintf("%4.1f – %.1f", 100*l.Low, 100*l.High)
			times = inUnit(l.NsLow, l.NsHigh) + " – " + inUnit(l.NsHigh, l.NsHigh)
		}
		t.AppendRow([]any{percent(l.Share), shares, inUnit(l.Ns, g.Ns), times, lineOf(l), printable(l.Function)})
	}
	if t.Length() > 0 {
		r.listed = true
		fmt.Fprintln(r.w, indent(t.Render(), 4))
	}
	switch {
	case onCPU(g.Key.State) && g.Samples == 0:
		fmt.Fprintln(r.w, "    no samples: the segments are shorter than the sampling period")
	case few > 0 && t.Length() == 0:
		fmt.Fprintf(r.w, "    too few samples (%d) for shares of lines\n", g.Samples)
	case few > 0 && onCPU(g.Key.State):
		fmt.Fprintf(r.w, "    %s\n", r.faint(fmt.Sprintf("and %s more with %s together",
			count(few, "line"), count(left, "sample"))))
	}
}

// lineOf is a line's file and number, as far as they are known.
func lineOf(l join.Line) string {
	file := printable(l.File)
	if l.Kind != join.KindPython {
		file = filepath.Base(file) // a mapped file, not a source
	}
	switch {
	case l.File == "":
		return l.Kind
	case l.Line > 0:
		return fmt.Sprintf("%s:%d", file, l.Line)
	}
	return file
}
