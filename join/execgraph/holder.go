// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"slices"
	"sort"

	"pathprof/join/sched"
)

// untold is the holder of a GIL of which it is not known who has it.
const untold int32 = -2

// tenure is a stretch in which a task had its process' GIL, up to the next one.
type tenure struct {
	begin int64
	task  int32 // index; nobody: it was free; untold
}

// tenures makes the history of a process' GIL from its readings. Between two that
// name the same holder it held it. Where they differ, the lock changed hands in between:
// when its releaser woke the next holder out of its wait for it (CPython 3.8–3.13,
// ceval_gil.c: drop_gil signals the condition), or, if the next one did not
// wait, since it ran. Where it could have been either, it is untold. A free lock
// counts as its next holder's: who waits for it now (drop_gil does, until it is taken)
// waits for that one to come.
func (g *Graph) tenures(list []reading) []tenure {
	var out []tenure
	add := func(t int64, task int32) {
		if n := len(out); n > 0 && out[n-1].task == task {
			return
		}
		out = append(out, tenure{t, task})
	}
	before := reading{t: never, holder: nobody}
	for i, r := range list {
		next := nobody
		if r.holder != nobody {
			if next = g.alive(r.holder, r.t); next < 0 {
				next = untold
			}
		}
		switch {
		case i == 0, next == untold, len(out) > 0 && out[len(out)-1].task == next:
			add(r.t, next)
		case next == nobody:
			add(r.t, nobody) // released at the last moment: nobody else could have it
		default:
			t, sure := g.taken(next, before.t, r.t)
			switch {
			case before.holder == nobody && len(out) > 0:
				t = out[len(out)-1].begin
				out = out[:len(out)-1]
			case !sure:
				add(t, untold)
				t = r.t
			}
			add(t, next)
		}
		before = r
	}
	return out
}

// taken finds when within (from, to] a task got the GIL that it has at to: at
// the wake-up that ended its wait for it (sure), else not before it ran.
func (g *Graph) taken(task int32, from, to int64) (t int64, sure bool) {
	k := &g.lines[task]
	t = to
	for i := g.find(task, to); i >= 0; i-- {
		s, end := &k.spans[i], g.spanEnd(task, i)
		switch {
		case end <= from:
			return t, false
		case s.state == Blocked && s.flags&flagWoken != 0 && g.ons[s.on].Lock == sched.LockGIL && end <= to:
			return end, true
		case s.state == Running:
			t = max(s.begin, from)
		}
	}
	return t, false
}

// holderAt returns who had a process' GIL at t, since when and until when.
func (g *Graph) holderAt(pid int32, t int64) (task int32, from, until int64) {
	list := g.gil[pid]
	i := sort.Search(len(list), func(i int) bool { return list[i].begin > t })
	until = forever
	if i < len(list) {
		until = list[i].begin
	}
	if i == 0 {
		return untold, never, until
	}
	return list[i-1].task, list[i-1].begin, until
}

// longestHolder is who had a GIL most of the time in [begin, end): the index of
// the task, or untold. Of equals it is the earlier one.
func (g *Graph) longestHolder(pid int32, begin, end int64) int32 {
	type share struct {
		task int32
		ns   int64
	}
	var all []share
	for t := begin; t < end; {
		task, _, until := g.holderAt(pid, t)
		until = min(until, end)
		i := slices.IndexFunc(all, func(s share) bool { return s.task == task })
		if i < 0 {
			i = len(all)
			all = append(all, share{task: task})
		}
		all[i].ns += until - t
		t = until
	}
	best := share{task: untold}
	for _, s := range all {
		if s.task >= 0 && s.ns > best.ns {
			best = s
		}
	}
	return best.task
}
