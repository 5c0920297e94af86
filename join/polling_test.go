// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"

	"pathprof/join/execgraph"
	"pathprof/perfevent/recording"
)

// Stacks as CPython 3.8 to 3.13 and kernel 6.18 leave them, innermost first.
func TestAskOf(t *testing.T) {
	for _, c := range []struct {
		stack    string
		what     string
		progress bool
	}{
		{"k:schedule k:__do_sys_sched_yield k:do_syscall_64 n:sched_yield n:os_sched_yield p:spin p:main!", "sched_yield", false},
		{"n:select_poll_poll p:spin p:main!", "poll", false},
		{"n:clock_gettime n:_PyTime_GetMonotonicClock n:select_poll_poll p:spin p:main!", "poll", false},
		{"k:__x64_sys_pselect6 k:do_syscall_64 n:select n:select_select_impl p:spin p:main!", "select", false},
		{"n:_PyTime_GetMonotonicClock n:PyThread_acquire_lock_timed n:lock_PyThread_acquire_lock p:spin p:main!", lockWord, false},
		{"n:lock_PyThread_release_lock p:count p:main!", "", true},
		{"k:__x64_sys_clock_gettime k:do_syscall_64 n:clock_gettime n:time_thread_time_ns p:spin p:main!", clockWord, false},
		{"k:kernel_wait4 k:__do_sys_wait4 k:do_syscall_64 n:wait4 n:os_waitpid p:spin p:main!", "wait4", false},
		{"k:ksys_read k:__x64_sys_read k:do_syscall_64 n:read n:os_read p:talk p:main!", "", true},
		{"n:_PyLong_Add p:work p:main!", "", false},
		{"p:work p:main!", "", false},
		{"n:work n:select_poll_poll p:work p:main!", "poll", false},
	} {
		s, frame := parseStack(t, c.stack)
		j := newStackSet(func(uint32) *recording.Stack { return s }, frame, FramesAll)
		if a := askOf(j.get(1)); a.what != c.what || a.progress != c.progress {
			t.Errorf("%s: got %+v, want %q, %v", c.stack, a, c.what, c.progress)
		}
	}
}

// What a task does between two waits, in numbers of samples.
func TestBusy(t *testing.T) {
	at := func(name string) *Stack {
		native := map[string]string{"yield": "os_sched_yield", "lock": "lock_PyThread_acquire_lock", "release": "lock_PyThread_release_lock", "clock": "time_monotonic"}[name]
		s := &Stack{Frames: []Frame{{Name: "loop", File: "a.py", Kind: KindPython}, {Name: "main", File: "a.py", Kind: KindPython}}}
		switch name {
		case "read":
			s.Frames = append([]Frame{{Name: "__x64_sys_read", Kind: KindKernel}}, s.Frames...)
		case "elsewhere":
			s.Frames = append([]Frame{{Name: "g", File: "b.py", Kind: KindPython}, {Name: "f", File: "b.py", Kind: KindPython}}, s.Frames...)
		case "":
		default:
			s.Frames = append([]Frame{{Name: native, Kind: KindNative}}, s.Frames...)
		}
		return s
	}
	for _, c := range []struct {
		name    string
		samples map[string]int64
		want    string
	}{
		{"spin", map[string]int64{"yield": 12, "": 1}, "sched_yield"},
		{"too few", map[string]int64{"yield": 11}, ""},
		{"half", map[string]int64{"lock": 25, "": 25}, lockWord},
		{"a third of few", map[string]int64{"clock": 4, "": 8}, ""},
		{"a fifth", map[string]int64{"clock": 20, "": 80}, ""},
		{"a counter under a lock", map[string]int64{"lock": 40, "release": 3, "": 57}, ""},
		{"a server that always has something to read", map[string]int64{"yield": 40, "read": 30, "": 20}, ""},
		{"with work in between", map[string]int64{"yield": 40, "elsewhere": 30}, ""},
		{"mostly the clock", map[string]int64{"yield": 10, "clock": 30, "": 10}, clockWord},
	} {
		// Preempted in between, and followed by a wait and by one sample that asks.
		path := execgraph.Path{Waits: make([]execgraph.Wait, 1)}
		var entries []Entry
		var ends []int
		segment := func(state execgraph.State, wait int, e ...Entry) {
			path.Segments = append(path.Segments, execgraph.Segment{Task: task(1), State: state, Wait: wait})
			entries = append(entries, e...)
			ends = append(ends, len(entries))
		}
		for name, n := range c.samples {
			segment(execgraph.Running, -1, Entry{Stack: at(name), Values: Values{Samples: n - n/2}})
			segment(execgraph.Preempted, -1, Entry{Stack: at("")})
			segment(execgraph.Running, -1, Entry{Stack: at(name), Values: Values{Samples: n / 2}})
		}
		segment(execgraph.Blocked, 0, Entry{Stack: at("read")})
		segment(execgraph.Running, -1, Entry{Stack: at("yield"), Values: Values{Samples: 1}})
		for i, got := range busy(&path, entries, ends) {
			want := c.want
			if path.Segments[i].State != execgraph.Running || i == len(path.Segments)-1 {
				want = ""
			}
			if got != want {
				t.Errorf("%s: segment %d: got %q, want %q", c.name, i, got, want)
			}
		}
	}
}
