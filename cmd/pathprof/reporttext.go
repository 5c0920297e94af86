// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"pathprof/join"
	"pathprof/join/execgraph"
	"pathprof/perfevent/recording"
)

const (
	maxBranches   = 12    // of a thread's table; the rest is summed up
	maxTwigs      = 5     // lines below one of them
	minClassShare = 0.002 // of the window, for a line of its own
	minTopShare   = 0.01  // of the window, for a list of functions
	maxTopClasses = 8     // lists of functions for each thread
	maxFullPaths  = 5     // threads with a table, unless asked for by name
	maxQuietLines = 15    // threads folded into a line each
	maxWarnings   = 12

	// A thread is quiet if its own work is a smaller share of its time, or its
	// time a smaller share of the longest path's.
	quietShare = 0.005
	shortShare = 0.05
)

// textReport writes a profile as text for people.
type textReport struct {
	screen
	profile *join.Profile
	meta    *recording.Meta
	top     int  // functions in a list
	byLine  bool // lines of code instead of functions
	all     bool // threads were asked for by name: fold none
	listed  bool // a list of functions has been written, with titles
}

func (r *textReport) write() {
	full, quiet := r.sort()
	for i, p := range full {
		if i > 0 {
			fmt.Fprintln(r.w)
		}
		r.path(p)
	}
	if len(quiet) > 0 {
		fmt.Fprintln(r.w)
		r.quiet(quiet, len(full) == 0)
	}
	fmt.Fprintln(r.w)
	r.basis()
	r.warnings()
}

// sort separates the threads that get a table from those that get a line.
func (r *textReport) sort() (full, quiet []*join.ThreadPath) {
	longest := int64(0)
	for i := range r.profile.Paths {
		longest = max(longest, wall(&r.profile.Paths[i]))
	}
	for i := range r.profile.Paths {
		p := &r.profile.Paths[i]
		first := i == 0 // the main thread of the first target
		if r.all || first || len(full) < maxFullPaths && !isQuiet(p, longest) {
			full = append(full, p)
		} else {
			quiet = append(quiet, p)
		}
	}
	return full, quiet
}

func wall(p *join.ThreadPath) int64 { return p.Path.End - p.Path.Begin }

func isQuiet(p *join.ThreadPath, longest int64) bool {
	var own int64
	for _, c := range p.Classes {
		if c.Key.Wait.Kind == execgraph.CauseNone && c.Key.State != execgraph.Unknown {
			own += c.Ns
		}
	}
	return float64(own) < quietShare*float64(wall(p)) || float64(wall(p)) < shortShare*float64(longest)
}

// title names a thread: MainThread of app.py (pid 4242).
func (r *textReport) title(t join.ThreadInfo) string {
	name := t.Process
	for _, target := range r.meta.Targets {
		if target.PID == t.PID {
			name = cmp.Or(program(target.Command), name)
		}
	}
	if t.PID == t.ID.TID {
		return printable(fmt.Sprintf("MainThread of %s (pid %d)", name, t.PID))
	}
	if t.Thread == t.Process { // goes by its number
		return printable(fmt.Sprintf("Thread %d of %s (pid %d)", t.ID.TID, name, t.PID))
	}
	return printable(fmt.Sprintf("Thread %s of %s (pid %d, tid %d)", t.Thread, name, t.PID, t.ID.TID))
}

// headline says in a sentence where the wall time of a thread went.
func headline(p *join.ThreadPath) string {
	parts, running := make(map[string]int64), holders(p)
	for _, c := range p.Classes {
		parts[part(c.Key)+running[c.Key.Wait]] += c.Ns
	}
	words := slices.SortedFunc(maps.Keys(parts), func(a, b string) int {
		return cmp.Or(cmp.Compare(parts[b], parts[a]), cmp.Compare(a, b))
	})
	total := float64(max(wall(p), 1))
	var out []string
	var rest int64
	for i, w := range words {
		if share := float64(parts[w]) / total; i < 4 && (share >= 0.005 || i == 0) {
			out = append(out, roughly(share)+" "+w)
		} else {
			rest += parts[w]
		}
	}
	if rest > 0 {
		out = append(out, roughly(float64(rest)/total)+" else")
	}
	return strings.Join(out, ", ")
}

// part is what a class counts as in the headline: what the thread did itself, or
// what it waited for.
func part(k join.ClassKey) string {
	switch {
	case k.Wait.Kind != execgraph.CauseNone:
		return waitText(k.Wait, k.In)
	case k.Polling != "":
		return k.State.String() + ", polling " + printable(k.Polling)
	case k.Cause.Kind == execgraph.CauseLimit:
		return "held back by the CPU limit " + printable(k.Cause.Detail)
	}
	return k.State.String()
}

// waitText is a wait in words.
func waitText(wait join.Reason, in string) string {
	s := "waiting for " + printable(wait.String())
	if wait.Kind == execgraph.CauseUnknown {
		s = "waiting for an unknown cause (" + printable(wait.Detail) + ")"
	}
	if in != "" && wait.Kind != join.CauseGIL {
		s += " in " + printable(in)
	}
	return s
}

// path writes one thread: the sentence, the table of classes, their functions.
func (r *textReport) path(p *join.ThreadPath) {
	title := fmt.Sprintf("%s: %s wall: ", r.title(p.Thread), span(wall(p)))
	fmt.Fprintf(r.w, "%s\n\n", r.bold(r.wrap(title+headline(p), 4)))
	groups := alike(p)
	r.classes(p, groups)
	r.causes(p)
	shown := 0
	for i := range groups {
		g := &groups[i]
		// Where somebody lost the CPU says nothing about why.
		told := onCPU(g.Key.State) || g.Key.State == execgraph.Blocked
		if !told || g.Share < minTopShare || shown == maxTopClasses || r.top == 0 || len(g.Functions) == 0 {
			continue
		}
		shown++
		fmt.Fprintln(r.w)
		if r.byLine {
			r.lines(g)
		} else {
			r.functions(g)
		}
	}
}

// branch is a line of the table, and those below it: one of the thread's waits
// with what others did meanwhile, what it did itself, or who took its CPU.
type branch struct {
	title   string
	sum     join.Class
	classes []*classGroup
	twigs   []string // titles of the classes; nil: the branch has said it all
}

// branches gathers the classes of a thread, most time first.
func branches(p *join.ThreadPath, groups []classGroup) []*branch {
	var out []*branch
	known := make(map[string]*branch)
	for i := range groups {
		g := &groups[i]
		title := part(g.Key)
		b := known[title]
		if b == nil {
			b = &branch{title: title}
			known[title] = b
			out = append(out, b)
		}
		b.classes = append(b.classes, g)
		addUp(&b.sum, &g.Class)
	}
	for _, b := range out {
		if len(b.classes) == 1 && b.classes[0].Key.Task == p.Thread.ID && repeats(b.classes[0].Key) {
			continue
		}
		for _, g := range b.classes {
			b.twigs = append(b.twigs, twigTitle(g, p))
		}
	}
	slices.SortStableFunc(out, func(a, b *branch) int { return cmp.Compare(b.sum.Ns, a.sum.Ns) })
	return out
}

// repeats tells whether a class of the thread itself says what its branch says.
func repeats(k join.ClassKey) bool {
	return k.Cause.Kind == execgraph.CauseNone || k.Cause == k.Wait
}

func twigTitle(g *classGroup, p *join.ThreadPath) string {
	if g.Key.Wait.Kind == execgraph.CauseNone && g.Key.Task == p.Thread.ID && g.Key.Cause.Kind != execgraph.CauseNone {
		return "by " + g.Key.Cause.String()
	}
	return stateText(g.Key) + " " + taskText(g)
}

// classTable is the table of a thread as it is filled.
type classTable struct {
	table.Writer
	wall int64
}

func (t *classTable) add(c *join.Class, what string) {
	samples := "-"
	if c.Samples > 0 {
		samples = fmt.Sprint(c.Samples)
	}
	t.AppendRow([]any{inUnit(c.Ns, t.wall), percent(c.Share), c.Segments, samples, printable(what)})
}

// addUp adds the figures of a class to a sum.
func addUp(sum, c *join.Class) {
	sum.Ns += c.Ns
	sum.Share += c.Share
	sum.Segments += c.Segments
	sum.Samples += c.Samples
}

// classes writes the table of a thread: what it did itself, and its waits with
// what the others did meanwhile.
func (r *textReport) classes(p *join.ThreadPath, groups []classGroup) {
	t := classTable{wall: wall(p)}
	// 46 is what the numbers need at most.
	t.Writer = r.grid(column{title: "time", right: true}, column{title: "share", right: true},
		column{title: "segments", right: true}, column{title: "samples", right: true},
		column{max: max(r.width-46, 30)})
	var rest join.Class
	for i, b := range branches(p, groups) {
		if i >= maxBranches || i > 0 && b.sum.Share < minClassShare {
			addUp(&rest, &b.sum)
			continue
		}
		t.add(&b.sum, b.title)
		var others join.Class
		for n, title := range b.twigs {
			if g := b.classes[n]; n < maxTwigs && (n == 0 || g.Share >= minClassShare) {
				t.add(&g.Class, "  "+title)
			} else {
				addUp(&others, &g.Class)
			}
		}
		if others.Ns > 0 {
			t.add(&others, "  else")
		}
	}
	if rest.Ns > 0 {
		t.add(&rest, "else")
	}
	fmt.Fprintln(r.w, indent(t.Render(), 2))
}

// stateText is the state with its cause, unless the wait has said it already.
func stateText(k join.ClassKey) string {
	s := k.State.String()
	if k.At != "" {
		s += " in " + printable(k.At)
	}
	if k.Polling != "" {
		s += ", polling " + printable(k.Polling) + ","
	}
	if k.Cause.Kind != execgraph.CauseNone && k.Cause != k.Wait {
		s += " (" + printable(k.Cause.String()) + ")"
	}
	return s
}

func taskText(g *classGroup) string {
	if g.tasks > 1 {
		return fmt.Sprintf("%s (%d tasks)", g.Key.Thread(), g.tasks)
	}
	return g.Key.Thread().String()
}

// Native functions named below the Python function that called them: those that
// took a part of the class worth a line.
const (
	maxCallees = 3
	minCallee  = 0.05
)

// functions writes the list of a class: where it ran, or where it waited.
func (r *textReport) functions(g *classGroup) {
	fmt.Fprintln(r.w, "  "+shorten(printable(g.Key.String()), r.width-2))
	if !onCPU(g.Key.State) {
		r.waitedIn(g)
		return
	}
	if words := statusWords(g.Status, g.Samples); words != "" {
		fmt.Fprintln(r.w, "    "+words)
	}
	var few []join.Function
	shown := 0
	t := r.functionGrid()
	for _, f := range tops(g.Functions) {
		if f.TooFew || shown == r.top {
			few = append(few, f)
			continue
		}
		t.AppendRow([]any{percent(f.Share), fmt.Sprintf("%4.1f – %.1f", 100*f.Low, 100*f.High),
			percent(f.TotalShare), printable(f.Name), place(f)})
		shown++
		for _, c := range f.Native[:min(len(f.Native), maxCallees)] {
			if c.TooFew || c.Share < minCallee {
				break
			}
			t.AppendRow([]any{percent(c.Share), fmt.Sprintf("%4.1f – %.1f", 100*c.Low, 100*c.High),
				"", "  in " + printable(c.Name), place(join.Function{File: c.File, Kind: join.KindNative})})
		}
	}
	if t.Length() > 0 {
		fmt.Fprintln(r.w, indent(t.Render(), 4))
	}
	r.few(g, few, t.Length() > 0)
}

// statusWords says what the interpreter did in the samples of a class, if it did
// more than one thing.
func statusWords(list []join.StatusShare, samples int64) string {
	if len(list) == 0 || len(list) == 1 && list[0].Status == join.StatusGIL || samples <= 0 {
		return ""
	}
	var words []string
	for _, s := range list {
		words = append(words, strings.TrimSpace(percent(float64(s.Samples)/float64(samples)))+" "+s.Status.Words())
	}
	return strings.Join(words, ", ")
}

// tops are the functions that have time of their own: a list begins with them.
func tops(list []join.Function) []join.Function {
	n := slices.IndexFunc(list, func(f join.Function) bool { return f.Share == 0 })
	if n < 0 {
		return list
	}
	return list[:n]
}

// functionGrid is a list of functions. The first says what its columns are.
func (r *textReport) functionGrid() table.Writer {
	words := (r.width - 46) / 2
	columns := []column{
		{title: "self", right: true, min: 7}, {title: "95 % interval", right: true, min: 13},
		{title: "with callees", right: true, min: 12}, {title: "function", min: 20, max: words},
		{title: "defined at", max: words, left: true},
	}
	if r.listed {
		for i := range columns {
			columns[i].title = ""
		}
	}
	r.listed = true
	return r.grid(columns...)
}

// few says what the list leaves out, and why.
func (r *textReport) few(g *classGroup, few []join.Function, listed bool) {
	var samples int64
	names := []string{}
	tooFew := !listed
	for _, f := range few {
		samples += f.Samples
		names = append(names, fmt.Sprintf("%s %d", printable(f.Name), f.Samples))
	}
	if len(names) > 3 {
		names = append(names[:3], "…")
	}
	switch {
	case len(few) == 0 && g.Samples > 0:
	case g.Samples == 0:
		fmt.Fprintln(r.w, "    no samples: the segments are shorter than the sampling period")
	case tooFew:
		fmt.Fprintf(r.w, "    too few samples (%d) for shares: %s\n", g.Samples, strings.Join(names, ", "))
	case listed:
		fmt.Fprintf(r.w, "    %s\n", r.faint(fmt.Sprintf("and %s more with %s together",
			count(int64(len(few)), "function"), count(samples, "sample"))))
	}
}

// waitedIn writes the functions a task waited in. Their times are measured, not
// sampled.
func (r *textReport) waitedIn(g *classGroup) {
	t := r.functionGrid()
	functions := tops(g.Functions)
	for _, f := range functions[:min(len(functions), r.top)] {
		t.AppendRow([]any{percent(f.Share), "measured", percent(f.TotalShare), printable(f.Name), place(f)})
	}
	fmt.Fprintln(r.w, indent(t.Render(), 4))
}

// place is file and line of a function, as far as they are known.
func place(f join.Function) string {
	file := printable(f.File)
	if f.Kind != join.KindPython {
		file = filepath.Base(file) // a mapped file, not a source
	}
	switch {
	case f.File == "":
		return f.Kind
	case f.Line > 0:
		return fmt.Sprintf("%s:%d", file, f.Line)
	}
	return file
}

// quiet writes one line for each thread that did little.
func (r *textReport) quiet(paths []*join.ThreadPath, only bool) {
	if !only {
		fmt.Fprintln(r.w, r.bold("Other threads:"))
	}
	for i, p := range paths {
		if i == maxQuietLines {
			fmt.Fprintf(r.w, "  and %d more; report --thread TID shows one\n", len(paths)-i)
			break
		}
		fmt.Fprintf(r.w, "  %s\n", shorten(fmt.Sprintf("%s: %s: %s", r.title(p.Thread), span(wall(p)), headline(p)), r.width-2))
	}
}

// basis says what the report rests on.
func (r *textReport) basis() {
	p := r.profile
	line := fmt.Sprintf("Recorded %s: %s every %s, ", span(r.meta.EndNs-r.meta.BeginNs), p.Event, every(p, r.meta))
	if p.AskedHz > 0 {
		line += fmt.Sprintf("asked %.0f, ", p.AskedHz)
	}
	line += fmt.Sprintf("achieved %.0f samples a second on CPU; %s; lost %s, %s; throttled %s.",
		p.AchievedHz, count(p.Samples, "sample"), count(int64(r.meta.Loss.Samples), "sample"),
		count(int64(r.meta.Loss.Events), "event"), times(p.Throttled))
	fmt.Fprintln(r.w, r.faint(r.wrap(line, 2)))
	if p.EventNote != "" {
		fmt.Fprintln(r.w, r.faint(r.wrap("Event: "+p.EventNote+".", 2)))
	}
	if words := tally(p.Verdicts, 6); words != "" {
		fmt.Fprintln(r.w, r.faint(r.wrap("Stacks of samples: "+words+".", 2)))
	}
	if words := tally(p.Reasons, 3); words != "" {
		fmt.Fprintln(r.w, r.faint(r.wrap("Why not complete: "+printable(words)+".", 2)))
	}
	if r.listed {
		fmt.Fprintln(r.w, r.faint("Shares are of their class: of its samples, or of its measured time."))
	}
}

func times(n uint64) string {
	if n == 0 {
		return "never"
	}
	return count(int64(n), "time")
}

// every is the period with its unit.
func every(p *join.Profile, meta *recording.Meta) string {
	switch {
	case p.Period > 0 && p.Unit == "nanoseconds":
		return time.Duration(p.Period).String()
	case p.Period > 0:
		return fmt.Sprint(p.Period)
	}
	return fmt.Sprintf("1/%d s", meta.FreqHz)
}

// tally lists counted words, the most frequent first, so many at most.
func tally[K ~string](counts map[K]int64, most int) string {
	words := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var out []string
	var rest int64
	for i, w := range words {
		switch {
		case counts[w] == 0:
		case i < most:
			out = append(out, fmt.Sprintf("%d %s", counts[w], string(w)))
		default:
			rest += counts[w]
		}
	}
	if rest > 0 {
		out = append(out, fmt.Sprintf("%d else", rest))
	}
	return strings.Join(out, ", ")
}

func (r *textReport) warnings() {
	for i, w := range r.profile.Warnings {
		if i == maxWarnings {
			fmt.Fprintf(r.w, "%s and %d more; --json lists all\n", r.warn("warning:"), len(r.profile.Warnings)-i)
			break
		}
		fmt.Fprintln(r.w, r.warn(r.wrap("warning: "+printable(w), 2)))
	}
}
