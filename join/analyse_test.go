// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// inputOf is a recording in memory: events and samples as text, one stack table.
// A sample is TIME TID/PID STACK.
func inputOf(t *testing.T, meta recording.Meta, events, samples string, stacks ...string) input {
	t.Helper()
	var evs []sched.Event
	for line := range strings.Lines(strings.TrimSpace(events)) {
		ev, err := sched.ParseEvent(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		evs = append(evs, ev)
	}
	var list []recording.Sample
	for line := range strings.Lines(strings.TrimSpace(samples)) {
		s := recording.Sample{Value: meta.Period}
		if _, err := fmt.Sscanf(line, "%d %d/%d %d", &s.Time, &s.TID, &s.PID, &s.Stack); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		list = append(list, s)
	}
	var frames []*recording.Frame
	var table []*recording.Stack
	for _, text := range stacks {
		s, frame := parseStack(t, text)
		base := uint32(len(frames))
		for id := uint32(0); frame(id) != nil || id == 0; id++ {
			frames = append(frames, frame(id))
		}
		for _, ids := range [][]uint32{s.Kernel, s.Native, s.Python} {
			for i := range ids {
				ids[i] += base
			}
		}
		table = append(table, s)
	}
	return input{
		meta: meta,
		stack: func(id uint32) *recording.Stack {
			if id == 0 || int(id) > len(table) {
				return nil
			}
			return table[id-1]
		},
		frame: func(id uint32) *recording.Frame {
			if int(id) >= len(frames) {
				return nil
			}
			return frames[id]
		},
		events: seq(evs), samples: seq(list), warnings: func() []string { return slices.Clone(meta.Warnings) },
	}
}

func seq[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range list {
			if !yield(v, nil) {
				return
			}
		}
	}
}

func testMeta() recording.Meta {
	return recording.Meta{
		Complete: true, Host: "web1", BeginNs: 1000, EndNs: 2000,
		Event: "cpu-clock", Unit: "nanoseconds", Period: 100, AskedHz: 1e7, AchievedHz: 1e7, Samples: 6,
		RealtimeOffsetBeginNs: 7, Targets: []recording.Target{{PID: 10, Name: "app"}},
	}
}

const (
	// app (10) runs on cpu0, waits for its worker (11) on cpu1, which sleeps in
	// between, and goes on. gzip (20) has cpu0 for the last 20 ns before that.
	testEvents = `
1000 cpu0 task task=10 state=running name=app start=10
1000 cpu0 task task=11/10 state=S name=worker start=11
1000 cpu0 task task=20 state=S name=gzip start=12
1300 cpu0 switch task=10 next=0 state=S stack=1
1400 cpu1 waking task=11/10 by=0 ctx=hrtimer
1410 cpu1 switch task=0 next=11/10 state=R
1500 cpu0 waking task=20 by=0 ctx=hardirq:33
1505 cpu0 switch task=0 next=20 state=R
1600 cpu1 waking task=10 by=11/10 ctx=task
1620 cpu0 switch task=20 next=10 state=S
1700 cpu1 switch task=11/10 next=0 state=S
`
	testSamples = `
1050 10/10 2
1150 10/10 2
1250 10/10 3
1450 11/10 4
1550 11/10 4
1650 11/10 4
1750 10/10 3
1310 10/10 3
990 10/10 3
`
)

var testStacks = []string{"k:schedule n:futex@libc p:acquire p:main!", "p:f p:main!", "p:g p:main!", "p:work p:loop!"}

// profileText is what a person would check of a profile.
func profileText(p *Profile) string {
	var b strings.Builder
	for _, t := range p.Paths {
		fmt.Fprintf(&b, "%s [%d, %d)\n", t.Thread, t.Path.Begin, t.Path.End)
		for _, c := range t.Classes {
			fmt.Fprintf(&b, "  %s: %d ns, %d segments, %d samples", c.Key, c.Ns, c.Segments, c.Samples)
			for _, f := range c.Functions {
				fmt.Fprintf(&b, ", %s %.2f", f.Name, f.Share)
			}
			b.WriteByte('\n')
		}
	}
	fmt.Fprintf(&b, "outside %d, off %d, %v\n", p.OutsideWindow, p.OffThread, p.Verdicts)
	return b.String()
}

func TestAnalyse(t *testing.T) {
	p, err := analyse(inputOf(t, testMeta(), testEvents, testSamples, testStacks...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	// By hand. app: 300 running, wait of 300 (100 asleep, 10 runnable, 190
	// running of the worker), 20 preempted by gzip, 380 running. worker: asleep
	// for 400, runnable 10, running 290, asleep 300 with no end.
	want := `app/app [1000, 2000)
  running app/app: 680 ns, 2 segments, 4 samples, f 0.50, g 0.50, main 0.00
  in wait (task app/worker): running app/worker: 190 ns, 1 segments, 2 samples, work 1.00, loop 0.00
  in wait (task app/worker): blocked (timer hrtimer) app/worker: 100 ns, 1 segments, 0 samples
  preempted (task gzip/gzip) app/app: 20 ns, 1 segments, 0 samples, acquire 1.00, main 0.00
  in wait (task app/worker): preempted (unknown idle) app/worker: 10 ns, 1 segments, 0 samples
app/worker [1000, 2000)
  blocked (timer hrtimer) app/worker: 400 ns, 1 segments, 0 samples
  blocked (unknown still-waiting) app/worker: 300 ns, 1 segments, 0 samples
  running app/worker: 290 ns, 1 segments, 3 samples, work 1.00, loop 0.00
  preempted (unknown idle) app/worker: 10 ns, 1 segments, 0 samples
outside 1, off 1, map[python-only:7]
`
	if got := profileText(p); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	if p.Samples != 9 || p.Hosts[0] != "web1" || p.RealtimeOffsetNs != 7 || p.BeginNs != 1000 || p.EndNs != 2000 {
		t.Errorf("profile %+v", p)
	}
	sumsToWall(t, p)
}

// sumsToWall checks the invariant of the whole program.
func sumsToWall(t *testing.T, p *Profile) {
	t.Helper()
	for _, path := range p.Paths {
		if err := execgraph.CheckPath(path.Path); err != nil {
			t.Errorf("path of %s: %v", path.Thread, err)
		}
		var ns, classes, samples, inClasses int64
		for _, e := range path.Entries {
			ns += e.Values.PathNs
			samples += e.Values.Samples
			if len(e.Stack.Frames) == 0 {
				t.Errorf("entry without a frame: %+v", e)
			}
		}
		for _, c := range path.Classes {
			classes += c.Ns
			inClasses += c.Samples
		}
		if wall := path.Path.End - path.Path.Begin; ns != wall || classes != wall || samples != inClasses {
			t.Errorf("path of %s: entries hold %d ns and %d samples, classes %d and %d, wall %d",
				path.Thread, ns, samples, classes, inClasses, wall)
		}
	}
}

// golden splits a file into its sections.
func golden(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	sections := make(map[string]string)
	at := ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(line, "-- "); ok {
			at, _, _ = strings.Cut(head, " --")
			continue
		}
		sections[at] += line
	}
	return sections
}

// The same, from a recording's text form, down to the stacks.
func TestAnalyseGolden(t *testing.T) {
	g := golden(t, "lock.txt")
	data, err := recording.ParseText(strings.NewReader(g["recording"]))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Analyse(data, Options{Threads: []string{"app"}})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.SplitAfter(profileText(p), "\noutside")[0]
	got := strings.TrimSuffix(text, "outside")
	for _, e := range p.Paths[0].Entries {
		got += fmt.Sprintf("  %d %d %s\n", e.Values.PathNs, e.Values.Samples, folded(e.Stack))
	}
	if got != g["want"] {
		t.Errorf("got:\n%s\nwant:\n%s", got, g["want"])
	}
	sumsToWall(t, p)
}

func TestAnalyseOptions(t *testing.T) {
	tests := []struct {
		name string
		opt  Options
		want string // first lines of each path
		err  error
	}{
		{name: "by name", opt: Options{Threads: []string{"worker"}}, want: "app/worker [1000, 2000)"},
		{name: "by number", opt: Options{Threads: []string{"11"}}, want: "app/worker [1000, 2000)"},
		{name: "as Python calls it", opt: Options{Threads: []string{"MainThread"}}, want: "app/app [1000, 2000)"},
		{name: "by both names", opt: Options{Threads: []string{"app/app"}}, want: "app/app [1000, 2000)"},
		{name: "window", opt: Options{From: 1200, To: 1700}, want: "app/app [1200, 1700) app/worker [1200, 1700)"},
		{name: "wide window", opt: Options{From: 1, To: 9999}, want: "app/app [1000, 2000) app/worker [1000, 2000)"},
		{name: "no such thread", opt: Options{Threads: []string{"gzip"}}, err: ErrNoThread},
		{name: "late window", opt: Options{From: 2000}, err: ErrNoWindow},
		{name: "early window", opt: Options{To: 1000}, err: ErrNoWindow},
		{name: "crossed window", opt: Options{From: 1500, To: 1400}, err: ErrNoWindow},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := analyse(inputOf(t, testMeta(), testEvents, testSamples, testStacks...), tt.opt)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if err != nil {
				return
			}
			var got []string
			for _, path := range p.Paths {
				got = append(got, fmt.Sprintf("%s [%d, %d)", path.Thread, path.Path.Begin, path.Path.End))
			}
			if g := strings.Join(got, " "); g != tt.want {
				t.Errorf("got %s, want %s", g, tt.want)
			}
			sumsToWall(t, p)
		})
	}
}

// A recorder that was killed wrote no end; a number can be used again.
func TestAnalyseOddRecordings(t *testing.T) {
	meta := testMeta()
	meta.Complete, meta.EndNs = false, 0
	p, err := analyse(inputOf(t, meta, testEvents, testSamples, testStacks...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.EndNs != 1751 || !strings.Contains(strings.Join(p.Warnings, "\n"), "has no end") {
		t.Errorf("end %d, warnings %q", p.EndNs, p.Warnings)
	}
	sumsToWall(t, p)

	reuse := strings.TrimRight(testEvents, "\n") + `
1710 cpu0 exit task=10 name=app
1720 cpu0 switch task=10 next=0 state=Z
1800 cpu1 fork task=10 parent=20 name=other
1850 cpu1 switch task=0 next=10 state=R
`
	p, err = analyse(inputOf(t, testMeta(), reuse, testSamples+"1860 10/10 2\n1730 10/10 2\n", testStacks...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Paths) != 2 || p.Paths[0].Path.End != 1720 || p.Paths[1].Thread.Thread != "worker" {
		t.Errorf("paths:\n%s", profileText(p))
	}
	sumsToWall(t, p)

	bad := func(yield func(sched.Event, error) bool) { yield(sched.Event{}, errors.New("damaged")) }
	in := inputOf(t, testMeta(), testEvents, testSamples, testStacks...)
	in.events = bad
	if _, err := analyse(in, Options{}); err == nil {
		t.Error("damaged events: no error")
	}
	in = inputOf(t, testMeta(), testEvents, testSamples, testStacks...)
	in.samples = func(yield func(recording.Sample, error) bool) { yield(recording.Sample{}, errors.New("damaged")) }
	if _, err := analyse(in, Options{}); err == nil {
		t.Error("damaged samples: no error")
	}
	in = inputOf(t, recording.Meta{BeginNs: 1, EndNs: 2}, "1 cpu0 lost count=1", "1 1/1 1")
	if _, err := analyse(in, Options{}); !errors.Is(err, ErrNoThread) {
		t.Errorf("no targets: %v", err)
	}
}

// Where a counter had the hardware for a part of the time, samples stand for more;
// nothing else changes.
func TestCountedShare(t *testing.T) {
	events := func(share float64) (sum int64, warned bool, times string) {
		meta := testMeta()
		meta.CountedShare = share
		p, err := analyse(inputOf(t, meta, testEvents, testSamples, testStacks...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range p.Paths {
			for _, e := range p.Paths[i].Entries {
				sum += e.Values.Event
				times += fmt.Sprint(e.Values.PathNs, e.Values.Samples, " ")
			}
		}
		return sum, strings.Contains(strings.Join(p.Warnings, "\n"), "the counter shared the hardware"), times
	}
	whole, warned, times := events(0)
	if warned || whole == 0 {
		t.Errorf("share not known: sum %d, warned %v", whole, warned)
	}
	for _, c := range []struct {
		share  float64
		want   int64
		warned bool
	}{{1, whole, false}, {0.995, whole, false}, {0.25, 4 * whole, true}, {-1, whole, false}, {7, whole, false}} {
		sum, warned, same := events(c.share)
		if diff := sum - c.want; diff < 0 || diff > whole/100 || warned != c.warned || same != times {
			t.Errorf("share %v: got sum %d of %d, warned %v, times %s", c.share, sum, whole, warned, same)
		}
	}
	for share, value := range map[float64]int64{1e-300: math.MaxInt64, 0.5: -3, math.NaN(): 8, 2: 8} {
		if got := scaleUp(value, share); got != value && got != maxRoom {
			t.Errorf("scaleUp(%d, %v) = %d", value, share, got)
		}
	}
}

func TestWarnings(t *testing.T) {
	meta := testMeta()
	meta.AchievedHz = 1e6
	meta.Warnings = []string{"from the recorder"}
	meta.Loss = recording.Loss{Events: 1, Samples: 2, ThinnedStacks: 3, Throttled: 4, Unresolved: 5, SideBand: 6, StolenNs: 70e6}
	meta.Interpreters = []recording.Interpreter{{PID: 10, Version: "3.7.1", Refused: "too old"}, {PID: 11}}
	p, err := analyse(inputOf(t, meta, testEvents, testSamples, testStacks...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(p.Warnings, "\n")
	for _, want := range []string{
		"from the recorder", "2 samples were lost of 11: intervals are widened", "1 events were lost", "stopped the counter 4 times",
		"took 70 ms from this virtual machine",
		"3 blocked stacks were left out", "5 Python frames have no name", "6 records about mappings",
		"no Python frames of process 10 (3.7.1): too old", "1000000 samples a second of a busy CPU instead of 10000000",
		"1 samples of the threads lie", "path of app/app: 6 samples are too few",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	many := make([]ThreadPath, 50)
	for i := range many {
		many[i].Path.Warnings = []string{"w"}
	}
	if w := pathWarnings(many); len(w) != maxPathWarnings+1 || w[maxPathWarnings] != "and 30 more warnings about paths" {
		t.Errorf("%d warnings, last %q", len(w), w[len(w)-1])
	}
}

// randomRecording is a scheduler gone wild: tasks of two processes block, wake
// each other and are preempted on two CPUs, and samples come when they like.
func randomRecording(t *testing.T, seed uint64, events int) *recording.Data {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 3))
	ref := func(tid int) string {
		if tid%10 == 0 {
			return fmt.Sprint(tid)
		}
		return fmt.Sprintf("%d/%d", tid, tid/10*10)
	}
	pick := func(words ...string) string { return words[rng.IntN(len(words))] }
	tids := []int{10, 11, 12, 20, 21}
	var b strings.Builder
	b.WriteString(golden(t, "lock.txt")["recording"])
	now := 3000
	for _, tid := range tids {
		fmt.Fprintf(&b, "%d cpu0 task task=%s state=%s name=t%d start=%d\n", now, ref(tid), pick("S", "running"), tid, tid)
	}
	on := [2]int{}
	for range events {
		now += 1 + rng.IntN(50)
		cpu := rng.IntN(2)
		tid := tids[rng.IntN(len(tids))]
		switch rng.IntN(10) {
		case 0, 1, 2, 3:
			if tid != on[1-cpu] || rng.IntN(20) == 0 { // now and then impossible
				fmt.Fprintf(&b, "%d cpu%d switch task=%s next=%s state=%s stack=%d\n", now, cpu, ref(on[cpu]), ref(tid),
					pick("S", "D", "R", "R+"), rng.IntN(7))
				on[cpu] = tid
			}
		case 4, 5:
			fmt.Fprintf(&b, "%d cpu%d waking task=%s by=%s ctx=%s\n", now, cpu, ref(tid), ref(on[cpu]),
				pick("task", "hrtimer", "hardirq:3", "softirq:3", "unknown"))
		case 6:
			if rng.IntN(10) == 0 {
				fmt.Fprintf(&b, "%d cpu%d lost count=%d\n", now, cpu, 1+rng.IntN(9))
			}
		default:
			if n := on[cpu]; n != 0 {
				fmt.Fprintf(&b, "sample %d %d %d %d %d 100 task\n", now+rng.IntN(3)-1, cpu, n/10*10, n, rng.IntN(7))
			}
		}
	}
	data, err := recording.ParseText(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	data.About.EndNs = int64(now + 1)
	return data
}

// Whatever was recorded: time is neither made nor lost, and the number of
// workers changes nothing.
func TestAnalyseInvariants(t *testing.T) {
	for seed := range uint64(often(10, 30)) {
		data := randomRecording(t, seed, 2000)
		one, err := Analyse(data, Options{Workers: 1})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sumsToWall(t, one)
		if len(one.Paths) != 3 {
			t.Errorf("seed %d: %d paths, want 3", seed, len(one.Paths))
		}
		four, err := Analyse(data, Options{Workers: 4})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		same(t, fmt.Sprintf("seed %d, 4 workers", seed), one, four)
	}
}

// The same from files, read in slabs by several workers.
func TestAnalyseFiles(t *testing.T) {
	for seed := range uint64(3) {
		data := randomRecording(t, seed, 3000)
		want, err := Analyse(data, Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "x.pathprof")
		write(t, dir, data)
		r, err := recording.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if n := len(r.Slabs(8)); n < 4 {
			t.Errorf("%d slabs of 8: nothing is tested here", n)
		}
		for workers := 1; workers <= 3; workers++ {
			got, err := Analyse(r, Options{Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			sumsToWall(t, got)
			same(t, fmt.Sprintf("seed %d, %d workers from files", seed, workers), want, got)
		}
	}
}

func write(t *testing.T, dir string, data *recording.Data) {
	t.Helper()
	w, err := recording.Create(dir, data.Meta(), recording.Options{RowsPerBatch: 50})
	if err != nil {
		t.Fatal(err)
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	frames, _ := data.Frames()
	for _, f := range frames {
		if f.ID != 0 {
			check(w.Frame(f))
		}
	}
	stacks, _ := data.Stacks()
	for _, s := range stacks {
		if s.ID != 0 {
			check(w.Stack(s))
		}
	}
	for _, s := range data.SampleList {
		check(w.Sample(s))
	}
	for _, ev := range data.EventList {
		check(w.Event(ev))
	}
	check(w.Close(data.Meta()))
}

// same compares profiles by their report and by every entry.
func same(t *testing.T, what string, want, got *Profile) {
	t.Helper()
	text := func(p *Profile) string {
		b, err := json.Marshal(NewReport(p, recording.Meta{}, ReportOptions{Segments: true}))
		if err != nil {
			t.Fatal(err)
		}
		var s strings.Builder
		fmt.Fprintf(&s, "%s%v%v%d %d", b, p.Verdicts, p.Reasons, p.OffThread, p.OutsideWindow)
		for _, path := range p.Paths {
			for _, e := range path.Entries {
				fmt.Fprintf(&s, "\n%d %v %s", e.Segment, e.Values, folded(e.Stack))
			}
		}
		return s.String()
	}
	w, g := text(want), text(got)
	if w == g {
		return
	}
	at := 0
	for at < len(w) && at < len(g) && w[at] == g[at] {
		at++
	}
	from := max(0, at-200)
	t.Fatalf("%s: another profile:\nwant …%s\ngot  …%s", what, w[from:min(len(w), at+100)], g[from:min(len(g), at+100)])
}

// FuzzAnalyse: whatever a recording claims, there is an error or a profile whose
// times add up.
func FuzzAnalyse(f *testing.F) {
	text, err := os.ReadFile(filepath.Join("testdata", "lock.txt"))
	if err != nil {
		f.Fatal(err)
	}
	_, seed, _ := strings.Cut(string(text), "-- recording --\n")
	seed, _, _ = strings.Cut(seed, "-- want --")
	f.Add(seed)
	f.Add(strings.ReplaceAll(seed, "complete", "none"))
	f.Add(strings.ReplaceAll(strings.ReplaceAll(seed, "stack=", "stack=9"), "\"end_ns\":2000", "\"end_ns\":0"))
	f.Add("meta {\"targets\":[{\"pid\":1}],\"unit\":\"nanoseconds\",\"asked_hz\":1e300,\"loss\":{\"Samples\":18446744073709551615}}\n" +
		"1 cpu0 switch task=1 next=2 state=S\nsample 0 0 1 1 0 9223372036854775807 task\nsample 0 0 1 1 7 -1 task\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			t.Skip()
		}
		data, err := recording.ParseText(strings.NewReader(text))
		if err != nil {
			t.Skip()
		}
		p, err := Analyse(data, Options{Workers: 2})
		if err != nil {
			return
		}
		sumsToWall(t, p)
		for _, path := range p.Paths {
			for _, c := range path.Classes {
				for _, fn := range c.Functions {
					if !(0 <= fn.Low && fn.Low <= fn.Share && fn.Share <= fn.High && fn.High <= 1) {
						t.Fatalf("function %+v of %d samples, doubt %+v", fn, c.Samples, c.Doubt)
					}
				}
			}
		}
	})
}
