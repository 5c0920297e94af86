// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"errors"
	"slices"
	"testing"

	"pathprof/join/sched"
)

// chain is the graph of testdata/chain.txtar, in short.
func chain(t *testing.T, opt Options) *Graph {
	b := NewBuilder(opt)
	for _, ev := range parseEvents(t, []string{
		"0 cpu-1 task task=1/5 parent=3 state=running name=old",
		"0 cpu-1 task task=4 parent=2 state=I name=kworker/0:1",
		"5 cpu0 comm task=1/5 name=middle",
		"6 cpu0 exec task=1/5 name=new",
		"8 cpu0 fork task=6/5 parent=1/5 name=thread",
		"9 cpu1 switch task=0 next=6/5 state=R",
		"10 cpu0 switch task=1/5 next=0 state=S stack=7",
		"20 cpu1 switch task=6/5 next=0 state=S",
		"50 cpu1 waking task=6/5 by=0 ctx=hrtimer",
		"52 cpu1 switch task=0 next=6/5 state=R",
		"80 cpu1 waking task=1/5 by=6/5 ctx=task",
		"82 cpu0 switch task=0 next=1/5 state=R",
	}) {
		if err := b.Add(ev); err != nil {
			t.Fatal(err)
		}
	}
	return b.Graph(0, 100)
}

func TestQueries(t *testing.T) {
	g := chain(t, Options{Host: 7})
	if err := g.Check(); err != nil {
		t.Fatal(err)
	}
	one, two := sched.TaskID{Host: 7, TID: 1}, sched.TaskID{Host: 7, TID: 6, Start: 8}
	for _, want := range []Task{
		{ID: one, PID: 5, Name: "new", Parent: 3, Begin: 0, End: 100},
		{ID: two, PID: 5, Name: "thread", Parent: 3, Begin: 8, End: 100, Born: true},
		{ID: sched.TaskID{Host: 7, TID: 4}, PID: 4, Name: "kworker/0:1", Parent: 2, End: 100, Kernel: true},
	} {
		if got, ok := g.Task(want.ID); !ok || got != want {
			t.Errorf("Task(%v) = %+v, %v, want %+v", want.ID, got, ok, want)
		}
		if got, ok := g.TaskAt(want.ID.TID, want.Begin); !ok || got != want {
			t.Errorf("TaskAt(%d, %d) = %+v, %v", want.ID.TID, want.Begin, got, ok)
		}
	}
	for _, c := range []struct {
		tid int32
		t   int64
	}{{6, 7}, {1, -1}, {1, 100}, {3, 50}, {9, 50}} {
		if got, ok := g.TaskAt(c.tid, c.t); ok {
			t.Errorf("TaskAt(%d, %d) = %+v, want none", c.tid, c.t, got)
		}
	}
	want := []Interval{
		{Begin: 0, End: 10, State: Running},
		{Begin: 10, End: 80, State: Blocked, CPU: -1, Stack: 7, Cause: Cause{Kind: CauseTask, Task: two, Ctx: sched.ContextTask}},
		{Begin: 80, End: 82, State: Preempted},
		{Begin: 82, End: 100, State: Running},
	}
	if got := slices.Collect(g.Intervals(one)); !slices.Equal(got, want) {
		t.Errorf("Intervals = %+v, want %+v", got, want)
	}
	for _, at := range []int64{0, 9, 10, 79, 80, 99} {
		got, ok := g.StateAt(one, at)
		if i := slices.IndexFunc(want, func(v Interval) bool { return v.Begin <= at && at < v.End }); !ok || got != want[i] {
			t.Errorf("StateAt(%d) = %+v, %v", at, got, ok)
		}
	}
	if got := slices.Collect(g.Intervals(sched.TaskID{TID: 1})); got != nil {
		t.Errorf("intervals of another host's task: %+v", got)
	}
	if got, ok := g.StateAt(two, 5); ok {
		t.Errorf("StateAt before the fork = %+v", got)
	}
}

// TestCheckPath breaks a sound path in each way the check is there for.
func TestCheckPath(t *testing.T) {
	for name, harm := range map[string]func(p *Path){
		"none":            func(*Path) {},
		"gap":             func(p *Path) { p.Segments[1].Begin++ },
		"overlap":         func(p *Path) { p.Segments[1].End++ },
		"empty segment":   func(p *Path) { p.Segments = slices.Insert(p.Segments, 1, Segment{Begin: 10, End: 10}) },
		"too short":       func(p *Path) { p.Segments = p.Segments[:len(p.Segments)-1] },
		"longer window":   func(p *Path) { p.End++ },
		"empty window":    func(p *Path) { p.End = p.Begin },
		"no such wait":    func(p *Path) { p.Segments[1].Wait = 1 },
		"not its wait":    func(p *Path) { p.Segments[0].Wait, p.Segments[0].Depth = 0, 1 },
		"wait not tiled":  func(p *Path) { p.Segments[1].Wait, p.Segments[1].Depth, p.Segments[1].Task = -1, 0, p.Target },
		"someone else":    func(p *Path) { p.Segments[0].Task.TID = 9 },
		"cause missing":   func(p *Path) { p.Segments[2].Cause = Cause{} },
		"task as a leaf":  func(p *Path) { p.Segments[2].Cause = Cause{Kind: CauseTask} },
		"no reason":       func(p *Path) { p.Segments[2].Cause = Cause{Kind: CauseUnknown} },
		"cause of none":   func(p *Path) { p.Segments[0].Cause = unknown(whyLost) },
		"cpu of a wait":   func(p *Path) { p.Segments[2].CPU = 0 },
		"no cpu":          func(p *Path) { p.Segments[0].CPU = -1 },
		"waits for self":  func(p *Path) { p.Segments[3].Cause = Cause{Kind: CauseTask, Task: p.Segments[3].Task} },
		"wait no cause":   func(p *Path) { p.Waits[0].Cause = Cause{} },
		"wait no warning": func(p *Path) { p.Waits[0].Cause, p.Warnings = unknown(whyLost), nil },
		"wait outside":    func(p *Path) { p.Waits[0].End = 200 },
		"wait too long":   func(p *Path) { p.Waits[0].End++ },
		"not merged": func(p *Path) {
			p.Segments = slices.Insert(p.Segments, 0, p.Segments[0])
			p.Segments[0].End, p.Segments[1].Begin = 4, 4
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := chain(t, Options{})
			p, err := g.ActivePath(sched.TaskID{TID: 1}, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			harm(&p)
			if err := CheckPath(p); (err == nil) != (name == "none") || err != nil && !errors.Is(err, ErrInvariant) {
				t.Errorf("CheckPath = %v", err)
			}
		})
	}
}

// TestGraphCheck breaks a sound graph.
func TestGraphCheck(t *testing.T) {
	for name, harm := range map[string]func(g *Graph){
		"none":           func(*Graph) {},
		"gap":            func(g *Graph) { g.lines[0].spans[0].begin++ },
		"out of order":   func(g *Graph) { g.lines[0].spans[1].begin = 90 },
		"no cause":       func(g *Graph) { g.lines[0].spans[1].flags = 0 },
		"unborn waker":   func(g *Graph) { g.tasks[2].Begin = 90 },
		"ran nowhere":    func(g *Graph) { g.lines[0].spans[0].cpu = -1 },
		"cpu of a wait":  func(g *Graph) { g.lines[0].spans[1].cpu = 1 },
		"no such state":  func(g *Graph) { g.lines[0].spans[0].state = dead },
		"lives too long": func(g *Graph) { g.tasks[0].End++ },
		"overlap":        func(g *Graph) { g.tasks[1].ID.TID = 1 },
		"lane gap":       func(g *Graph) { g.lanes[0][0].begin++ },
		"lane end":       func(g *Graph) { g.lanes[0] = nil },
		"key lost":       func(g *Graph) { clear(g.index) },
	} {
		t.Run(name, func(t *testing.T) {
			g := chain(t, Options{})
			harm(g)
			if err := g.Check(); (err == nil) != (name == "none") || err != nil && !errors.Is(err, ErrInvariant) {
				t.Errorf("Check = %v", err)
			}
		})
	}
}
