// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pathprof/join"
	"pathprof/join/execgraph"
)

const (
	maxModes     = 5     // of a path
	maxLoopTasks = 6     // of an event loop
	maxWakers    = 2     // places for a wait
	minWaker     = 0.05  // of the window, for a wait whose end is shown
	minMode      = 0.005 // of the window
	mainlyShare  = 0.5   // of a holder's samples, for its function to be named
)

// causes writes what lies beyond a thread's table: in which modes its path was,
// which code ended its longest waits, and whose turns an event loop was.
func (r *textReport) causes(p *join.ThreadPath) {
	var lines []string
	if words := modeWords(p); words != "" {
		lines = append(lines, "modes: "+words)
	}
	lines = append(lines, wakerWords(p)...)
	if n := p.Path.Migrations; n > 0 {
		lines = append(lines, fmt.Sprintf("went on on another CPU %s", count(int64(n), "time")))
	}
	if len(lines) > 0 {
		fmt.Fprintln(r.w)
	}
	for _, line := range lines {
		fmt.Fprintf(r.w, "  %s\n", r.wrap(line, 4))
	}
	r.readings(p)
	r.loop(p)
}

// modeWords lists the modes of a path, most time first. Where nothing of them is
// known it is empty.
func modeWords(p *join.ThreadPath) string {
	total := float64(max(wall(p), 1))
	var out []string
	var rest, extrapolated int64
	known := false
	for i, m := range p.Modes {
		known = known || m.Mode != join.ModeUnknown
		extrapolated += m.ExtrapolatedNs
		if share := float64(m.Ns) / total; i < maxModes && share >= minMode {
			out = append(out, roughly(share)+" "+printable(string(m.Mode)))
		} else {
			rest += m.Ns
		}
	}
	if !known {
		return ""
	}
	if rest > 0 {
		out = append(out, roughly(float64(rest)/total)+" else")
	}
	words := strings.Join(out, ", ")
	if share := float64(extrapolated) / total; share >= minMode {
		words += "; " + roughly(share) + " in segments without a sample, taken as those alike in length"
	}
	return words
}

// wakerWords says for the waits that cost most where their wakers stood.
func wakerWords(p *join.ThreadPath) []string {
	type key struct{ wait, place string }
	times := make(map[key]int64)
	for i := range p.Waits {
		if place := p.Waits[i].WokenIn; place != "" {
			w := &p.Path.Waits[i]
			times[key{waitText(p.Waits[i].Cause, p.Waits[i].In), place}] += w.End - w.Begin
		}
	}
	keys := make([]key, 0, len(times))
	for k, ns := range times {
		if float64(ns) >= minWaker*float64(wall(p)) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(a, b key) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a.wait, b.wait), cmp.Compare(a.place, b.place))
	})
	var out []string
	for _, k := range keys[:min(len(keys), maxWakers)] {
		out = append(out, fmt.Sprintf("%s: ended in %s", k.wait, printable(k.place)))
	}
	return out
}

// loop writes for whom an event loop's thread was busy.
func (r *textReport) loop(p *join.ThreadPath) {
	if len(p.Loop) == 0 {
		return
	}
	fmt.Fprintln(r.w, "\n  asyncio: who had the loop, so that all other tasks waited")
	t := r.grid(column{title: "time", right: true}, column{title: "share", right: true}, column{title: "longest turn", right: true},
		column{title: "coroutine or callback", max: max(r.width/2, 30)})
	for i, task := range p.Loop {
		if i == maxLoopTasks {
			break
		}
		t.AppendRow([]any{inUnit(task.Ns, wall(p)), percent(float64(task.Ns) / float64(max(wall(p), 1))), span(task.LongestNs),
			printable(fmt.Sprintf("%s (%s:%d)", task.Name, task.File, task.Line))})
	}
	fmt.Fprintln(r.w, indent(t.Render(), 4))
}

// holders names for each wait for the GIL the function in which its holder mainly
// ran meanwhile.
func holders(p *join.ThreadPath) map[join.Reason]string {
	out := make(map[join.Reason]string)
	for i := range p.Classes { // most time first
		c := &p.Classes[i]
		if c.Key.Wait.Kind != join.CauseGIL || c.Key.State != execgraph.Running || out[c.Key.Wait] != "" {
			continue
		}
		for _, f := range tops(c.Functions) {
			if f.Kind == join.KindPython && !f.TooFew && f.Share >= mainlyShare {
				out[c.Key.Wait] = fmt.Sprintf(" running %s (%s)", printable(f.Name), place(f))
				break
			}
		}
	}
	return out
}
