// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"slices"
	"sort"

	"pathprof/join/sched"
)

// Waits that end by their own timeout and begin anew are one wait to the program:
// CPython waits for the GIL in pieces of its switch interval (5 ms), and event loops
// poll with a timeout and find nothing to do.
const (
	// maxRetryNs is how long a thread may be on a CPU between two pieces of a wait
	// for the GIL; it takes microseconds (ceval_gil.c, take_gil).
	maxRetryNs = 1_000_000
	// maxIdleTurnNs is the same for a loop that finds nothing to do: one turn of
	// asyncio's takes about 50 µs, with cold caches several times that.
	maxIdleTurnNs = 500_000
)

// group is a logical wait: several Blocked spans of a line, and what lies between.
type group struct {
	first, last int32 // indices of the first and last Blocked span
}

// groups finds the logical waits of a line.
func (g *Graph) groups(task int32) (out []group) {
	spans := g.lines[task].spans
	open := -1 // first span of the present wait
	last := -1 // its latest one
	flush := func() {
		if last > open {
			out = append(out, group{int32(open), int32(last)})
		}
	}
	ran := int64(0) // since the latest one
	for i := range spans {
		s := &spans[i]
		switch s.state {
		case Preempted:
		case Running:
			ran += g.spanEnd(task, i) - s.begin
		case Blocked:
			if last < 0 || !g.again(task, last, i, ran) {
				flush()
				open = i
			}
			last, ran = i, 0
		default:
			flush()
			open, last = -1, -1
		}
	}
	flush()
	return out
}

// again tells whether the wait of span j goes on with that of span i, which timed
// out, after the task was so long on a CPU.
func (g *Graph) again(task int32, i, j int, ran int64) bool {
	spans := g.lines[task].spans
	a, b := &spans[i], &spans[j]
	on, next := &g.ons[a.on], &g.ons[b.on]
	timedOut := a.flags&flagWoken != 0 && (a.ctx == sched.ContextHrtimer || a.ctx == sched.ContextTimer)
	switch {
	case !timedOut || on.Timeout <= 0:
		return false
	case on.Lock == sched.LockGIL:
		return next.Lock == sched.LockGIL && ran <= maxRetryNs && !g.held(task, g.spanEnd(task, i), b.begin)
	}
	return on.Call != 0 && on.Call == next.Call && on.Object == next.Object && on.Lock == next.Lock && next.Timeout > 0 &&
		(a.stack == b.stack || epoll(on.Call)) && ran <= maxIdleTurnNs && polls(on.Call)
}

// epoll tells whether a call's object says by itself what is waited for. Compilers
// make two places of the condition of a loop (CPython from 3.10 on), so that
// the first turn of one has another stack than the rest.
func epoll(c sched.Call) bool {
	return c == sched.CallEpollWait || c == sched.CallEpollPwait || c == sched.CallEpollPwait2
}

// polls tells whether a call waits for one of several things to happen.
func polls(c sched.Call) bool {
	switch c {
	case sched.CallPoll, sched.CallPpoll, sched.CallSelect, sched.CallPselect6,
		sched.CallEpollWait, sched.CallEpollPwait, sched.CallEpollPwait2, sched.CallFutex:
		return true
	}
	return false
}

// held tells whether some reading within [begin, end] has a task as holder of
// its process' GIL.
func (g *Graph) held(task int32, begin, end int64) bool {
	list := g.facts.readings[g.tasks[task].PID]
	i := sort.Search(len(list), func(i int) bool { return list[i].t >= begin })
	for ; i < len(list) && list[i].t <= end; i++ {
		if list[i].holder == g.tasks[task].ID.TID {
			return true
		}
	}
	return false
}

// groupAt returns the first and last Blocked span of the logical wait in which
// span i of a line lies. A span that is no wait, or a wait of its own, is both.
func (g *Graph) groupAt(task int32, i int) (first, last int) {
	list := g.lines[task].groups
	n, found := slices.BinarySearchFunc(list, int32(i), func(k group, i int32) int {
		switch {
		case k.last < i:
			return -1
		case k.first > i:
			return 1
		}
		return 0
	})
	if !found {
		return i, i
	}
	return int(list[n].first), int(list[n].last)
}
