// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// Bounds of what is believed of a perf map file: any program can write one.
const (
	maxPerfMapEntries = 4 << 20
	maxPerfMapNames   = 512 << 20
)

// PerfMap names the code that a process generated at run time. It is safe for
// concurrent use.
type PerfMap struct {
	parts []perfMapPart // by start, not overlapping
	names []byte
	// Bad counts lines that were not understood; the last line of a file that is
	// being written is often one.
	Bad int
}

// perfMapPart is a range that one entry has for itself.
type perfMapPart struct {
	start, end  uint64
	symStart    uint64 // of the whole entry
	symSize     uint64
	name, nameN uint32
}

// ParsePerfMap reads the form of /tmp/perf-PID.map: "START SIZE NAME", numbers
// in hex, names to the end of the line. Where entries overlap the later one
// wins: memory of dropped code is used again.
func ParsePerfMap(r io.Reader) (*PerfMap, error) {
	m := &PerfMap{}
	var all []perfMapPart
	lines := bufio.NewReaderSize(r, 1<<16)
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			m.Bad++
			continue
		}
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("read perf map: %w", err)
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
			if len(all) >= maxPerfMapEntries || len(m.names)+len(line) > maxPerfMapNames {
				return nil, errors.New("read perf map: too many entries")
			}
			all = m.line(all, line)
		}
		if err == io.EOF {
			m.parts = flattenLastWins(all)
			return m, nil
		}
	}
}

func (m *PerfMap) line(all []perfMapPart, b []byte) []perfMapPart {
	start, n := hexField(b)
	b = b[n:]
	size, n2 := hexField(b)
	name := bytes.TrimSpace(b[n2:])
	if n == 0 || n2 == 0 || size == 0 || len(name) == 0 || start+size < start {
		m.Bad++
		return all
	}
	p := perfMapPart{
		start: start, end: start + size, symStart: start, symSize: size,
		name: uint32(len(m.names)), nameN: uint32(len(name)),
	}
	m.names = append(m.names, name...)
	return append(all, p)
}

// hexField reads a number, with or without 0x, and the blanks behind it.
func hexField(b []byte) (v uint64, n int) {
	skip := 0
	if len(b) > 2 && b[0] == '0' && (b[1] == 'x' || b[1] == 'X') {
		skip = 2
	}
	v, n = parseHex(b[skip:])
	n += skip
	if n == skip || n >= len(b) || b[n] != ' ' {
		return 0, 0
	}
	for n < len(b) && b[n] == ' ' {
		n++
	}
	return v, n
}

// flattenLastWins cuts overlapping entries into ranges that belong to the
// latest entry around them. At every border the open entries are known by
// their order; the latest open one owns the range up to the next border.
func flattenLastWins(all []perfMapPart) []perfMapPart {
	type border struct {
		at   uint64
		who  int32
		open bool
	}
	borders := make([]border, 0, 2*len(all))
	for i, p := range all {
		borders = append(borders, border{p.start, int32(i), true}, border{p.end, int32(i), false})
	}
	slices.SortFunc(borders, func(a, b border) int { return cmp.Compare(a.at, b.at) })
	var out []perfMapPart
	var open latestHeap
	closed := make([]bool, len(all))
	for i := 0; i < len(borders); {
		at := borders[i].at
		for ; i < len(borders) && borders[i].at == at; i++ {
			if b := borders[i]; b.open {
				open.push(b.who)
			} else {
				closed[b.who] = true
			}
		}
		for len(open) > 0 && closed[open[0]] {
			open.pop()
		}
		if len(open) == 0 || i == len(borders) {
			continue
		}
		p := all[open[0]]
		p.start, p.end = at, borders[i].at
		if n := len(out); n > 0 && out[n-1].end == at && out[n-1].name == p.name {
			out[n-1].end = p.end
			continue
		}
		out = append(out, p)
	}
	return slices.Clip(out)
}

// latestHeap is a binary heap with the greatest number on top.
type latestHeap []int32

func (h *latestHeap) push(v int32) {
	*h = append(*h, v)
	a := *h
	for i := len(a) - 1; i > 0 && a[(i-1)/2] < a[i]; i = (i - 1) / 2 {
		a[i], a[(i-1)/2] = a[(i-1)/2], a[i]
	}
}

func (h *latestHeap) pop() {
	a := *h
	last := len(a) - 1
	a[0] = a[last]
	a = a[:last]
	*h = a
	for i := 0; ; {
		big := i
		for _, c := range [2]int{2*i + 1, 2*i + 2} {
			if c < len(a) && a[c] > a[big] {
				big = c
			}
		}
		if big == i {
			return
		}
		a[i], a[big] = a[big], a[i]
		i = big
	}
}

// Len is the number of ranges.
func (m *PerfMap) Len() int { return len(m.parts) }

// Lookup returns the entry around an address of the process. The names are the
// file's own: the interpreter writes "py::function:file", runtimes of other
// languages their own forms.
func (m *PerfMap) Lookup(addr uint64) (Symbol, bool) {
	i, exact := slices.BinarySearchFunc(m.parts, addr, func(p perfMapPart, t uint64) int { return cmp.Compare(p.start, t) })
	if !exact {
		i--
	}
	if i < 0 || addr >= m.parts[i].end {
		return Symbol{}, false
	}
	p := m.parts[i]
	name := string(m.names[p.name:min(uint64(p.name)+uint64(p.nameN), math.MaxUint32)])
	return Symbol{Name: name, Linkage: name, Start: p.symStart, Size: p.symSize}, true
}
