// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pathprof/join/sched"
)

// TestGolden reads testdata/*.txtar: events in their text form, the window, and
// what must come of them, derived by hand as the comment on top explains. Within a
// path section lines in words are comments, too.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			golden(t, parseArchive(string(text)))
		})
	}
}

type section struct {
	name  string
	lines []string
}

// parseArchive splits a txtar archive; the comment on top is left out.
func parseArchive(text string) (sections []section) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if name, ok := strings.CutPrefix(line, "-- "); ok {
			sections = append(sections, section{name: strings.TrimSuffix(name, " --")})
		} else if n := len(sections); n > 0 {
			sections[n-1].lines = append(sections[n-1].lines, line)
		}
	}
	return sections
}

func golden(t *testing.T, sections []section) {
	var events []sched.Event
	var g *Graph
	for _, s := range sections {
		words := strings.Fields(s.name)
		switch words[0] {
		case "events":
			events = parseEvents(t, s.lines)
		case "window":
			var begin, end int64
			if _, err := fmt.Sscan(s.lines[0], &begin, &end); err != nil {
				t.Fatal(err)
			}
			g = buildSequential(t, events, begin, end)
			sameEverywhere(t, g, events)
		case "path", "causal":
			begin, end := g.Begin, g.End
			if len(words) > 2 {
				begin, end = number(t, words[2]), number(t, words[3])
			}
			p, err := g.path(parseID(t, words[1]), begin, end, words[0] == "causal")
			if err != nil {
				t.Fatal(err)
			}
			if err := CheckPath(p); err != nil {
				t.Error(err)
			}
			compare(t, s, pathText(p))
		case "tasks":
			compare(t, s, tasksText(g))
		case "turns":
			compare(t, s, turnsText(g, int32(number(t, words[1]))))
		default:
			t.Fatalf("unknown section %q", s.name)
		}
	}
}

func parseEvents(t *testing.T, lines []string) (events []sched.Event) {
	for _, line := range lines {
		ev, err := sched.ParseEvent(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		events = append(events, ev)
	}
	return events
}

func buildSequential(t testing.TB, events []sched.Event, begin, end int64) *Graph {
	b := NewBuilder(Options{})
	for _, ev := range events {
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
	}
	g := b.Graph(begin, end)
	if err := g.Check(); err != nil {
		t.Error(err)
	}
	return g
}

// sameEverywhere cuts the events at each place, and at all of them.
func sameEverywhere(t *testing.T, g *Graph, events []sched.Event) {
	cuts := make([][]int, len(events)+2)
	for i := range len(events) + 1 {
		cuts[i] = []int{i}
		cuts[len(events)+1] = append(cuts[len(events)+1], i)
	}
	for _, c := range cuts {
		got, err := Build(Options{}, slabs(events, c), g.Begin, g.End, 2)
		if err != nil {
			t.Fatal(err)
		}
		if d := diff(graphText(g), graphText(got)); d != "" {
			t.Fatalf("cut at %v, the graph differs:\n%s", c, d)
		}
	}
}

// slabs cuts events at the given indices.
func slabs(events []sched.Event, cuts []int) (out []Slab) {
	from := 0
	for _, to := range append(cuts[:len(cuts):len(cuts)], len(events)) {
		part := events[from:to]
		from = to
		out = append(out, func() iter.Seq2[sched.Event, error] {
			return func(yield func(sched.Event, error) bool) {
				for _, ev := range part {
					if !yield(ev, nil) {
						return
					}
				}
			}
		})
	}
	return out
}

func number(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseID(t *testing.T, s string) sched.TaskID {
	tid, start, ok := strings.Cut(s, "@")
	id := sched.TaskID{TID: int32(number(t, tid))}
	if ok {
		id.Start = number(t, start)
	}
	return id
}

func idText(id sched.TaskID) string {
	if id.Start == 0 {
		return strconv.Itoa(int(id.TID))
	}
	return fmt.Sprintf("%d@%d", id.TID, id.Start)
}

func causeText(c Cause) string {
	if c.Lock != 0 {
		lock := c.Lock.String() + ":"
		c.Lock = 0
		return lock + causeText(c)
	}
	switch {
	case c.Kind == CauseLimit:
		return fmt.Sprintf("limit:%d", c.Cgroup)
	case c.Kind == CauseDisk:
		return joinFields(fmt.Sprintf("disk:%d:%d", c.Vector>>20, c.Vector&(1<<20-1)), ifText(c.Task.TID != 0, "for:%s", idText(c.Task)))
	case c.Kind == CauseNetwork:
		return joinFields("network", ifText(c.Task.TID != 0, "from:%s", idText(c.Task)))
	case c.Kind == CauseTask:
		return "task:" + idText(c.Task)
	case c.Kind == CauseUnknown:
		return "unknown:" + c.Why
	case c.Vector != 0:
		return fmt.Sprintf("%s:%d", c.Kind, c.Vector)
	}
	return string(c.Kind)
}

// joinFields joins what is not empty.
func joinFields(fields ...string) string {
	out := fields[:0:0]
	for _, f := range fields {
		if f != "" {
			out = append(out, f)
		}
	}
	return strings.Join(out, " ")
}

// ifText is a formatted number if the condition holds.
func ifText(cond bool, format string, n any) string {
	if cond {
		return fmt.Sprintf(format, n)
	}
	return ""
}

// waitText is what a wait says beyond its cause.
func waitText(w *Wait) string {
	return joinFields(ifText(w.On.Call != 0, "in:%s", w.On.Call), ifText(w.Pieces > 1, "pieces=%d", w.Pieces),
		ifText(w.By != "", "by=%s", w.By), ifText(w.Holder.TID != 0, "holder=%s", idText(w.Holder)), ifText(w.HeldNs != 0, "held=%d", w.HeldNs),
		ifText(w.Took != 0, "took=%d", w.Took), ifText(w.Work != "", "work=%s", w.Work), ifText(w.WakerStack != 0, "wakerstack=%d", w.WakerStack))
}

func pathText(p Path) (lines []string) {
	for _, w := range p.Waits {
		lines = append(lines, joinFields(fmt.Sprintf("wait %d %d", w.Begin, w.End), causeText(w.Cause), ifText(w.Stack != 0, "stack=%d", w.Stack),
			waitText(&w)))
	}
	for _, s := range p.Segments {
		lines = append(lines, joinFields(fmt.Sprintf("%d %d", s.Begin, s.End), idText(s.Task), s.State.String(), causeText(s.Cause),
			ifText(s.CPU >= 0, "cpu%d", s.CPU), ifText(s.Wait >= 0, "wait%d", s.Wait),
			ifText(s.Depth > 0, "depth%d", s.Depth), ifText(s.Stack != 0, "stack=%d", s.Stack)))
	}
	return lines
}

func taskText(k Task) string {
	return joinFields(fmt.Sprintf("%s [%d, %d)", idText(k.ID), k.Begin, k.End), k.Name, ifText(k.Parent != 0, "of %d", k.Parent),
		ifText(k.Born, "%s", "born"), ifText(k.Exited, "%s", "exited"), ifText(k.Kernel, "%s", "kernel"))
}

func tasksText(g *Graph) (lines []string) {
	for _, k := range g.Tasks() {
		lines = append(lines, taskText(k))
	}
	return lines
}

func turnsText(g *Graph, cpu int32) (lines []string) {
	for k := range g.Turns(cpu) {
		who := idText(k.Task)
		if k.Task.TID == 0 {
			who = "idle"
		}
		if k.Why != "" {
			who = k.Why
		}
		lines = append(lines, fmt.Sprintf("%d %d %s", k.Begin, k.End, who))
	}
	return lines
}

// graphText is everything a graph says.
func graphText(g *Graph) (lines []string) {
	for _, k := range g.Tasks() {
		lines = append(lines, fmt.Sprintf("%s %+v", taskText(k), k))
		for v := range g.Intervals(k.ID) {
			lines = append(lines, fmt.Sprintf("  %d %d %v cpu%d %s %+v stack=%d %+v", v.Begin, v.End, v.State, v.CPU, causeText(v.Cause), v.Cause, v.Stack, v.On))
		}
	}
	for _, cpu := range g.CPUs() {
		lines = append(lines, fmt.Sprintf("cpu%d", cpu))
		lines = append(lines, turnsText(g, cpu)...)
	}
	return append(append(lines, fmt.Sprintf("%+v", g.Loss)), g.Warnings...)
}

// compare reports where the section differs from what there is. Lines of the
// section that begin with a capital letter are comments.
func compare(t *testing.T, s section, got []string) {
	t.Helper()
	var want []string
	for _, line := range s.lines {
		if line != "" && (line[0] < 'A' || line[0] > 'Z') {
			want = append(want, line)
		}
	}
	if d := diff(want, got); d != "" {
		t.Errorf("%s:\n%s", s.name, d)
	}
}

// diff shows the first lines that differ, "-" what is wanted.
func diff(want, got []string) string {
	for i := range max(len(want), len(got)) {
		w, g := "(end)", "(end)"
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w != g {
			return fmt.Sprintf("line %d\n- %s\n+ %s\nall that is:\n%s", i+1, w, g, strings.Join(got[:min(len(got), 40)], "\n"))
		}
	}
	return ""
}
