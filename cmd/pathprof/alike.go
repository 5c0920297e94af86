// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
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
func alike(p *join.ThreadPath) []classGroup {
	type key struct {
		wait, cause join.Reason
		in, at      string
		polling     string
		state       execgraph.State
		task        string
	}
	members := make(map[key][]int)
	var order []key
	for i, c := range p.Classes {
		k := key{c.Key.Wait, plainCause(c.Key), c.Key.In, c.Key.At, c.Key.Polling, c.Key.State, c.Key.Thread().String()}
		if members[k] == nil {
			order = append(order, k)
		}
		members[k] = append(members[k], i)
	}
	groups := make([]classGroup, len(order))
	var several [][]int
	var of []int
	for i, k := range order {
		list := members[k]
		groups[i] = classGroup{p.Classes[list[0]], 1}
		if len(list) > 1 {
			several, of = append(several, list), append(of, i)
		}
	}
	for i, c := range p.Pool(several) {
		tasks := make(map[sched.TaskID]bool)
		for _, class := range several[i] {
			tasks[p.Classes[class].Key.Task] = true
		}
		groups[of[i]] = classGroup{c, len(tasks)}
	}
	for i := range groups {
		groups[i].Key.Cause = plainCause(groups[i].Key)
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

// onCPU tells whether functions of this state come from samples.
func onCPU(s execgraph.State) bool {
	return s == execgraph.Running || s == execgraph.Interrupted
}
