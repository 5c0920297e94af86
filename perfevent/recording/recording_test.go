// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

func TestMain(m *testing.M) { perftest.Main(m) }

// world is what a test writes: the truth to compare a reader with.
type world struct {
	frames  []Frame
	stacks  []Stack
	samples []Sample
	events  []sched.Event
}

func randomWorld(rng *rand.Rand, rows int) *world {
	w := &world{}
	for i := range rows / 4 {
		w.frames = append(w.frames, Frame{ID: uint32(i + 1), Kind: FrameKind(1 + rng.IntN(3)),
			Name: fmt.Sprintf("f%d.\u00e4", i), File: "/src/a b.py", Line: rng.Int32N(999), FirstLine: 1,
			Address: rng.Uint64(), Eval: i%3 == 0, BuildID: "abcd"})
		w.stacks = append(w.stacks, Stack{ID: uint32(i + 1), Kernel: []uint32{uint32(i + 1)},
			Python: []uint32{1, uint32(i + 1)}, Entry: []bool{false, true},
			NativeStop: StopFault, PythonStop: StopComplete})
	}
	at := int64(1000)
	for i := range rows {
		at += rng.Int64N(100)
		w.samples = append(w.samples, Sample{Time: at, CPU: int32(i % 2), PID: 7, TID: 8, Stack: 1, Value: 5, Kernel: i%5 == 0, Counter: at << 30})
		w.events = append(w.events, sched.Event{Time: at, CPU: int32(rng.IntN(3)), Kind: sched.KindSwitch,
			Task: sched.Ref{TID: 1, PID: 2}, Other: sched.Ref{TID: 3, PID: 4}, State: 1, Name: "n", Count: at,
			Call: sched.CallFutex, Object: uint64(at) << 40, Timeout: -at, Lock: sched.LockKind(at % 6), Holder: sched.Ref{TID: -1, PID: 5},
			Conn: math.MaxUint64 - uint64(at), Seq: math.MaxUint32 - uint32(at)})
	}
	return w
}

// write records the world. Neighbours swap places, as on a CPU whose interrupts
// write before what they interrupted.
func (w *world) write(t testing.TB, dir string, rows int, finish bool) *Writer {
	t.Helper()
	out, err := Create(dir, Meta{Format: FormatVersion, BeginNs: 1000, Host: "h"}, Options{RowsPerBatch: rows})
	if err != nil {
		t.Fatal(err)
	}
	for i := range w.frames {
		check(t, out.Frame(w.frames[i]))
		check(t, out.Stack(w.stacks[i]))
	}
	events := slices.Clone(w.events)
	for i := 3; i+1 < len(events); i += 7 {
		events[i], events[i+1] = events[i+1], events[i]
	}
	for i := range events {
		check(t, out.Sample(w.samples[i]))
		check(t, out.Event(events[i]))
	}
	if finish {
		check(t, out.Close(Meta{Format: FormatVersion, BeginNs: 1000, EndNs: 9999999, Host: "h"}))
	}
	return out
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func openDir(t testing.TB, dir string) *Reader {
	t.Helper()
	r, err := Open(dir)
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

func collect[T any](t testing.TB, seq func(func(T, error) bool)) (out []T) {
	t.Helper()
	for v, err := range seq {
		check(t, err)
		out = append(out, v)
	}
	return out
}

// Recordings of older formats, whose streams have fewer columns, read as before.
func TestReadOlder(t *testing.T) {
	for format, samples := range map[int]*table[Sample]{1: sampleTable1, 2: sampleTable2} {
		t.Run(fmt.Sprint("format ", format), func(t *testing.T) {
			w := randomWorld(rand.New(rand.NewPCG(5, 5)), 100)
			for i := range w.events {
				e := &w.events[i]
				e.CPU = 0
				if format == 1 {
					e.Call, e.Object, e.Timeout, e.Lock, e.Holder, e.Conn, e.Seq = 0, 0, 0, 0, sched.Ref{}, 0, 0
				}
				w.samples[i].Collecting = format > 1 && i%3 == 0
			}
			r := openDir(t, w.writeOlder(t, format, samples))
			for i := range w.samples {
				w.samples[i].Counter = 0
			}
			if got := collect(t, r.Events()); !reflect.DeepEqual(got, w.events) || len(r.Warnings()) != 0 {
				t.Errorf("got %d events of %d, warnings %q", len(got), len(w.events), r.Warnings())
			}
			if got := collect(t, r.Samples()); !reflect.DeepEqual(got, w.samples) {
				t.Errorf("samples differ: %+v", got[0])
			}
		})
	}
	w := randomWorld(rand.New(rand.NewPCG(5, 5)), 100)
	if _, err := Open(w.writeOlder(t, 99, sampleTable)); err == nil || !strings.Contains(err.Error(), "format 99") {
		t.Errorf("format 99: %v", err)
	}
}

// writeOlder records the world's samples and events, all of CPU 0, as another
// format has them.
func (w *world) writeOlder(t *testing.T, format int, samples *table[Sample]) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "x.pathprof")
	out, err := Create(dir, Meta{}, Options{})
	check(t, err)
	out.cpus[0], err = newStream(out, eventsName(0), eventTableOf(format))
	check(t, err)
	check(t, os.Remove(filepath.Join(dir, "samples.arrow")))
	out.samples, err = newStream(out, "samples.arrow", samples)
	check(t, err)
	out.order = append(out.order, out.cpus[0])
	for i := range w.events {
		check(t, out.Sample(w.samples[i]))
		check(t, out.Event(w.events[i]))
	}
	check(t, out.Close(Meta{}))
	change(t, filepath.Join(dir, metaName), func(text []byte) []byte {
		return bytes.Replace(text, fmt.Appendf(nil, `"format": %d`, FormatVersion), fmt.Appendf(nil, `"format": %d`, format), 1)
	})
	return dir
}

// ordered is the order a reader promises.
func ordered(events []sched.Event) []sched.Event {
	out := slices.Clone(events)
	slices.SortStableFunc(out, func(a, b sched.Event) int {
		if c := compare(a.Time, b.Time); c != 0 {
			return c
		}
		return int(a.CPU) - int(b.CPU)
	})
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, rows := range []int{1, 3, 64, 1 << 20} {
		t.Run(fmt.Sprint("batches of ", rows), func(t *testing.T) {
			w := randomWorld(rand.New(rand.NewPCG(1, uint64(rows))), 300)
			dir := filepath.Join(t.TempDir(), "x.pathprof")
			w.write(t, dir, rows, true)
			r := openDir(t, dir)
			if !r.Meta().Complete || r.Meta().Host != "h" || len(r.Warnings()) != 0 {
				t.Errorf("got meta %+v, warnings %q", r.Meta(), r.Warnings())
			}
			if got := collect(t, r.Events()); !reflect.DeepEqual(got, ordered(w.events)) {
				t.Error("events differ")
			}
			if got := collect(t, r.Samples()); !reflect.DeepEqual(got, w.samples) {
				t.Error("samples differ")
			}
			frames, err := r.Frames()
			check(t, err)
			if !reflect.DeepEqual(frames[1:], w.frames) {
				t.Errorf("frames differ: %+v", frames[1])
			}
			stacks, err := r.Stacks()
			check(t, err)
			for i, want := range w.stacks {
				if got := stacks[i+1]; fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("got stack %+v, want %+v", got, want)
				}
			}
		})
	}
}

// Slabs, read apart and put together, are the whole.
func TestSlabs(t *testing.T) {
	w := randomWorld(rand.New(rand.NewPCG(2, 2)), 500)
	dir := filepath.Join(t.TempDir(), "x.pathprof")
	w.write(t, dir, 20, true)
	r := openDir(t, dir)
	for _, n := range []int{1, 2, 5, 100} {
		var got []sched.Event
		slabs := r.Slabs(n)
		if len(slabs) > n || n == 5 && len(slabs) < 3 {
			t.Errorf("%d slabs for %d", len(slabs), n)
		}
		for _, s := range slabs {
			got = append(got, collect(t, r.EventsIn(s))...)
		}
		if !reflect.DeepEqual(got, ordered(w.events)) {
			t.Errorf("%d slabs: events differ", n)
		}
	}
}

// A killed recorder leaves what it flushed; cut anywhere, the rest is readable.
func TestCut(t *testing.T) {
	w := randomWorld(rand.New(rand.NewPCG(3, 3)), 120)
	whole := filepath.Join(t.TempDir(), "whole")
	w.write(t, whole, 16, false)
	names, err := os.ReadDir(whole)
	check(t, err)
	rng := rand.New(rand.NewPCG(4, 4))
	for _, e := range names {
		for range 12 {
			dir := filepath.Join(t.TempDir(), "cut")
			check(t, os.CopyFS(dir, os.DirFS(whole)))
			path := filepath.Join(dir, e.Name())
			st, err := os.Stat(path)
			check(t, err)
			check(t, os.Truncate(path, rng.Int64N(st.Size())))
			r, err := Open(dir)
			if err != nil {
				if e.Name() != metaName {
					t.Errorf("%s cut: %v", e.Name(), err)
				}
				continue
			}
			for range r.Events() {
			}
			for range r.Samples() {
			}
			if len(r.Warnings()) == 0 {
				t.Errorf("%s cut: no warning", e.Name())
			}
			r.Close()
		}
	}
}

func TestKilled(t *testing.T) {
	w := randomWorld(rand.New(rand.NewPCG(5, 5)), 100)
	dir := filepath.Join(t.TempDir(), "x.pathprof")
	out := w.write(t, dir, 1<<20, false)
	check(t, out.Flush())
	check(t, out.Event(sched.Event{Time: 1 << 40, Kind: sched.KindExit})) // never flushed
	r := openDir(t, dir)
	if got := collect(t, r.Events()); len(got) != len(w.events) {
		t.Errorf("got %d events, want %d", len(got), len(w.events))
	}
	m := r.Meta()
	if m.Complete || m.EndNs != w.events[len(w.events)-1].Time || m.Samples != 100 {
		t.Errorf("got complete %v, end %d, samples %d", m.Complete, m.EndNs, m.Samples)
	}
	if text := strings.Join(r.Warnings(), "\n"); !strings.Contains(text, "killed") {
		t.Errorf("got warnings %q", text)
	}
	// Without its index, too.
	check(t, os.Remove(filepath.Join(dir, "index.arrow")))
	r = openDir(t, dir)
	if got := collect(t, r.Events()); !reflect.DeepEqual(got, ordered(w.events)) {
		t.Error("events differ without the index")
	}
}

func TestNotARecording(t *testing.T) {
	empty := t.TempDir()
	newer := filepath.Join(t.TempDir(), "newer")
	damaged := filepath.Join(t.TempDir(), "damaged")
	for dir, text := range map[string]string{newer: `{"format": 99}`, damaged: `{"format": `} {
		check(t, os.Mkdir(dir, 0o700))
		check(t, os.WriteFile(filepath.Join(dir, metaName), []byte(text), 0o600))
	}
	for dir, want := range map[string]string{
		empty: "is not a recording", newer: "format 99", damaged: "damaged meta.json",
		filepath.Join(empty, "none"): "no recording",
	} {
		if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, want)
		}
	}
	if _, err := Create(newer, Meta{}, Options{}); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("create in a used folder: got %v", err)
	}
}

func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x.pathprof")
	randomWorld(rand.New(rand.NewPCG(7, 7)), 10).write(t, dir, 0, true)
	entries, err := os.ReadDir(dir)
	check(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
}

const exampleText = `
# a thread computes and sleeps
meta {"format":1,"complete":true,"host":"h","begin_ns":0,"end_ns":100}
frame 1 python "Class.method" "/a b.py" 12 10 0x7f00
frame 2 native "sleep \"x\"" "/lib/libc.so.6" 0 0 0x10 abcdef eval
stack 1 native=2 python=1,1e kernel:none native:fault python:complete
sample 10 0 7 8 1 1000000 task kernel counter:-5
20 0 switch 8/7 S -> 0/0
`

// A name may look like the fields behind it.
func TestFrameText(t *testing.T) {
	d, err := ParseText(strings.NewReader(`frame 1 native "f 0 0 0x10 eval" "/lib x" 0 0 0x10 abcd`))
	check(t, err)
	want := Frame{ID: 1, Kind: FrameNative, Name: "f 0 0 0x10 eval", File: "/lib x", Address: 16, BuildID: "abcd"}
	if !reflect.DeepEqual(d.frames[1], want) {
		t.Errorf("got %+v, want %+v", d.frames[1], want)
	}
	for _, bad := range []string{"frame", `frame 1 native "a`, `frame 1 native "a" "b" 0 0`, `frame x native "a" "b" 0 0 0`} {
		if _, err := ParseText(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: got no error", bad)
		}
	}
}

func TestText(t *testing.T) {
	if ev, err := sched.ParseEvent("20 0 switch 8/7 S -> 0/0"); err != nil {
		t.Skipf("%v %v", ev, err)
	}
	d, err := ParseText(strings.NewReader(exampleText))
	check(t, err)
	want := Frame{ID: 2, Kind: FrameNative, Name: `sleep "x"`, File: "/lib/libc.so.6", Address: 16, BuildID: "abcdef", Eval: true}
	if !reflect.DeepEqual(d.frames[2], want) {
		t.Errorf("got %+v, want %+v", d.frames[2], want)
	}
	var once, twice bytes.Buffer
	check(t, WriteText(&once, d))
	again, err := ParseText(bytes.NewReader(once.Bytes()))
	check(t, err)
	check(t, WriteText(&twice, again))
	if once.String() != twice.String() || !reflect.DeepEqual(d, again) {
		t.Errorf("text changes:\n%s\n%s", &once, &twice)
	}
}

func FuzzParseText(f *testing.F) {
	f.Add(exampleText)
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := ParseText(strings.NewReader(text)); err == nil {
			check(t, WriteText(&bytes.Buffer{}, d))
		}
	})
}

// Whatever is done to its files, a recording is read or refused.
func FuzzReader(f *testing.F) {
	whole := filepath.Join(f.TempDir(), "whole")
	randomWorld(rand.New(rand.NewPCG(8, 8)), 40).write(f, whole, 16, true)
	entries, err := os.ReadDir(whole)
	check(f, err)
	for which, e := range entries { // in each file: its beginning, a length, the middle, the end
		info, err := e.Info()
		check(f, err)
		size := uint32(info.Size())
		f.Add(uint8(which), uint32(3), []byte{0xff})
		f.Add(uint8(which), uint32(4), []byte{0xf8, 0xff, 0xff, 0x7f})
		f.Add(uint8(which), size/2, []byte{0xff, 0xff, 0xff, 0x7f})
		f.Add(uint8(which), size*3/4, []byte{0, 0, 0, 0, 0, 0, 0, 0})
		f.Add(uint8(which), size-8, []byte{1})
	}
	f.Fuzz(func(t *testing.T, which uint8, at uint32, with []byte) {
		dir := filepath.Join(t.TempDir(), "x")
		check(t, os.CopyFS(dir, os.DirFS(whole)))
		path := filepath.Join(dir, entries[int(which)%len(entries)].Name())
		text, err := os.ReadFile(path)
		check(t, err)
		copy(text[int(at)%len(text):], with)
		check(t, os.WriteFile(path, text, 0o600))
		r, err := Open(dir)
		if err != nil {
			return
		}
		defer r.Close()
		last := int64(-forever)
		for ev := range r.Events() {
			if ev.Time < last {
				t.Errorf("event at %d after %d", ev.Time, last)
			}
			last = ev.Time
		}
		for range r.Samples() {
		}
		r.Frames()
		r.Stacks()
	})
}

func BenchmarkEvent(b *testing.B) {
	out, err := Create(filepath.Join(b.TempDir(), "x"), Meta{}, Options{})
	check(b, err)
	ev := sched.Event{Kind: sched.KindSwitch, Task: sched.Ref{TID: 1, PID: 1}}
	b.ReportAllocs()
	for b.Loop() {
		ev.Time += 1000
		if err := out.Event(ev); err != nil { // check takes longer than this
			b.Fatal(err)
		}
	}
	check(b, out.Close(Meta{}))
	b.ReportMetric(float64(out.Size())/float64(b.N), "bytes/event")
}

func BenchmarkRead(b *testing.B) {
	dir := filepath.Join(b.TempDir(), "x")
	out, err := Create(dir, Meta{}, Options{})
	check(b, err)
	const events = 1 << 20
	for i := range events {
		check(b, out.Event(sched.Event{Time: int64(i), CPU: int32(i & 1), Kind: sched.KindSwitch}))
	}
	check(b, out.Close(Meta{}))
	r := openDir(b, dir)
	for b.Loop() {
		n := 0
		for range r.Events() {
			n++
		}
		if n != events {
			b.Fatalf("read %d events", n)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
}
