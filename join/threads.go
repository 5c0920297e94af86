// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"pathprof/join/execgraph"
	"pathprof/perfevent/recording"
)

// thread is a task that gets a path, and the window of it.
type thread struct {
	task       execgraph.Task
	order      int // of its target
	begin, end int64
}

// chooseThreads returns the threads that get a path: the first target's first,
// of each process the main thread first.
func chooseThreads(g *execgraph.Graph, nm *names, meta *recording.Meta, opt Options) ([]thread, error) {
	order := make(map[int32]int, len(meta.Targets))
	for i, t := range meta.Targets {
		if _, ok := order[t.PID]; !ok {
			order[t.PID] = i
		}
	}
	reused := reusedAt(g, order)
	var out []thread
	var all []string
	known := false
	for _, t := range g.Tasks() {
		n, target := order[t.PID]
		again, over := reused[t.PID]
		if !target || over && t.Begin >= again {
			continue
		}
		if !chosen(nm.of(t.ID), opt.Threads) {
			all = append(all, nm.of(t.ID).String())
			continue
		}
		known = true
		th := thread{task: t, order: n, begin: max(t.Begin, g.Begin, opt.From), end: min(t.End, g.End)}
		if opt.To != 0 {
			th.end = min(th.end, opt.To)
		}
		if th.begin < th.end {
			out = append(out, th)
		}
	}
	switch {
	case !known && len(opt.Threads) > 0:
		return nil, fmt.Errorf("%w: %s; there are %s", ErrNoThread, strings.Join(opt.Threads, ", "), someOf(all))
	case !known:
		return nil, fmt.Errorf("%w: the recording has no thread of its targets", ErrNoThread)
	case len(out) == 0:
		return nil, ErrNoWindow
	}
	slices.SortFunc(out, func(a, b thread) int {
		return cmp.Or(
			cmp.Compare(a.order, b.order),
			cmp.Compare(a.task.PID, b.task.PID),
			compareBool(b.task.ID.TID == b.task.PID, a.task.ID.TID == a.task.PID),
			cmp.Compare(a.task.Begin, b.task.Begin),
			cmp.Compare(a.task.ID.TID, b.task.ID.TID),
		)
	})
	return out, nil
}

// reusedAt gives, for targets that lived when recording began, the time at which
// their process number went to another process.
func reusedAt(g *execgraph.Graph, targets map[int32]int) map[int32]int64 {
	at := make(map[int32]int64)
	first := make(map[int32]bool)
	for _, t := range g.Tasks() { // by number, then begin
		if _, ok := targets[t.PID]; !ok || t.ID.TID != t.PID || t.Renamed {
			continue
		}
		if _, ok := at[t.PID]; !ok && first[t.PID] {
			at[t.PID] = t.Begin
		}
		if !t.Born {
			first[t.PID] = true
		}
	}
	return at
}

// mainThread is what Python calls a process' first thread; its name in the kernel
// is the program's.
const mainThread = "MainThread"

// chosen tells whether a thread is among those asked for.
func chosen(t ThreadInfo, want []string) bool {
	number := strconv.Itoa(int(t.ID.TID))
	for _, w := range want {
		if w == number || w == t.Thread || w == t.String() || w == mainThread && t.ID.TID == t.PID {
			return true
		}
	}
	return len(want) == 0
}

// someOf lists the first few of names.
func someOf(names []string) string {
	const most = 8
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
