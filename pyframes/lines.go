// SPDX-License-Identifier: Apache-2.0

package pyframes

import "iter"

// LineTable maps positions in a code object's bytecode to source lines.
type LineTable struct {
	// Style decides the form of Data.
	Style     Style
	FirstLine int32
	// Data is co_lnotab (up to 3.9) or co_linetable (3.10 and newer).
	Data []byte
}

// Range is a run of bytecode, [Start, End) in bytes, that belongs to one line;
// Line is 0 if it belongs to none.
type Range struct {
	Start, End int32
	Line       int32
}

// maxBytecode bounds positions, as a table from elsewhere may claim anything.
const maxBytecode = 1 << 28

// openEnd is the end of the last range where a table does not say it.
const openEnd = maxBytecode

// Line returns the line of the instruction at a byte offset: the first line
// before the first instruction, 0 if it belongs to no line or to no range.
func (t LineTable) Line(lasti int32) int32 {
	if lasti < 0 {
		return t.FirstLine
	}
	return t.rangeOf(lasti).Line
}

// rangeOf returns the run of bytecode at a byte offset, an empty one if there is
// none.
func (t LineTable) rangeOf(lasti int32) Range {
	for r := range t.Ranges() {
		if r.Start <= lasti && lasti < r.End {
			return r
		}
	}
	return Range{}
}

// Ranges yields the runs of bytecode in order, as code.co_lines() does from 3.10
// on, and dis.findlinestarts before.
func (t LineTable) Ranges() iter.Seq[Range] {
	switch t.Style {
	case StyleLastiByte:
		return t.lnotab
	case StyleLastiUnit:
		return t.lineTable310
	case StylePrevInstr, StyleInstrPtr:
		return t.locations
	}
	return func(func(Range) bool) {}
}

// lnotab: pairs of an unsigned step of the position and a signed one of the
// line. A step that does not fit is given in several pairs, so only a pair that
// moves the position ends a range (Objects/lnotab_notes.txt, 3.9).
func (t LineTable) lnotab(yield func(Range) bool) {
	line, start, at := t.FirstLine, int32(0), int32(0)
	for d := t.Data; len(d) >= 2; d = d[2:] {
		at = min(at+int32(d[0]), maxBytecode)
		next := line + int32(int8(d[1]))
		if at > start && next != line {
			if !yield(Range{start, at, line}) {
				return
			}
			start = at
		}
		line = next
	}
	yield(Range{start, openEnd, line})
}

// lineTable310: pairs of steps again, but each is a range of its own, and a line
// step of -128 says that the range belongs to no line and leaves the running
// line alone (Objects/lnotab_notes.txt, 3.10).
func (t LineTable) lineTable310(yield func(Range) bool) {
	line, at := t.FirstLine, int32(0)
	for d := t.Data; len(d) >= 2; d = d[2:] {
		end := min(at+int32(d[0]), maxBytecode)
		step := int32(int8(d[1]))
		shown := int32(0)
		if step != -128 {
			line += step
			shown = line
		}
		if end > at && !yield(Range{at, end, shown}) {
			return
		}
		at = end
	}
}

// Kinds of entries of the location table (Objects/locations.md, 3.11).
const (
	locationOneLine   = 10 // 10, 11, 12: line step 0, 1, 2
	locationNoColumns = 13
	locationLong      = 14
	locationNone      = 15
)

// locations: entries that begin with a byte whose top bit is set, then four bits
// of kind and three of length in code units, less one. Entries without a
// location leave the running line alone.
func (t LineTable) locations(yield func(Range) bool) {
	line, at := t.FirstLine, int32(0)
	for d := t.Data; len(d) > 0; {
		head := d[0]
		if head&0x80 == 0 {
			return // not the begin of an entry: damaged
		}
		kind := head >> 3 & 0xf
		end := min(at+2*(int32(head&7)+1), maxBytecode)
		shown := line
		switch {
		case kind == locationNone:
			shown = 0
		case kind == locationNoColumns, kind == locationLong:
			line += signedVarint(d[1:])
			shown = line
		case kind >= locationOneLine:
			line += int32(kind - locationOneLine)
			shown = line
		}
		if !yield(Range{at, end, shown}) {
			return
		}
		at = end
		n := 1
		for n < len(d) && d[n]&0x80 == 0 {
			n++
		}
		d = d[n:]
	}
}

// signedVarint reads six bits a byte, the lowest first; bit 6 says that more
// follow, and the lowest bit of the whole is the sign.
func signedVarint(d []byte) int32 {
	var v uint32
	for i := 0; i < len(d) && i < 6; i++ {
		v |= uint32(d[i]&0x3f) << (6 * i)
		if d[i]&0x40 == 0 {
			break
		}
	}
	if v&1 != 0 {
		return -int32(v >> 1)
	}
	return int32(v >> 1)
}
