// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

func task(tid int32) sched.TaskID { return sched.TaskID{TID: tid} }

// example is a joiner and a path of it, small enough to join by hand. app/app
// (10) runs, is preempted by gzip, waits for its worker (11), which first
// sleeps, and runs on.
func example(t *testing.T) (*joiner, execgraph.Path) {
	t.Helper()
	stacks := []string{"", "p:f p:main!", "p:g p:main!", "k:schedule n:nanosleep@libc p:sleep p:loop!", "p:h p:loop!", "n:?"}
	stackOf := func(id uint32) *recording.Stack {
		if id == 0 || int(id) >= len(stacks) {
			return nil
		}
		s, _ := parseStack(t, stacks[id])
		// Frame numbers of all stacks in one table: 100 a stack.
		for _, list := range [][]uint32{s.Kernel, s.Native, s.Python} {
			for i := range list {
				list[i] += id * 100
			}
		}
		return s
	}
	frameOf := func(id uint32) *recording.Frame {
		_, frame := parseStack(t, stacks[id/100])
		f := *frame(id % 100)
		if f.Kind == recording.FramePython {
			f.File, f.FirstLine, f.Line = "/app/"+f.Name+".py", 7, 9
		}
		return &f
	}
	j := &joiner{
		names: newNames([]execgraph.Task{
			{ID: task(10), PID: 10, Name: "app"},
			{ID: task(11), PID: 10, Name: "worker"},
			{ID: task(20), PID: 20, Name: "gzip"},
		}, &recording.Meta{}),
		stacks:  newStackSet(stackOf, frameOf, FramesPython),
		targets: map[int32]bool{10: true},
		begin:   -1,
		samples: map[sched.TaskID][]recording.Sample{
			task(10): {
				{Time: -5, Stack: 1, Value: 100},  // before the window
				{Time: 50, Stack: 1, Value: 100},  // f
				{Time: 150, Stack: 2, Value: 100}, // g
				{Time: 250, Stack: 1, Value: 100}, // f
				{Time: 305, Stack: 1, Value: 100}, // off the CPU, says the graph
				{Time: 600, Stack: 1, Value: 100}, // first ns of the last segment
				{Time: 1000, Stack: 1, Value: 100},
			},
			task(11): {
				{Time: 450, Stack: 4, Value: 100},
				{Time: 500, Stack: 4, Value: 100},
				{Time: 599, Stack: 0, Value: 100},
			},
		},
	}
	waker := execgraph.Cause{Kind: execgraph.CauseTask, Task: task(11)}
	path := execgraph.Path{
		Target: task(10), Begin: 0, End: 1000,
		Segments: []execgraph.Segment{
			{Begin: 0, End: 300, Task: task(10), State: execgraph.Running, Wait: -1},
			{Begin: 300, End: 310, Task: task(10), State: execgraph.Preempted, Wait: -1,
				Cause: execgraph.Cause{Kind: execgraph.CauseTask, Task: task(20)}},
			{Begin: 310, End: 317, Task: task(10), State: execgraph.Running, Wait: -1},
			{Begin: 317, End: 400, Task: task(11), State: execgraph.Blocked, Wait: 0, Depth: 1, Stack: 3,
				Cause: execgraph.Cause{Kind: execgraph.CauseTimer, Ctx: sched.ContextHrtimer}},
			{Begin: 400, End: 600, Task: task(11), State: execgraph.Running, Wait: 0, Depth: 1},
			{Begin: 600, End: 1000, Task: task(10), State: execgraph.Running, Wait: -1},
		},
		Waits: []execgraph.Wait{{Begin: 317, End: 600, Cause: waker}},
	}
	return j, path
}

// folded is a stack outermost first.
func folded(s *Stack) string {
	var b []string
	for i := len(s.Frames) - 1; i >= 0; i-- {
		b = append(b, s.Frames[i].Name)
	}
	return strings.Join(b, ";")
}

func TestJoinByHand(t *testing.T) {
	j, path := example(t)
	got, err := j.join(path)
	if err != nil {
		t.Fatal(err)
	}
	// Segment, stack, samples, event, ns. 300 ns over three samples, two of them
	// alike; 200 over three: 67, 67, 66, as 66.67 leaves 2 ns for the earlier.
	want := `
0 main;f 2 200 200
0 main;g 1 100 100
1 [preempted by gzip/gzip] 0 0 10
2 [unsampled] 0 0 7
3 loop;sleep;nanosleep;schedule 0 0 83
4 loop;h 2 200 134
4 [no stack: not taken] 1 100 66
5 main;f 1 100 400
`
	var b strings.Builder
	b.WriteByte('\n')
	for _, e := range got.path.Entries {
		fmt.Fprintf(&b, "%d %s %d %d %d\n", e.Segment, folded(e.Stack), e.Values.Samples, e.Values.Event, e.Values.PathNs)
	}
	if b.String() != want {
		t.Errorf("entries:%swant:%s", b.String(), want)
	}
	if got.outside != 2 || got.off != 1 {
		t.Errorf("outside %d, off %d, want 2 and 1", got.outside, got.off)
	}
	want = `
running app/app: 707 ns, 3 segments, 4 samples, 7 unsampled
in wait (task app/worker): running app/worker: 200 ns, 1 segments, 3 samples, 0 unsampled
in wait (task app/worker): blocked (timer hrtimer) app/worker: 83 ns, 1 segments, 0 samples, 0 unsampled
preempted (task gzip/gzip) app/app: 10 ns, 1 segments, 0 samples, 0 unsampled
`
	b.Reset()
	b.WriteByte('\n')
	for _, c := range got.path.Classes {
		fmt.Fprintf(&b, "%s: %d ns, %d segments, %d samples, %d unsampled\n", c.Key, c.Ns, c.Segments, c.Samples, c.Unsampled)
	}
	if b.String() != want {
		t.Errorf("classes:%swant:%s", b.String(), want)
	}
	if fmt.Sprint(got.path.ClassOf) != "[0 3 0 2 1 0]" {
		t.Errorf("ClassOf %v, want [0 3 0 2 1 0]", got.path.ClassOf)
	}
}

// A path that does not tile its window must not become a profile.
func TestJoinRefusesGaps(t *testing.T) {
	tests := []struct {
		name   string
		change func(p *execgraph.Path)
	}{
		{"gap", func(p *execgraph.Path) { p.Segments[1].Begin++ }},
		{"overlap", func(p *execgraph.Path) { p.Segments[1].Begin-- }},
		{"short", func(p *execgraph.Path) { p.End++ }},
		{"late", func(p *execgraph.Path) { p.Begin-- }},
		{"backward", func(p *execgraph.Path) { p.Segments[0].End = -1; p.Segments[1].Begin = -1 }},
		{"empty segment", func(p *execgraph.Path) { p.Segments[2].Begin, p.Segments[2].End = 310, 310 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, path := example(t)
			tt.change(&path)
			if _, err := j.join(path); err == nil {
				t.Error("no error")
			}
		})
	}
}

// The frames of the program that took a stack at a switch are no part of the
// wait; a sample in them is none of the function's that they interrupt.
func TestTracerFrames(t *testing.T) {
	const tracer = "k:bpf_prog_653bdd19f637b4b7_on_switch k:bpf_trace_run4 "
	tests := []struct{ name, in, wait, sample string }{
		{"switch", tracer + "k:__schedule k:schedule p:f!", "f;schedule;__schedule", "f;schedule;__schedule;[tracing]"},
		{"through a helper", "k:bpf_get_stack k:[kernel] k:bpf_trace_run4 k:__traceiter_sched_switch k:__schedule", "__schedule",
			"__schedule;[tracing]"},
		{"none", "k:__schedule p:f!", "f;__schedule", "f;__schedule"},
		{"record of a mapping", "k:perf_output_copy k:perf_event_mmap_output k:perf_event_mmap k:mmap_region p:f!", "f;mmap_region",
			"f;mmap_region;[tracing]"},
		{"of native code", tracer + "k:__schedule n:sem_wait@libc p:f!", "f;sem_wait;__schedule", "f;sem_wait;__schedule;[tracing]"},
		{"nothing else", tracer, "[tracing]", "[tracing]"},
		{"further out", "k:__schedule k:bpf_trace_run1 p:f!", "f", "f;[tracing]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			raw, frame := parseStack(t, tt.in)
			raw.NativeStop = recording.StopNone
			s := newStackSet(func(uint32) *recording.Stack { return raw }, frame, FramesPython)
			if got := folded(s.waited(1)); got != tt.wait {
				t.Errorf("wait %s, want %s", got, tt.wait)
			}
			if got := folded(s.get(1)); got != tt.sample {
				t.Errorf("sample %s, want %s", got, tt.sample)
			}
			if f := top(s.get(1)); (f == nil) != strings.Contains(tt.sample, "[tracing]") {
				t.Errorf("sample's function: got %v of %s", f, tt.sample)
			}
			if k, ok := calleeOf(s.get(1)); ok && strings.Contains(tt.sample, "[tracing]") {
				t.Errorf("sample's native function: got %v of %s", k, tt.sample)
			}
		})
	}
}

// What a class is named by stays the same for the next client or child.
func TestAlikeIn(t *testing.T) {
	for in, want := range map[string]string{
		"recvfrom of tcp 10.0.0.2:4000>10.0.0.1:80": "recvfrom of tcp >10.0.0.1:80",
		"recvfrom of tcp 10.0.0.1:80<10.0.0.2:4000": "recvfrom of tcp 10.0.0.1:80<",
		"read of unix [77]>/run/x":                  "read of unix >/run/x",
		"wait4 for child 77":                        "wait4 for a child",
		"read of pipe:[33]":                         "read of pipe:[33]",
	} {
		if got := alikeIn(in); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

func TestWaitStacks(t *testing.T) {
	unknownCause := func(why string) execgraph.Cause {
		return execgraph.Cause{Kind: execgraph.CauseUnknown, Why: why}
	}
	tests := []struct {
		name    string
		seg     execgraph.Segment
		thinned bool
		want    string
	}{
		{"blocked", execgraph.Segment{Begin: 5, Task: task(10), State: execgraph.Blocked, Stack: 1}, false, "main;f"},
		{"not taken", execgraph.Segment{Begin: 5, Task: task(10), State: execgraph.Blocked}, false, "[no stack: not taken]"},
		{"thinned", execgraph.Segment{Begin: 5, Task: task(10), State: execgraph.Blocked}, true,
			"[no stack: left out, the thread blocks too often]"},
		{"not ours", execgraph.Segment{Begin: 5, Task: task(20), State: execgraph.Blocked}, false,
			"[no stack: not a thread of the target]"},
		{"before", execgraph.Segment{Begin: -1, Task: task(10), State: execgraph.Blocked}, false,
			"[no stack: blocked before the recording began]"},
		{"damaged number", execgraph.Segment{Task: task(10), State: execgraph.Blocked, Stack: 77}, false,
			"[no stack: not recorded]"},
		{"preempted with a stack", execgraph.Segment{Task: task(10), State: execgraph.Preempted, Stack: 1,
			Cause: execgraph.Cause{Kind: execgraph.CauseTask, Task: task(11)}}, false, "main;f;[preempted by app/worker]"},
		{"preempted by nobody known", execgraph.Segment{Task: task(10), State: execgraph.Preempted,
			Cause: unknownCause("lost")}, false, "[preempted: lost]"},
		{"unknown", execgraph.Segment{Task: task(10), Cause: unknownCause("outside")}, false, "[unknown: outside]"},
		{"unknown without a word", execgraph.Segment{Task: task(10)}, false, "[unknown: not recorded]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			j, _ := example(t)
			j.thinned = tt.thinned
			if got := folded(j.waitStack(&tt.seg)); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			if a, b := j.waitStack(&tt.seg), j.waitStack(&tt.seg); a != b {
				t.Error("asked twice, two stacks")
			}
		})
	}
}

func TestShareOut(t *testing.T) {
	tests := []struct {
		total   int64
		weights []int64
		want    string
	}{
		{10, []int64{1}, "[10]"},
		{10, []int64{1, 1, 1}, "[4 3 3]"},
		{11, []int64{1, 1, 1}, "[4 4 3]"},
		{0, []int64{1, 2}, "[0 0]"},
		{2, []int64{1, 1, 1, 1}, "[1 1 0 0]"},
		{100, []int64{1, 2, 1}, "[25 50 25]"},
		{7, []int64{1, 3}, "[2 5]"}, // 1.75, 5.25
		{1 << 62, []int64{1 << 61, 1 << 61}, fmt.Sprint([]int64{1 << 61, 1 << 61})},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(shareOut(tt.total, tt.weights)); got != tt.want {
			t.Errorf("shareOut(%d, %v) = %s, want %s", tt.total, tt.weights, got, tt.want)
		}
	}
}

// The parts sum exactly, and none is off by a whole nanosecond.
func FuzzShareOut(f *testing.F) {
	f.Add(int64(1_000_003), uint64(1), 7)
	f.Add(int64(0), uint64(2), 1)
	f.Add(int64(1<<50), uint64(3), 1000)
	f.Fuzz(func(t *testing.T, total int64, seed uint64, n int) {
		if total < 0 || n < 1 || n > 2000 {
			t.Skip()
		}
		rng := rand.New(rand.NewPCG(seed, 0))
		list := make([]recording.Sample, n)
		for i := range list {
			list[i].Value = rng.Int64N(1 << (1 + rng.IntN(62)))
		}
		w := weights(list)
		var sum, weight int64
		for _, x := range w {
			if x <= 0 {
				t.Fatalf("weight %d", x)
			}
			weight += x
		}
		parts := shareOut(total, w)
		for i, p := range parts {
			sum += p
			ideal := float64(total) * (float64(w[i]) / float64(weight))
			if slack := 1 + ideal*1e-12; float64(p) < ideal-slack || float64(p) > ideal+slack {
				t.Fatalf("part %d is %d, ideal %v", i, p, ideal)
			}
		}
		if sum != total {
			t.Fatalf("parts sum to %d, want %d", sum, total)
		}
	})
}
