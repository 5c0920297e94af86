// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"debug/dwarf"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrNoLines says that a file has no debugging information.
var ErrNoLines = errors.New("no debugging information")

// Bounds of what is believed of debugging information. Its entries may name the
// same strings and ranges again and again, so that a small file can ask for any
// amount of work.
const (
	maxUnits     = 1 << 20 // the largest programs have some ten thousand
	maxUnitRows  = 8 << 20 // of one line table
	maxUnitNodes = 1 << 20 // functions and inlined calls of one unit
	maxWork      = 4 << 30 // bytes of entries and their strings, of all units
	maxOrigins   = 8       // from a call to the function's name
)

// SourceLine is a place in source code.
type SourceLine struct {
	// Function as the compiler names it, for people; empty if unknown.
	Function string
	// File as the compiler was given it; Line there, and the function's first.
	File            string
	Line, FirstLine int32
}

// Lines finds source lines and inlined functions by DWARF debugging information.
// It reads a compilation unit when an address in it is first asked for. It is
// not safe for concurrent use.
type Lines struct {
	data  *dwarf.Data
	spans []unitSpan // by low
	units map[dwarf.Offset]*lineUnit
	work  int64
}

// unitSpan is a range of code of a compilation unit.
type unitSpan struct {
	low, high uint64
	unit      dwarf.Offset
}

// OpenLines opens the debugging information of an ELF file, which may be a
// separate debug file. Without any it returns an error that wraps [ErrNoLines].
func OpenLines(r io.ReaderAt) (l *Lines, err error) {
	defer guard("read debugging information", &err)
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	if s := f.Section(".debug_info"); s == nil || f.Section(".debug_line") == nil {
		return nil, fmt.Errorf("read debugging information: %w", ErrNoLines)
	}
	data, err := f.dwarfData()
	if err != nil {
		return nil, fmt.Errorf("read debugging information: %w", err)
	}
	l = &Lines{data: data, units: map[dwarf.Offset]*lineUnit{}}
	if err := l.findUnits(); err != nil {
		return nil, fmt.Errorf("read debugging information: %w", err)
	}
	return l, nil
}

// dwarfData reads the sections that matter. debug/elf's own way to them trusts
// their sizes.
func (f *elfFile) dwarfData() (*dwarf.Data, error) {
	var b [5][]byte
	var err error
	for i, name := range []string{"abbrev", "info", "line", "ranges", "str"} {
		if b[i], err = f.section(".debug_" + name); err != nil {
			return nil, err
		}
	}
	data, err := dwarf.New(b[0], nil, nil, b[1], b[2], nil, b[3], b[4])
	if err != nil {
		return nil, err
	}
	for _, name := range []string{".debug_addr", ".debug_line_str", ".debug_str_offsets", ".debug_rnglists"} {
		s, err := f.section(name)
		if err == nil && s != nil {
			err = data.AddSection(name, s)
		}
		if err != nil {
			return nil, err
		}
	}
	return data, nil
}

// errTooMuch ends the reading of information that asks for too much.
var errTooMuch = errors.New("too much of it")

// next reads an entry and counts the work.
func (l *Lines) next(r *dwarf.Reader) (*dwarf.Entry, error) {
	e, err := r.Next()
	if e == nil || err != nil {
		return nil, err
	}
	l.work += int64(16 * (1 + len(e.Field)))
	for i := range e.Field {
		if s, ok := e.Field[i].Val.(string); ok {
			l.work += int64(len(s))
		}
	}
	if l.work > maxWork {
		return nil, errTooMuch
	}
	return e, nil
}

// ranges are those of an entry; they count as work, too.
func (l *Lines) ranges(e *dwarf.Entry) [][2]uint64 {
	ranges, err := l.data.Ranges(e)
	l.work += int64(16 * len(ranges))
	if err != nil {
		return nil // one entry less
	}
	return slices.DeleteFunc(ranges, func(r [2]uint64) bool { return r[0] == 0 || r[1] <= r[0] })
}

func (l *Lines) findUnits() error {
	r := l.data.Reader()
	for n := 0; n < maxUnits; n++ {
		e, err := l.next(r)
		if err != nil && len(l.spans) == 0 {
			return err
		}
		if e == nil || err != nil {
			break // what was found before damage is good
		}
		if e.Tag == dwarf.TagCompileUnit {
			for _, x := range l.ranges(e) {
				l.spans = append(l.spans, unitSpan{x[0], x[1], e.Offset})
			}
		}
		r.SkipChildren()
	}
	slices.SortFunc(l.spans, func(a, b unitSpan) int { return cmp.Compare(a.low, b.low) })
	return nil
}

// At returns the source lines of an address as the linker gave it, innermost
// first: functions inlined there, then the one that has the code. Nil if nothing
// is known.
func (l *Lines) At(addr uint64) (lines []SourceLine) {
	defer func() {
		if recover() != nil { // hostile information
			lines = nil
		}
	}()
	i, exact := slices.BinarySearchFunc(l.spans, addr, func(s unitSpan, addr uint64) int { return cmp.Compare(s.low, addr) })
	if !exact {
		i--
	}
	if i < 0 || addr >= l.spans[i].high {
		return nil
	}
	offset := l.spans[i].unit
	u, ok := l.units[offset]
	if !ok {
		u, _ = l.readUnit(offset) // what could be read of it
		l.units[offset] = u
	}
	if u == nil {
		return nil
	}
	return l.resolve(u, addr)
}

// resolve puts the place of an address together with the calls inlined around it.
func (l *Lines) resolve(u *lineUnit, addr uint64) []SourceLine {
	var out []SourceLine
	at := u.line(addr)
	for _, n := range u.around(addr) {
		name, first := l.function(u.nodes[n].origin)
		at.Function, at.FirstLine = name, first
		out = append(out, at)
		at = SourceLine{File: u.file(u.nodes[n].callFile), Line: u.nodes[n].callLine}
	}
	if out == nil && at.Line != 0 {
		out = append(out, at)
	}
	return out
}

// function returns the name and the first line of a function, which stand at the
// end of a chain of references.
func (l *Lines) function(at dwarf.Offset) (name string, first int32) {
	linkage := ""
	r := l.data.Reader()
	for range maxOrigins {
		r.Seek(at)
		e, err := l.next(r)
		if e == nil || err != nil {
			break
		}
		if s, ok := e.Val(dwarf.AttrLinkageName).(string); ok && linkage == "" {
			linkage = s
		}
		if s, ok := e.Val(dwarf.AttrName).(string); ok && name == "" {
			name = s
		}
		if n, ok := e.Val(dwarf.AttrDeclLine).(int64); ok && first == 0 {
			first = lineNumber(n)
		}
		next, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			next, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset)
		}
		if !ok || name != "" && first != 0 && linkage != "" {
			break
		}
		at = next
	}
	if linkage != "" {
		name = Demangle(linkage)
	}
	if len(name) > maxMangled {
		name = name[:maxMangled]
	}
	return name, first
}

// lineNumber is 0 for a number that is none.
func lineNumber(n int64) int32 {
	if n < 0 || n > 1<<31-1 {
		return 0
	}
	return int32(n)
}
