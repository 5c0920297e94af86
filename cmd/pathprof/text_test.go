// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"pathprof/join"
	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

func TestParseMoment(t *testing.T) {
	meta := &recording.Meta{BeginNs: 1_000, RealtimeOffsetBeginNs: 5_000_000_000}
	for _, test := range []struct {
		text string
		want int64
	}{
		{"", 42},
		{"0", 1_000},
		{"2s", 2_000_001_000},
		{"2.5", 2_500_001_000},
		{"150ms", 150_001_000},
		{"1970-01-01T00:00:07Z", 2_000_000_000},
		{"1970-01-01T01:00:07.5+01:00", 2_500_000_000},
	} {
		m, err := parseMoment(test.text)
		if err != nil {
			t.Errorf("%q: %v", test.text, err)
		} else if got := m.ns(meta, 42); got != test.want {
			t.Errorf("%q: got %d, want %d", test.text, got, test.want)
		}
	}
	for _, text := range []string{"x", "-1s", "-1", "NaN", "1e300", "2s3", "12:00"} {
		if m, err := parseMoment(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, m)
		}
	}
}

func TestProgram(t *testing.T) {
	for _, test := range []struct{ command, want string }{
		{"python3 app.py --port 1", "app.py"},
		{"python3 -u -X dev -W error /srv/app.py", "app.py"},
		{"python3 -m http.server 8000", "http.server"},
		{"python3 -c pass", "python -c"},
		{"/usr/bin/gunicorn", "gunicorn"},
		{"python3 -i", "python3"},
		{"", ""},
	} {
		if got := program(strings.Fields(test.command)); got != test.want {
			t.Errorf("%q: got %q, want %q", test.command, got, test.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{span(1_500_000_000), "1.500 s"},
		{span(12_345_678), "12.346 ms"},
		{span(1_500), "1.5 µs"},
		{inUnit(12_345_678, int64(time.Second)), "0.012 s"},
		{inUnit(12_345_678, int64(time.Second)-1), "12.346 ms"},
		{percent(0.4321), "43.2 %"},
		{roughly(0.4321), "43 %"},
		{roughly(0.004), "<1 %"},
		{roughly(0.996), ">99 %"},
		{roughly(1), "100 %"},
		{roughly(0), "0 %"},
		{count(1, "sample"), "1 sample"},
		{count(2, "class"), "2 classes"},
		{oneLine(errors.Join(errors.New("a"), errors.New("b\x1b[2J"))), "a; b?[2J"},
	} {
		if test.got != test.want {
			t.Errorf("got %q, want %q", test.got, test.want)
		}
	}
}

func TestWrap(t *testing.T) {
	s := screen{width: 20}
	for _, test := range []struct{ text, want string }{
		{"short", "short"},
		{"one two three four five", "one two three four\n  five"},
		{"a much-too-long-word-for-a-line b", "a\n  much-too-long-word-for-a-line\n  b"},
		{"it is here at the 5 %", "it is here at the\n  5 %"},
		{"  keeps  its  spaces", "  keeps  its  spaces"},
		{"", ""},
	} {
		if got := s.wrap(test.text, 2); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}

func TestShorten(t *testing.T) {
	if got, want := shorten("abcdef", 4), "abc…"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := shortenLeft("abcdef", 4), "…def"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := shortenLeft("äöü", 3); got != "äöü" {
		t.Errorf("got %q", got)
	}
}

// TestAlike: classes that differ in the task's number only are one group, whose
// functions have the interval of all their samples together.
func TestAlike(t *testing.T) {
	f := &join.Stack{Frames: []join.Frame{{Name: "f", Kind: join.KindPython}}}
	g := &join.Stack{Frames: []join.Frame{{Name: "g", Kind: join.KindPython}}}
	var p join.ThreadPath
	add := func(tid int32, thread string, ns, inF, inG int64) {
		segment := len(p.Classes)
		p.Classes = append(p.Classes, join.Class{
			Key: join.ClassKey{
				State: execgraph.Running, Task: sched.TaskID{TID: tid}, PID: tid, TID: tid,
				ProcessName: "sh", ThreadName: thread,
			},
			Ns: ns, Share: 0.25, Segments: 1, Samples: inF + inG,
		})
		p.ClassOf = append(p.ClassOf, segment)
		p.Path.Segments = append(p.Path.Segments, execgraph.Segment{State: execgraph.Running, Wait: -1})
		for st, n := range map[*join.Stack]int64{f: inF, g: inG} {
			p.Entries = append(p.Entries, join.Entry{Stack: st, Segment: segment, Values: join.Values{Samples: n, PathNs: ns * n / (inF + inG)}})
		}
	}
	add(1, "sh", 60, 36, 24)
	add(2, "other", 50, 10, 0)
	add(3, "sh", 40, 24, 16)
	groups := alike(&p)
	if len(groups) != 2 {
		t.Fatalf("got %d groups, want 2", len(groups))
	}
	sum := groups[0]
	if sum.tasks != 2 || sum.Ns != 100 || sum.Share != 0.5 || sum.Segments != 2 || sum.Samples != 100 || sum.Clusters != 2 {
		t.Errorf("sums: got %+v", sum)
	}
	if len(sum.Functions) != 2 {
		t.Fatalf("functions: got %+v", sum.Functions)
	}
	// Both show the same share, so it is no worse known than from 100 samples of one.
	low, high := join.Wilson(60, 100)
	got := sum.Functions[0]
	if got.Name != "f" || got.Samples != 60 || got.Share != 0.6 || got.TotalShare != 0.6 || got.Ns != 60 ||
		math.Abs(got.Low-low) > 1e-9 || math.Abs(got.High-high) > 1e-9 {
		t.Errorf("got %+v, want 60 of 100 in [%v, %v]", got, low, high)
	}
}
