// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"strings"
	"testing"
)

const perfMapText = `7f0000001000 100 py::old:/app/a.py
7f0000001040 20 py::new:/app/b b.py
0x7f0000002000 0x10 LazyCompile:~main
7f0000003000 0 empty
zz 10 bad
7f0000004000 10
`

func TestPerfMap(t *testing.T) {
	m, err := ParsePerfMap(strings.NewReader(perfMapText))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		addr uint64
		want string // empty: none
	}{
		{0x7f0000000fff, ""},
		{0x7f0000001000, "py::old:/app/a.py"},
		{0x7f000000103f, "py::old:/app/a.py"},
		{0x7f0000001040, "py::new:/app/b b.py"},
		{0x7f000000105f, "py::new:/app/b b.py"},
		{0x7f0000001060, "py::old:/app/a.py"},
		{0x7f0000001100, ""},
		{0x7f000000200f, "LazyCompile:~main"},
		{0x7f0000003000, ""},
	}
	for _, tt := range tests {
		got, ok := m.Lookup(tt.addr)
		if got.Name != tt.want || ok != (tt.want != "") {
			t.Errorf("%#x: got %+v, want %q", tt.addr, got, tt.want)
		}
	}
	if m.Bad != 3 {
		t.Errorf("bad lines: got %d, want 3", m.Bad)
	}
}

// Each address has the last entry of the file around it, found by a plain scan.
func FuzzParsePerfMap(f *testing.F) {
	f.Add([]byte(perfMapText))
	f.Add([]byte("0 ffffffffffffffff a\n1 2 b\n2 2 c\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<12 {
			return
		}
		m, err := ParsePerfMap(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		scan := &PerfMap{}
		var all []perfMapPart
		for line := range bytes.Lines(b) {
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				all = scan.line(all, line)
			}
		}
		for _, p := range all {
			for _, addr := range []uint64{p.start, p.end - 1, p.end} {
				want := ""
				for _, q := range all {
					if addr >= q.start && addr < q.end {
						want = string(scan.names[q.name : q.name+q.nameN])
					}
				}
				if got, ok := m.Lookup(addr); got.Name != want || ok != (want != "") {
					t.Fatalf("%#x: got %q %v, want %q", addr, got.Name, ok, want)
				}
			}
		}
	})
}
