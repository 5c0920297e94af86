// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"pathprof/join/sched"
)

// finished writes a random world as a complete recording.
func finished(t testing.TB, name string, rows, n int) (string, *world) {
	t.Helper()
	w := randomWorld(rand.New(rand.NewPCG(9, 9)), n)
	dir := filepath.Join(t.TempDir(), name)
	w.write(t, dir, rows, true)
	return dir, w
}

// change rewrites a file of a recording.
func change(t testing.TB, path string, f func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, f(text), 0o600))
}

// wantWarning checks that just these warnings are given, by a part of each.
func wantWarning(t testing.TB, r *Reader, want ...string) {
	t.Helper()
	got := r.Warnings()
	if len(got) != len(want) {
		t.Errorf("got warnings %q, want %q", got, want)
		return
	}
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("got warning %q, want %q", got[i], want[i])
		}
	}
}

// allocated is how many bytes f takes.
func allocated(f func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

// A recording of a version with other words is read.
func TestOtherWords(t *testing.T) {
	old := stackTable
	stackTable = newTable(old.time, map[string][]string{"kernel_stop": append(slices.Clone(stopWords), "newer")}, old.columns...)
	dir, w := finished(t, "x", 64, 100)
	stackTable = old
	r := openDir(t, dir)
	stacks, err := r.Stacks()
	check(t, err)
	if !reflect.DeepEqual(stacks[1:], w.stacks) {
		t.Error("stacks differ")
	}
	wantWarning(t, r)
}

// A recording with other columns is refused stream by stream.
func TestOtherColumns(t *testing.T) {
	old := sampleTable
	sampleTable = newTable(old.time, nil, old.columns[1:]...)
	dir, _ := finished(t, "x", 1<<20, 100)
	sampleTable = old
	r := openDir(t, dir)
	if got := collect(t, r.Samples()); len(got) != 0 || r.Meta().Loss.Samples != 100 {
		t.Errorf("got %d samples, loss %+v", len(got), r.Meta().Loss)
	}
	wantWarning(t, r, "columns are not the expected")
}

func TestFolderName(t *testing.T) {
	dir, w := finished(t, "rec[1]*.pathprof", 64, 100)
	r := openDir(t, dir)
	if got := collect(t, r.Events()); !reflect.DeepEqual(got, ordered(w.events)) {
		t.Errorf("got %d events of %d", len(got), len(w.events))
	}
	wantWarning(t, r)
}

// lostOf sums the lost events that a reader tells of.
func lostOf(events []sched.Event, cpu int32) (rest []sched.Event, lost int64) {
	for _, ev := range events {
		if ev.Kind == sched.KindLost && ev.CPU == cpu {
			lost += ev.Count
		} else {
			rest = append(rest, ev)
		}
	}
	return rest, lost
}

// without are the events of all but one CPU.
func without(events []sched.Event, cpu int32) []sched.Event {
	return slices.DeleteFunc(ordered(events), func(ev sched.Event) bool { return ev.CPU == cpu })
}

func TestMissingStream(t *testing.T) {
	dir, w := finished(t, "x", 64, 300)
	check(t, os.Remove(filepath.Join(dir, "events-cpu1.arrow")))
	r := openDir(t, dir)
	got, lost := lostOf(collect(t, r.Events()), 1)
	want := without(w.events, 1)
	if missing := len(w.events) - len(want); lost != int64(missing) || r.Meta().Loss.Events != uint64(missing) {
		t.Errorf("got %d lost and %+v, want %d", lost, r.Meta().Loss, missing)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("events of the other CPUs differ")
	}
	wantWarning(t, r, "events-cpu1.arrow is missing")
}

// No flipped bit goes unnoticed where it changes what is read.
func TestFlippedBits(t *testing.T) {
	dir, w := finished(t, "x", 64, 300)
	want := ordered(w.events)
	rng := rand.New(rand.NewPCG(10, 10))
	for _, name := range []string{"events-cpu1.arrow", "index.arrow"} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		check(t, err)
		for range 120 {
			at, bit := rng.IntN(len(whole)), byte(1)<<rng.IntN(8)
			text := slices.Clone(whole)
			text[at] ^= bit
			check(t, os.WriteFile(path, text, 0o600))
			r, err := Open(dir)
			check(t, err)
			got := collect(t, r.Events())
			if !slices.IsSortedFunc(got, func(a, b sched.Event) int { return compare(a.Time, b.Time) }) {
				t.Errorf("%s byte %d bit %#x: out of order", name, at, bit)
			}
			if !reflect.DeepEqual(got, want) && (len(r.Warnings()) == 0 || r.Meta().Loss.Events == 0) {
				t.Errorf("%s byte %d bit %#x: wrong without a word, loss %+v", name, at, bit, r.Meta().Loss)
			}
			check(t, r.Close())
		}
		check(t, os.WriteFile(path, whole, 0o600))
	}
}

// A damaged batch is a KindLost event at its place, once counted however often
// it is read.
func TestDamagedBatch(t *testing.T) {
	dir, w := finished(t, "x", 64, 600)
	r := openDir(t, dir)
	b := r.events[2].batches[1]
	check(t, r.Close())
	change(t, filepath.Join(dir, b.Stream), func(text []byte) []byte { text[b.Offset+b.Length-20] ^= 1; return text })
	r = openDir(t, dir)
	for range 2 {
		all := collect(t, r.Events())
		i := slices.IndexFunc(all, func(ev sched.Event) bool { return ev.Kind == sched.KindLost })
		want := sched.Event{Time: b.Last, CPU: 2, Kind: sched.KindLost, Count: b.Rows}
		if i < 0 || all[i] != want || len(all) != len(w.events)-int(b.Rows)+1 {
			t.Fatalf("got %d events, lost %d", len(all), i)
		}
	}
	if got := r.Meta().Loss.Events; got != uint64(b.Rows) {
		t.Errorf("got %d lost, want %d", got, b.Rows)
	}
	wantWarning(t, r, "is damaged")
}

// Without an index a damaged batch costs that batch, whatever of it is damaged.
func TestDamagedWithoutIndex(t *testing.T) {
	for name, offset := range map[string]int64{"framing": 0, "header length": 4, "header": 16, "body": -24} {
		t.Run(name, func(t *testing.T) {
			dir, w := finished(t, "x", 16, 600)
			r := openDir(t, dir)
			b := r.samples.batches[3]
			check(t, r.Close())
			check(t, os.Remove(filepath.Join(dir, "index.arrow")))
			change(t, filepath.Join(dir, "samples.arrow"), func(text []byte) []byte {
				at := b.Offset + offset
				if offset < 0 {
					at += b.Length
				}
				for i := range 16 {
					text[at+int64(i)] ^= 0xff
				}
				return text
			})
			r = openDir(t, dir)
			got := collect(t, r.Samples())
			want := slices.Concat(w.samples[:48], w.samples[64:])
			// A body has no checksum without the index: other values may come out.
			if name == "body" && len(got) == len(w.samples) {
				return
			}
			if !reflect.DeepEqual(got, want) || r.Meta().Loss.Samples == 0 {
				t.Errorf("got %d samples of %d, loss %+v, %q", len(got), len(want), r.Meta().Loss, r.Warnings())
			}
		})
	}
}

// Lengths and counts that a file claims take no memory.
func TestClaims(t *testing.T) {
	const enough = 16 << 20
	form, err := eventTable.form()
	check(t, err)
	start := len(form.prefix)
	for name, at := range map[string]int{
		"schema header length": 4, "header length": start + 4, "vtable": start + 8, "rows": start + 40,
	} {
		for _, index := range []bool{true, false} {
			t.Run(fmt.Sprint(name, " index ", index), func(t *testing.T) {
				dir, _ := finished(t, "x", 64, 100)
				if !index {
					check(t, os.Remove(filepath.Join(dir, "index.arrow")))
				}
				change(t, filepath.Join(dir, "events-cpu1.arrow"), func(text []byte) []byte {
					binary.LittleEndian.PutUint32(text[at:], 0x7ffffff8)
					return text
				})
				if n := allocated(func() { collect(t, openDir(t, dir).Events()) }); n > enough {
					t.Errorf("took %d bytes", n)
				}
			})
		}
	}
}

// Numbers beyond what a file can hold take no memory, whatever the index claims.
func TestClaimedNumbers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	w, err := Create(dir, Meta{Format: FormatVersion}, Options{})
	check(t, err)
	for i := range 40 {
		check(t, w.Frame(Frame{ID: uint32(1 + i)}))
		check(t, w.Flush())
	}
	check(t, w.Frame(Frame{ID: 20 << 20}))
	check(t, w.Close(Meta{Format: FormatVersion}))
	r := openDir(t, dir)
	for i := range 30 {
		r.frames.batches[i].Rows = maxBatchRows // as an index may say
	}
	var frames []Frame
	if n := allocated(func() { frames, err = r.Frames() }); n > 16<<20 {
		t.Errorf("took %d bytes", n)
	}
	check(t, err)
	if len(frames) != 41 || frames[40].ID != 40 {
		t.Errorf("got %d frames", len(frames))
	}
}

func TestEqualTimes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	w, err := Create(dir, Meta{Format: FormatVersion}, Options{})
	check(t, err)
	for _, cpu := range []int32{10, 2, -1, 0, 1} {
		check(t, w.Event(sched.Event{Time: 5, CPU: cpu, Kind: sched.KindSwitch}))
	}
	check(t, w.Close(Meta{Format: FormatVersion}))
	var got []int32
	for _, ev := range collect(t, openDir(t, dir).Events()) {
		got = append(got, ev.CPU)
	}
	if want := []int32{-1, 0, 1, 2, 10}; !slices.Equal(got, want) {
		t.Errorf("got order %v, want %v", got, want)
	}
}

// After a write error the recording ends with the last whole flush, and what
// came later is lost.
func TestWriteError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "x")
	w, err := Create(dir, Meta{Format: FormatVersion, BeginNs: 1}, Options{})
	check(t, err)
	check(t, w.Event(sched.Event{Time: 100, Kind: sched.KindSwitch}))
	check(t, w.Flush())
	check(t, w.Event(sched.Event{Time: 5000, Kind: sched.KindSwitch}))
	check(t, w.cpus[0].file.Close()) // stands for any write error
	if w.Flush() == nil || w.Event(sched.Event{Time: 5001}) == nil || w.Sample(Sample{Time: 5001}) == nil {
		t.Error("got no error of a closed file")
	}
	if w.Close(Meta{Format: FormatVersion, BeginNs: 1, EndNs: 6000, Events: 3, Samples: 1, Stopped: "write error"}) == nil {
		t.Error("got no error of a closed file")
	}
	m := openDir(t, dir).Meta()
	if m.Complete || m.EndNs != 100 || m.Events != 1 || m.Samples != 0 || m.Loss.Events != 2 || m.Loss.Samples != 1 {
		t.Errorf("got %+v", m)
	}
}

// What an incomplete recording names but does not hold is lost.
func TestIncomplete(t *testing.T) {
	dir, w := finished(t, "x", 64, 100)
	last := w.events[len(w.events)-1].Time
	check(t, writeMeta(dir, Meta{Format: FormatVersion, BeginNs: 1, EndNs: last + 5000, Events: 110, Samples: 103, Stopped: "power"}, 0, true))
	m := openDir(t, dir).Meta()
	if m.EndNs != last || m.Events != 100 || m.Samples != 100 || m.Loss.Events != 10 || m.Loss.Samples != 3 {
		t.Errorf("got %+v", m)
	}
}

// Lists and names that overlap would take more memory than they have bytes.
func TestOverlap(t *testing.T) {
	stack, name := make([]Stack, 1000), make([]Frame, 1000)
	for i := range stack {
		stack[i] = Stack{ID: uint32(i + 1), Python: []uint32{1, 2, 3}, Entry: []bool{true, false, true}}
		name[i] = Frame{ID: uint32(i + 1), Name: "name"}
	}
	overlapping(t, stackTable, stack)
	overlapping(t, frameTable, name)
}

// overlapping changes the offsets of an encoded batch's columns in turn.
func overlapping[T any](t *testing.T, table *table[T], rows []T) {
	t.Helper()
	for i, c := range table.columns {
		var s scratch
		d := c.encode(rows, &s)
		if len(s[1]) == 0 || d.Len() != len(rows) {
			continue // no offsets
		}
		offsets := room[int32](&s, 0, len(rows)+1)
		for j := range offsets {
			offsets[j] = int32(j%2) * offsets[len(offsets)-1]
		}
		err := guarded("x", func() error { return c.decode(array.MakeFromData(d), slices.Clone(rows)) })
		if err == nil {
			t.Errorf("column %s: got no error", table.columns[i].field.Name)
		}
	}
}
