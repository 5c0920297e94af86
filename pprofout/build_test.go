// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"pathprof/join"
	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

var update = flag.Bool("update", false, "write golden files")

func py(name string, first, line int32) join.Frame {
	return join.Frame{Name: name, File: "/app/app.py", FirstLine: first, Line: line, Kind: join.KindPython, Address: 0x7f00 + uint64(line)}
}

// example is a profile small enough to check by hand: app/app runs, waits for
// its worker, which sleeps and runs, and runs again without a sample. A second
// path is the worker's own.
func example() *join.Profile {
	app := join.ThreadInfo{ID: sched.TaskID{TID: 10}, PID: 10, Process: "app", Thread: "app"}
	worker := join.ThreadInfo{ID: sched.TaskID{TID: 11}, PID: 10, Process: "app", Thread: "worker"}
	key := func(t join.ThreadInfo, s execgraph.State) join.ClassKey {
		return join.ClassKey{State: s, PID: t.PID, TID: t.ID.TID, Task: t.ID, ProcessName: t.Process, ThreadName: t.Thread}
	}
	inWait := func(k join.ClassKey) join.ClassKey {
		k.Wait = join.Reason{Kind: execgraph.CauseTask, Detail: "app/worker"}
		return k
	}
	sleeping := key(worker, execgraph.Blocked)
	sleeping.Cause = join.Reason{Kind: execgraph.CauseTimer, Detail: "hrtimer"}
	main := &join.Stack{Verdict: join.Merged, Frames: []join.Frame{
		{Name: "sha256_block", Kind: join.KindNative, Address: 0x1234, Mapping: "/lib/libcrypto.so.3", BuildID: "abcd"},
		py("App.handle", 10, 12), py("<module>", 1, 40)}}
	other := &join.Stack{Verdict: join.Merged, Frames: []join.Frame{py("App.handle", 10, 13), py("<module>", 1, 40)}}
	sleep := &join.Stack{Verdict: join.Merged, Frames: []join.Frame{
		{Name: "schedule", Kind: join.KindKernel, Address: 0xffffffff81000010}, py("loop", 20, 21)}}
	work := &join.Stack{Verdict: join.Stacked, Frames: []join.Frame{
		{Name: "[unmapped code]", Kind: join.KindNative}, py("loop", 20, 22)}}
	unsampled := &join.Stack{Frames: []join.Frame{{Name: "[unsampled]", Kind: join.KindPathprof}}}
	v := func(ns, samples int64) join.Values {
		return join.Values{PathNs: ns, Samples: samples, Event: 100 * samples}
	}
	return &join.Profile{
		Event: "cpu-clock", Unit: "nanoseconds", EventNote: "no hardware counter", Hosts: []string{"web1"}, Complete: true,
		Period: 100, AskedHz: 1000, AchievedHz: 990.5, Samples: 12, Lost: 2, Throttled: 1,
		BeginNs: 5000, EndNs: 6000, RealtimeOffsetNs: 1_000_000_000,
		Verdicts: map[join.Verdict]int64{join.Merged: 5, join.Stacked: 2},
		Reasons:  map[string]int64{"native: frame pointers end outside code": 2},
		Warnings: []string{"short"},
		Paths: []join.ThreadPath{{
			Thread: app,
			Path: execgraph.Path{Target: app.ID, Begin: 5000, End: 6000, Segments: []execgraph.Segment{
				{Begin: 5000, End: 5300}, {Begin: 5300, End: 5700}, {Begin: 5700, End: 5900}, {Begin: 5900, End: 6000}}},
			Classes: []join.Class{
				{Key: key(app, execgraph.Running), Ns: 400, Share: 0.4, Segments: 2, Samples: 3, Clusters: 1, Unsampled: 100,
					Functions: []join.Function{{Name: "App.handle", Estimate: join.Estimate{Samples: 3, Share: 1, Low: 0.44, High: 1, TooFew: true}}}},
				{Key: inWait(sleeping), Ns: 400, Share: 0.4, Segments: 1,
					Functions: []join.Function{{Name: "loop", Estimate: join.Estimate{Share: 1, Low: 1, High: 1}}}},
				{Key: inWait(key(worker, execgraph.Running)), Ns: 200, Share: 0.2, Segments: 1, Samples: 2},
			},
			ClassOf: []int{0, 1, 2, 0},
			Entries: []join.Entry{
				{Stack: main, Segment: 0, Values: v(200, 2)},
				{Stack: other, Segment: 0, Values: v(100, 1)},
				{Stack: sleep, Segment: 1, Values: v(400, 0)},
				{Stack: work, Segment: 2, Values: v(200, 2)},
				{Stack: unsampled, Segment: 3, Values: v(100, 0)},
			},
		}, {
			Thread: worker,
			Path: execgraph.Path{Target: worker.ID, Begin: 5300, End: 5900, Segments: []execgraph.Segment{
				{Begin: 5300, End: 5700}, {Begin: 5700, End: 5800}, {Begin: 5800, End: 5900}}},
			Classes: []join.Class{
				{Key: sleeping, Ns: 400, Share: 2. / 3, Segments: 1},
				{Key: key(worker, execgraph.Running), Ns: 200, Share: 1. / 3, Segments: 2, Samples: 2},
			},
			ClassOf: []int{0, 1, 1},
			Entries: []join.Entry{
				{Stack: sleep, Segment: 0, Values: v(400, 0)},
				{Stack: work, Segment: 1, Values: v(100, 1)},
				{Stack: work, Segment: 2, Values: v(100, 1)},
			},
		}},
	}
}

// dump is a profile as text, a sample on three lines.
func dump(p *profile.Profile) string {
	var b strings.Builder
	for _, t := range p.SampleType {
		fmt.Fprintf(&b, "%s/%s ", t.Type, t.Unit)
	}
	fmt.Fprintf(&b, "default %s, period %d %s/%s, time %d, duration %d\n",
		p.DefaultSampleType, p.Period, p.PeriodType.Type, p.PeriodType.Unit, p.TimeNanos, p.DurationNanos)
	for _, s := range p.Sample {
		fmt.Fprintf(&b, "%v\n", s.Value)
		for _, l := range s.Location {
			line := l.Line[0]
			fmt.Fprintf(&b, "  %s %s:%d start %d", line.Function.Name, line.Function.Filename, line.Line, line.Function.StartLine)
			if m := l.Mapping; m != nil {
				fmt.Fprintf(&b, " at %#x in %s %s", l.Address, m.File, m.BuildID)
			}
			b.WriteByte('\n')
		}
		var labels []string
		for k, v := range s.Label {
			labels = append(labels, k+"="+strings.Join(v, "|"))
		}
		for k, v := range s.NumLabel {
			labels = append(labels, fmt.Sprint(k, "=", v))
		}
		slices.Sort(labels)
		fmt.Fprintf(&b, "  %s\n", strings.Join(labels, ", "))
	}
	for _, c := range p.Comments {
		fmt.Fprintf(&b, "# %s\n", c)
	}
	return b.String()
}

// golden compares with a file that was written by hand.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range max(len(g), len(w)) {
		var gl, wl string
		if i < len(g) {
			gl = g[i]
		}
		if i < len(w) {
			wl = w[i]
		}
		if gl != wl {
			t.Errorf("%s:%d:\ngot  %s\nwant %s", name, i+1, gl, wl)
		}
	}
}

func TestBuild(t *testing.T) {
	p, err := Build(example())
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "example.txt", dump(p))
	for _, m := range p.Mapping {
		if !m.HasFunctions || m.Start >= m.Limit {
			t.Errorf("mapping %+v", m)
		}
	}
	for _, l := range p.Location {
		if m := l.Mapping; m != nil && (l.Address < m.Start || l.Address >= m.Limit) {
			t.Errorf("address %#x outside of %s", l.Address, m.File)
		}
	}
}

// The sum over one path is its wall time to the nanosecond, also after a trip
// through the file format.
func TestSumIsWallTime(t *testing.T) {
	p := example()
	for i, path := range p.Paths {
		prof, err := Build(p, i)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := prof.Write(&b); err != nil {
			t.Fatal(err)
		}
		back, err := profile.ParseData([]byte(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		var ns int64
		for _, s := range back.Sample {
			ns += s.Value[0]
		}
		if want := path.Path.End - path.Path.Begin; ns != want {
			t.Errorf("path %d: %d ns, want %d", i, ns, want)
		}
	}
	if _, err := Build(p, 2); err == nil {
		t.Error("path 2 of 2: no error")
	}
}

func TestEventTypes(t *testing.T) {
	p := example()
	p.Event, p.Unit, p.Period, p.AskedHz, p.EventNote, p.Complete = "cycles", "count", 0, 0, "", false
	prof, err := Build(p)
	if err != nil {
		t.Fatal(err)
	}
	if st := prof.SampleType[2]; st.Type != "cycles" || st.Unit != "count" {
		t.Errorf("event type %s/%s", st.Type, st.Unit)
	}
	text := strings.Join(prof.Comments, "\n")
	for _, want := range []string{"event: cycles, by frequency", "asked unknown, achieved 990.5 Hz", "stopped before it finished"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestMarginWords(t *testing.T) {
	p := example()
	tests := []struct {
		n     int64
		doubt join.Doubt
		want  string
	}{
		{0, join.Doubt{}, "margin: no samples; times of waits are exact"},
		{29, join.Doubt{}, "margin: n=29, too few samples for shares; times of waits are exact"},
		{9604, join.Doubt{}, "margin: n=9604, 95 % (Wilson, if segments are alike); a share of one half is known to [49.00 %, 51.00 %]"},
		// Low: 50 of 110, high: 60+5 of 110, by Wilson's formula.
		{100, join.Doubt{Lost: 10, Unknown: 5},
			"margin: n=100, 95 % (Wilson, if segments are alike); a share of one half is known to [36.46 %, 67.82 %], widened by at most 10 lost and 5 unreadable samples"},
	}
	for _, tt := range tests {
		p.Paths[0].Classes[0].Doubt = tt.doubt
		if got := margin(p, tt.n, [][2]int{{0, 0}}); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
