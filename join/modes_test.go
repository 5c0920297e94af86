// SPDX-License-Identifier: Apache-2.0

package join

import (
	"math/rand/v2"
	"testing"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// Names as kernels 6.1 and 6.18 have them, innermost first.
func TestEntryMode(t *testing.T) {
	for _, c := range []struct {
		stack string
		want  Mode
	}{
		{"k:vfs_read k:ksys_read k:__x64_sys_read k:do_syscall_64 p:main!", "system call read"},
		{"k:do_sys_openat2 k:__x64_sys_openat k:do_syscall_64 p:main!", "system call openat"},
		{"k:schedule k:__do_sys_sched_yield k:do_syscall_64 p:main!", "system call sched_yield"},
		{"k:vfs_read k:ksys_read k:do_syscall_64 p:main!", "system call read"},
		{"k:exit_to_user_mode_loop k:do_syscall_64 p:main!", "system call unnamed"},
		{"k:fput k:__arm64_sys_close k:invoke_syscall k:el0_svc p:main!", "system call close"},
		{"k:clear_page k:handle_mm_fault k:exc_page_fault k:asm_exc_page_fault p:main!", "fault"},
		{"k:copy_page k:asm_exc_page_fault k:copy_to_user k:__x64_sys_read p:main!", "fault"},
		{"k:net_rx_action k:handle_softirqs k:do_softirq k:__x64_sys_sendto p:main!", "softirq"},
		{"k:tick k:asm_sysvec_apic_timer_interrupt k:ksys_write k:__x64_sys_write p:main!", "interrupt"},
		{"k:worker_thread k:kthread k:ret_from_fork", ModeUnknown},
		{"p:f p:main!", ModeUnknown},
	} {
		stack, frame := parseStack(t, c.stack)
		j := &joiner{stacks: newStackSet(func(uint32) *recording.Stack { return stack }, frame, FramesAll)}
		clock := newModeClock(j)
		if got := clock.ofStack(1); got != c.want {
			t.Errorf("%s: got %q, want %q", c.stack, got, c.want)
		}
	}
}

// modeExample is a clock with stack 1 in the call read, 2 in a fault.
func modeExample(t *testing.T) (modeClock, *joiner) {
	t.Helper()
	stacks := []string{"", "k:vfs_read k:__x64_sys_read p:main!", "k:clear_page k:asm_exc_page_fault p:main!"}
	j := &joiner{
		names: newNames([]execgraph.Task{{ID: task(1), PID: 1}, {ID: task(2), PID: 1}, {ID: task(3), PID: 3}}, &recording.Meta{}),
		stacks: newStackSet(func(id uint32) *recording.Stack {
			s, _ := parseStack(t, stacks[id])
			for i := range s.Kernel {
				s.Kernel[i] += id * 100
			}
			for i := range s.Python {
				s.Python[i] += id * 100
			}
			return s
		}, func(id uint32) *recording.Frame {
			_, frame := parseStack(t, stacks[id/100])
			return frame(id % 100)
		}, FramesAll),
		samples: make(map[sched.TaskID][]recording.Sample),
	}
	return newModeClock(j), j
}

// A task has segments of about 1000 ns, 10 with a sample: 6 in a call, 4 in a fault, and of
// about 100000 ns, 20 in user mode. 5000 ns of short segments have no sample: 3000 are the
// call's, 2000 the fault's. Another task of the process has no sample in its 3000: it is
// like the first in segments of that length. Of a third one, of another process, nothing is known.
func TestExtrapolatedModes(t *testing.T) {
	c, j := modeExample(t)
	at := int64(0)
	run := func(id int32, ns int64, stack int) {
		seg := execgraph.Segment{Begin: at, End: at + ns, Task: task(id), State: execgraph.Running}
		list := j.samples[task(id)]
		s := span{task: task(id), lo: len(list), hi: len(list)}
		if stack >= 0 {
			j.samples[task(id)] = append(list, recording.Sample{Time: at, Stack: uint32(stack), Value: 7, Kernel: stack > 0})
			s.hi++
		}
		c.running(&seg, s)
		at += ns
	}
	for i := range 10 {
		run(1, 1000, []int{1, 2}[i/6])
	}
	for range 20 {
		run(1, 100_000, 0)
	}
	for range 5 {
		run(1, 1000, -1)
	}
	run(2, 3000, -1)
	run(3, 500, -1)
	got := make(map[Mode]ModeShare)
	sum := int64(0)
	for _, m := range c.shares() {
		got[m.Mode] = m
		sum += m.Ns
	}
	for _, want := range []ModeShare{
		{ModeUser, 2_000_000, 0},
		{callMode("read"), 6000 + 3000 + 1800, 3000 + 1800},
		{ModeFault, 4000 + 2000 + 1200, 2000 + 1200},
		{ModeUnknown, 500, 0},
	} {
		if got[want.Mode] != want {
			t.Errorf("got %+v, want %+v", got[want.Mode], want)
		}
	}
	if sum != at || len(got) != 4 {
		t.Errorf("%d modes sum to %d, want %d", len(got), sum, at)
	}
}

// Whatever the segments and samples, modes sum to the time, and the estimate of
// a mode that depends on the length of segments is right on average.
func TestModesSum(t *testing.T) {
	var told, truth int64
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		c, j := modeExample(t)
		const period = 10_000
		at, next := int64(0), r.Int64N(period)
		for at < 2_000_000 {
			short := r.IntN(3) > 0 // these are in a call for their first half
			ns := 50_000 + r.Int64N(50_000)
			if short {
				ns = 1000 + r.Int64N(3000)
			}
			list := j.samples[task(1)]
			s := span{task: task(1), lo: len(list)}
			for ; next < at+ns; next += period {
				inCall := short && next < at+ns/2
				sample := recording.Sample{Time: next, Value: 1, Kernel: inCall}
				if inCall {
					sample.Stack = 1
				}
				list = append(list, sample)
			}
			if short {
				truth += ns / 2
			}
			j.samples[task(1)], s.hi = list, len(list)
			c.running(&execgraph.Segment{Begin: at, End: at + ns, Task: task(1), State: execgraph.Running}, s)
			at += ns
		}
		sum := int64(0)
		for _, m := range c.shares() {
			sum += m.Ns
			if m.Mode == callMode("read") {
				told += m.Ns
			}
		}
		if sum != at {
			t.Fatalf("seed %d: modes sum to %d, want %d", seed, sum, at)
		}
	}
	if ratio := float64(told) / float64(truth); ratio < 0.95 || ratio > 1.05 {
		t.Errorf("%d ns in the call, want %d", told, truth)
	}
}
