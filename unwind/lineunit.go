// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"io"
	"slices"
)

// lineUnit is what is kept of a compilation unit.
type lineUnit struct {
	rows  []lineRow // by address
	files []string
	nodes []codeNode
	spans []nodeSpan // of the functions that have code, by low
}

// lineRow holds from its address to the next row's.
type lineRow struct {
	addr uint64
	file int32 // -1: no code
	line int32
}

// codeNode is a function with code, or a call that was inlined.
type codeNode struct {
	ranges   [][2]uint64
	origin   dwarf.Offset // the entry itself, or the function that was inlined
	callFile int64
	callLine int32
	depth    int32 // 0: has code of its own
	end      int32 // behind the last node within
}

// nodeSpan is a range of a function with code.
type nodeSpan struct {
	low, high uint64
	node      int32
}

// readUnit reads the lines and functions of the unit at an offset. What it could
// read before an error is good.
func (l *Lines) readUnit(at dwarf.Offset) (*lineUnit, error) {
	r := l.data.Reader()
	r.Seek(at)
	e, err := l.next(r)
	if e == nil || err != nil {
		return nil, err
	}
	u := &lineUnit{}
	err = errors.Join(l.readRows(u, e), l.readNodes(u, r, e))
	return u, err
}

// readRows runs the unit's line program.
func (l *Lines) readRows(u *lineUnit, unit *dwarf.Entry) error {
	lines, err := l.data.LineReader(unit)
	if lines == nil || err != nil {
		return err
	}
	for _, f := range lines.Files() {
		name := ""
		if f != nil {
			name = f.Name
		}
		u.files = append(u.files, name)
	}
	index := make(map[*dwarf.LineFile]int32)
	for i, f := range lines.Files() {
		index[f] = int32(i)
	}
	var e dwarf.LineEntry
	for len(u.rows) < maxUnitRows {
		if err = lines.Next(&e); err != nil {
			break
		}
		row := lineRow{addr: e.Address, file: -1}
		if i, ok := index[e.File]; ok && !e.EndSequence {
			row.file, row.line = i, lineNumber(int64(e.Line))
		}
		u.rows = append(u.rows, row)
	}
	l.work += int64(16 * len(u.rows))
	// Sequences come in any order. Where one ends at the start of another, the
	// end goes first; of several rows at one address the last holds.
	slices.SortStableFunc(u.rows, func(a, b lineRow) int {
		if c := cmp.Compare(a.addr, b.addr); c != 0 {
			return c
		}
		return cmp.Compare(min(a.file, 0), min(b.file, 0))
	})
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// readNodes reads the unit's functions and what was inlined in them.
func (l *Lines) readNodes(u *lineUnit, r *dwarf.Reader, unit *dwarf.Entry) error {
	if !unit.Children {
		return nil
	}
	// open holds the node around each level of entries, -1 for none.
	open := []int32{-1}
	for len(open) > 0 {
		e, err := l.next(r)
		if e == nil || err != nil {
			return err
		}
		if e.Tag == 0 { // the end of a level
			if n := open[len(open)-1]; n >= 0 {
				u.nodes[n].end = int32(len(u.nodes))
			}
			open = open[:len(open)-1]
			continue
		}
		around := open[len(open)-1]
		n := u.add(l, e, around)
		if !e.Children {
			continue
		}
		if !mayHoldCode(e.Tag) {
			r.SkipChildren()
			continue
		}
		if n < 0 {
			n = around
		}
		open = append(open, n)
		if len(u.nodes) >= maxUnitNodes {
			return errTooMuch
		}
	}
	slices.SortFunc(u.spans, func(a, b nodeSpan) int { return cmp.Compare(a.low, b.low) })
	return nil
}

// mayHoldCode tells the entries in which functions and inlined calls stand.
func mayHoldCode(tag dwarf.Tag) bool {
	switch tag {
	case dwarf.TagSubprogram, dwarf.TagInlinedSubroutine, dwarf.TagLexDwarfBlock, dwarf.TagNamespace,
		dwarf.TagModule, dwarf.TagClassType, dwarf.TagStructType:
		return true
	}
	return false
}

// add makes a node of an entry; -1 if it is none, or has no code.
func (u *lineUnit) add(l *Lines, e *dwarf.Entry, around int32) int32 {
	inlined := e.Tag == dwarf.TagInlinedSubroutine
	if !inlined && e.Tag != dwarf.TagSubprogram || inlined && around < 0 {
		return -1
	}
	ranges := l.ranges(e)
	if len(ranges) == 0 {
		return -1
	}
	id := int32(len(u.nodes))
	n := codeNode{ranges: ranges, origin: e.Offset, end: id + 1}
	if inlined {
		n.depth = u.nodes[around].depth + 1
		n.callFile, _ = e.Val(dwarf.AttrCallFile).(int64)
		line, _ := e.Val(dwarf.AttrCallLine).(int64)
		n.callLine = lineNumber(line)
	} else {
		for _, r := range ranges {
			u.spans = append(u.spans, nodeSpan{r[0], r[1], id})
		}
	}
	u.nodes = append(u.nodes, n)
	return id
}

// line is the place of an address by the line table.
func (u *lineUnit) line(addr uint64) SourceLine {
	i, _ := slices.BinarySearchFunc(u.rows, addr, func(r lineRow, addr uint64) int {
		if r.addr <= addr {
			return -1
		}
		return 1
	})
	if i == 0 || u.rows[i-1].file < 0 {
		return SourceLine{}
	}
	row := u.rows[i-1]
	return SourceLine{File: u.file(int64(row.file)), Line: row.line}
}

func (u *lineUnit) file(i int64) string {
	if i < 0 || i >= int64(len(u.files)) {
		return ""
	}
	return u.files[i]
}

// around returns the nodes around an address, innermost first.
func (u *lineUnit) around(addr uint64) []int32 {
	i, exact := slices.BinarySearchFunc(u.spans, addr, func(s nodeSpan, addr uint64) int { return cmp.Compare(s.low, addr) })
	if !exact {
		i--
	}
	if i < 0 || addr >= u.spans[i].high {
		return nil
	}
	first := u.spans[i].node
	path := []int32{first}
	for n := first + 1; n < u.nodes[first].end; n++ {
		x := &u.nodes[n]
		if x.depth != int32(len(path)) {
			continue // a nested function with code, or in another branch
		}
		if slices.ContainsFunc(x.ranges, func(r [2]uint64) bool { return r[0] <= addr && addr < r[1] }) {
			path = append(path, n)
			continue
		}
		n = x.end - 1 // nothing within it either
	}
	slices.Reverse(path)
	return path
}
