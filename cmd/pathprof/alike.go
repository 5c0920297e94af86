// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"pathprof/join"
	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// classGroup is what the text report shows as one line: classes that differ in
// nothing a person can see but the number of the task. A program that starts a
// hundred children of one name has a hundred classes, and one line.
type classGroup struct {
	join.Class     // sums; Key is that of the first
	tasks      int // how many
}

// alike groups the classes of a path, most time first.
func alike(classes []join.Class) []classGroup {
	type key struct {
		wait, cause join.Reason
		state       execgraph.State
		task        string
	}
	var groups []classGroup
	members := make(map[key][]join.Class)
	var order []key
	for _, c := range classes {
		c.Key.Cause = plainCause(c.Key)
		k := key{c.Key.Wait, c.Key.Cause, c.Key.State, c.Key.Thread().String()}
		if members[k] == nil {
			order = append(order, k)
		}
		members[k] = append(members[k], c)
	}
	for _, k := range order {
		groups = append(groups, sumUp(members[k]))
	}
	slices.SortStableFunc(groups, func(a, b classGroup) int { return cmp.Compare(b.Ns, a.Ns) })
	return groups
}

// plainCause is the cause as far as a person cares. Who took the CPU from a
// thread is worth a name, not the number of one of its threads; who took it from
// somebody that the thread waits for is not even that.
func plainCause(k join.ClassKey) join.Reason {
	cause := k.Cause
	switch {
	case k.State != execgraph.Preempted:
	case k.Wait.Kind != execgraph.CauseNone:
		return join.Reason{}
	case cause.Kind == execgraph.CauseTask:
		process, thread, _ := strings.Cut(cause.Detail, "/")
		if _, err := strconv.Atoi(thread); err == nil {
			cause.Detail = process + "/…"
		}
	}
	return cause
}

// sumUp makes one class of several.
func sumUp(classes []join.Class) classGroup {
	if len(classes) == 1 {
		return classGroup{classes[0], 1}
	}
	g := classGroup{Class: join.Class{Key: classes[0].Key}}
	tasks := make(map[sched.TaskID]bool)
	for _, c := range classes {
		tasks[c.Key.Task] = true
		g.Ns += c.Ns
		g.Share += c.Share
		g.Segments += c.Segments
		g.Samples += c.Samples
		g.Unsampled += c.Unsampled
		g.Doubt.Lost += c.Doubt.Lost
		g.Doubt.Unknown += c.Doubt.Unknown
	}
	g.tasks = len(tasks)
	g.Functions = sumFunctions(classes, &g.Class)
	return g
}

// sumFunctions adds the functions of alike classes up: shares are weighted by
// samples where they rest on samples, by time where they are exact.
func sumFunctions(classes []join.Class, sum *join.Class) []join.Function {
	type key struct {
		name, file, kind string
		line             int32
	}
	type part struct {
		samples     int64
		self, total float64
	}
	sampled := onCPU(sum.Key.State)
	parts := make(map[key]part)
	for _, c := range classes {
		weight := float64(c.Ns)
		if sampled {
			weight = float64(c.Samples)
		}
		for _, f := range c.Functions {
			k := key{f.Name, f.File, f.Kind, f.Line}
			p := parts[k]
			p.samples += f.Samples
			p.self += f.Share * weight
			p.total += f.TotalShare * weight
			parts[k] = p
		}
	}
	whole := float64(sum.Ns)
	if sampled {
		whole = float64(sum.Samples)
	}
	var out []join.Function
	for k, p := range parts {
		f := join.Function{
			Name: k.name, File: k.file, Line: k.line, Kind: k.kind,
			Samples: p.samples, Share: p.self / whole, TotalShare: math.Min(p.total/whole, 1),
		}
		f.Low, f.High = f.Share, f.Share
		if sampled {
			f.Low, f.High = join.Interval(p.samples, sum.Samples, sum.Doubt)
			f.TooFew = join.TooFew(p.samples, sum.Samples)
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b join.Function) int {
		return cmp.Or(cmp.Compare(b.Share, a.Share), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return out
}

// onCPU tells whether functions of this state come from samples.
func onCPU(s execgraph.State) bool {
	return s == execgraph.Running || s == execgraph.Interrupted
}
