// SPDX-License-Identifier: Apache-2.0

package join

import (
	"slices"
	"strings"

	"pathprof/join/execgraph"
)

// What busy waiting rests on: at the samples of a task between two waits, see the
// package's comment.
const (
	minAsked       = 12       // samples
	minAskedShare  = 1.0 / 4  // of the samples, at which the task asks
	sureAskedShare = 1.0 / 5  // the lower end of that share's 95 % interval
	minOneLoop     = 0.8      // of the samples, in one function or what it calls
	maxProgress    = 1.0 / 4  // of those that ask, at which it gets or does something
	maxReleased    = 1.0 / 20 // the same of a lock: who gets it gives it back
	lockWord       = "a lock" // what is asked
	clockWord      = "the clock"
)

// askingCalls are system calls that may say at once that there is nothing yet.
var askingCalls = []string{"sched_yield", "poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "epoll_pwait2", "wait4", "waitid"}

// askers are the functions by which CPython (3.6–3.15: Modules/_threadmodule.c,
// timemodule.c, selectmodule.c, posixmodule.c, semaphore.c) and the libc ask, by the begin of
// their names.
var askers = []struct{ prefix, what string }{
	{"lock_PyThread_acquire_lock", lockWord}, {"rlock_acquire", lockWord}, {"PyThread_acquire_lock", lockWord},
	{"_multiprocessing_SemLock_acquire", lockWord}, {"semlock_acquire", lockWord}, {"sem_trywait", lockWord},
	{"pthread_mutex_trylock", lockWord}, {"pthread_spin_lock", lockWord},
	{"time_monotonic", clockWord}, {"time_time", clockWord}, {"time_perf_counter", clockWord},
	{"time_thread_time", clockWord}, {"time_process_time", clockWord}, {"clock_gettime", clockWord},
	{"select_poll_poll", "poll"}, {"select_select", "select"}, {"select_epoll_poll", "epoll_wait"},
	{"os_sched_yield", "sched_yield"}, {"os_waitpid", "wait4"}, {"os_wait4", "wait4"}, {"os_waitid", "waitid"},
}

// releasers give back a lock that was asked for, and got.
var releasers = []string{"lock_PyThread_release_lock", "rlock_release", "PyThread_release_lock", "_multiprocessing_SemLock_release", "semlock_release"}

// ask is what a stack says about busy waiting.
type ask struct {
	what     string // asked; empty if it does not ask
	progress bool   // it does something for which it would have waited
	// loop are the two innermost functions: a loop, and what it calls.
	loop [2]functionKey
}

// askOf looks at the frames that the innermost Python function called, without
// one at all of them.
func askOf(s *Stack) (a ask) {
	python := 0
	for i := range s.Frames { // innermost first
		f := &s.Frames[i]
		if f.Kind == KindPython {
			if a.loop[python] = keyOf(f); python == 1 {
				break
			}
			python++
			continue
		}
		if python > 0 {
			continue
		}
		if f.Kind == KindKernel {
			m, _ := entryMode(f.Name)
			if call, ok := strings.CutPrefix(string(m), string(callMode(""))); ok && call != unnamedCall {
				switch {
				case slices.Contains(askingCalls, call):
					a.what = call
				case call != "clock_gettime":
					a.progress = true
				}
			}
			continue
		}
		for _, k := range askers {
			if strings.HasPrefix(strings.TrimLeft(f.Name, "_"), strings.TrimLeft(k.prefix, "_")) {
				a.what = k.what // the outermost: poll looks at the clock
			}
		}
		a.progress = a.progress || slices.ContainsFunc(releasers, func(p string) bool { return strings.HasPrefix(f.Name, p) })
	}
	if python == 0 && len(s.Frames) > 0 {
		a.loop[0] = keyOf(&s.Frames[len(s.Frames)-1])
	}
	if a.what != "" {
		a.progress = false
	}
	return a
}

// asked counts the samples of a task between two waits.
type asked struct {
	samples, asking, progress int64
	what                      map[string]int64
	loops                     map[functionKey]int64
}

// busy returns what a task asks again and again instead of waiting, empty if it does
// not.
func (c *asked) busy() string {
	if c.samples < minAsked || float64(c.asking) < minAskedShare*float64(c.samples) {
		return ""
	}
	most, limit := "", maxProgress
	for word, n := range c.what {
		if most == "" || n > c.what[most] || n == c.what[most] && word < most {
			most = word
		}
	}
	if most == lockWord {
		limit = maxReleased
	}
	var loop int64
	for _, n := range c.loops {
		loop = max(loop, n)
	}
	low, _ := Wilson(c.asking, c.samples)
	if low < sureAskedShare || float64(c.progress) > limit*float64(c.asking) || float64(loop) < minOneLoop*float64(c.samples) {
		return ""
	}
	return most
}

// busy finds the segments in which tasks wait busily, by what they ask: entries
// of segment i end at ends[i]. Being preempted in between does not end it.
func busy(path *execgraph.Path, entries []Entry, ends []int) []string {
	out := make([]string, len(path.Segments))
	asks := make(map[*Stack]ask)
	for i := 0; i < len(out); {
		head := &path.Segments[i]
		c := asked{what: make(map[string]int64), loops: make(map[functionKey]int64)}
		begin := i
		for ; i < len(out); i++ {
			seg := &path.Segments[i]
			if seg.Task != head.Task || seg.Wait != head.Wait || !onCPU(seg.State) && seg.State != execgraph.Preempted {
				break
			}
			if onCPU(seg.State) {
				c.add(entries[first(ends, i):ends[i]], asks)
			}
		}
		if word := c.busy(); word != "" {
			for k := begin; k < i; k++ {
				if onCPU(path.Segments[k].State) {
					out[k] = word
				}
			}
		}
		i = max(i, begin+1)
	}
	return out
}

// add counts the entries of a segment.
func (c *asked) add(entries []Entry, asks map[*Stack]ask) {
	for _, e := range entries {
		n := e.Values.Samples
		if n == 0 {
			continue
		}
		a, ok := asks[e.Stack]
		if !ok {
			a = askOf(e.Stack)
			asks[e.Stack] = a
		}
		c.samples += n
		if a.what != "" {
			c.asking += n
			c.what[a.what] += n
		}
		if a.progress {
			c.progress += n
		}
		c.loops[a.loop[0]] += n
		if a.loop[1] != a.loop[0] && a.loop[1] != (functionKey{}) {
			c.loops[a.loop[1]] += n
		}
	}
}
