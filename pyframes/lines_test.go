// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// fullEnv is set to compare the whole standard library instead of a part.
const fullEnv = "PATHPROF_FULL"

// dumped is the line table of a code object, and what CPython reads in it.
type dumped struct {
	first, size int32
	table       []byte
	ranges      []Range
}

func readDump(r io.Reader) (d dumped, err error) {
	var head [2]int32
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return d, err
	}
	d.first, d.table = head[0], make([]byte, head[1])
	if _, err := io.ReadFull(r, d.table); err != nil {
		return d, err
	}
	if err := binary.Read(r, binary.LittleEndian, &head); err != nil {
		return d, err
	}
	d.size, d.ranges = head[0], make([]Range, head[1])
	return d, binary.Read(r, binary.LittleEndian, d.ranges)
}

// Every line of every instruction is the one that CPython itself tells, in code
// objects of the standard library.
func TestLinesEqualCPython(t *testing.T) {
	every := "12"
	if os.Getenv(fullEnv) != "" {
		every = "1"
	}
	for version, python := range perftest.Pythons(t) {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(python, "-S", "-E", "testdata/lines.py", every, "testdata/shapes.py", writeLongSource(t))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			style := tables[version].Style
			codes, offsets, wrong := 0, 0, 0
			in := bufio.NewReaderSize(out, 1<<20)
			for {
				d, err := readDump(in)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				codes++
				n, bad := compareLines(t, style, d)
				offsets, wrong = offsets+n, wrong+bad
			}
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if codes < 1000 || wrong != 0 {
				t.Errorf("%d of %d offsets in %d code objects differ", wrong, offsets, codes)
			}
			t.Logf("%d code objects, %d offsets", codes, offsets)
		})
	}
}

func minorOf(t *testing.T, version string) int {
	t.Helper()
	var minor int
	if _, err := fmt.Sscanf(version, "3.%d", &minor); err != nil {
		t.Fatal(err)
	}
	return minor
}

func compareLines(t *testing.T, style Style, d dumped) (offsets, wrong int) {
	table := LineTable{Style: style, FirstLine: d.first, Data: d.table}
	if got := table.Line(-1); got != d.first {
		t.Errorf("before the first instruction: got %d, want %d", got, d.first)
	}
	lines := make([]int32, d.size/2)
	for _, r := range d.ranges {
		for at := r.Start; at < min(r.End, d.size); at += 2 {
			lines[at/2] = r.Line
		}
	}
	got := make([]int32, len(lines)) // by the iterator, at once
	for r := range table.Ranges() {
		for at := r.Start; at < min(r.End, d.size); at += 2 {
			got[at/2] = r.Line
		}
	}
	step := 1 + len(lines)/64 // by Line, which starts over each time, at some
	for i, want := range lines {
		if i%step == 0 && table.Line(int32(2*i)) != got[i] {
			t.Errorf("offset %d: Line says %d, Ranges %d", 2*i, table.Line(int32(2*i)), got[i])
		}
		if got[i] != want {
			wrong++
			if wrong == 1 {
				t.Errorf("first line %d, table %x: offset %d: got line %d, want %d", d.first, d.table, 2*i, got[i], want)
			}
		}
	}
	return len(lines), wrong
}

// writeLongSource writes a program whose line and position steps do not fit the
// fields of one entry in any version.
func writeLongSource(t *testing.T) string {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	b.WriteString("def f(x):\n x = [\n")
	for range 300 {
		fmt.Fprintf(&b, "%s  x[%d],%s\n", strings.Repeat("\n", random.IntN(400)), random.IntN(1000), strings.Repeat(" x,", random.IntN(200)))
	}
	b.WriteString(" ]\n return x(\n" + strings.Repeat("\n", 1000) + "x\n)\n")
	name := t.TempDir() + "/long.py"
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// The forms of the table, entry by entry, as CPython documents them.
func TestLineTable(t *testing.T) {
	for _, c := range []struct {
		name  string
		style Style
		data  string
		want  string
	}{
		{"lnotab", StyleLastiByte, "\x06\x01\x08\x02", "0-6:10 6-14:11 14-:13"},
		{"lnotab empty", StyleLastiByte, "", "0-:10"},
		{"lnotab backwards", StyleLastiByte, "\x04\xfe", "0-4:10 4-:8"},
		{"lnotab long steps", StyleLastiByte, "\xff\x00\x01\x7f\x00\x7f", "0-256:10 256-:264"},
		{"3.10", StyleLastiUnit, "\x04\x00\x06\x01\x02\x80\x02\x01", "0-4:10 4-10:11 10-12:0 12-14:12"},
		{"3.10 long line step", StyleLastiUnit, "\x00\x7f\x04\x01", "0-4:138"},
		{"3.11 short", StylePrevInstr, "\x80\x00\xd0\x12", "0-2:10 2-4:10"},
		{"3.11 one line", StylePrevInstr, "\xd8\x01\x02\xe0\x01\x02", "0-2:11 2-4:13"},
		{"3.11 no columns, backwards", StylePrevInstr, "\xe9\x05", "0-4:8"},
		{"3.11 long", StylePrevInstr, "\xf0\x46\x03\x01\x00\x00", "0-2:109"},
		{"3.11 none keeps the running line", StylePrevInstr, "\xd8\x01\x02\xf8\xd0\x00", "0-2:11 2-4:0 4-6:11"},
		{"unknown style", StyleInvalid, "\x01\x01", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			table := LineTable{Style: c.style, FirstLine: 10, Data: []byte(c.data)}
			var got []string
			for r := range table.Ranges() {
				end := fmt.Sprint(r.End)
				if r.End == openEnd {
					end = ""
				}
				got = append(got, fmt.Sprintf("%d-%s:%d", r.Start, end, r.Line))
			}
			if text := strings.Join(got, " "); text != c.want {
				t.Errorf("got %s, want %s", text, c.want)
			}
		})
	}
}

// Ranges go forward, do not overlap, and Line agrees with them.
func FuzzLineTable(f *testing.F) {
	f.Add(byte(StyleLastiByte), int32(1), []byte("\x06\x01\x08\x02\xff\x00"), int32(8))
	f.Add(byte(StyleLastiUnit), int32(7), []byte("\x04\x00\x06\x01\x02\x80"), int32(-2))
	f.Add(byte(StylePrevInstr), int32(1<<30), []byte("\xf0\x7f\x7f\x7f\x7f\x7f\x7f\x03\x01\x00\x00\xf8\xd0\x00"), int32(3))
	f.Fuzz(func(t *testing.T, style byte, first int32, data []byte, at int32) {
		table := LineTable{Style: Style(style % 6), FirstLine: first, Data: data}
		want, end := int32(0), int32(0)
		for r := range table.Ranges() {
			if r.Start < end || r.End <= r.Start {
				t.Fatalf("range %+v after %d", r, end)
			}
			end = r.End
			if r.Start <= at && at < r.End {
				want = r.Line
			}
		}
		if at < 0 {
			want = first
		}
		if got := table.Line(at); got != want {
			t.Errorf("offset %d: got line %d, want %d", at, got, want)
		}
	})
}
