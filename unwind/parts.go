// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"
)

// maxFunction bounds the code of a function and of a part of it: the largest
// functions are a few hundred kilobytes.
const maxFunction = 4 << 20

// Parts returns where the other parts of the function at [from, to) lie, which
// compilers put elsewhere because they seldom run (.cold); a stripped file has no
// names for them. A part is code that
//
//   - call frame information describes as one range,
//   - begins within a frame, not as the function does, and
//   - jumps into the function, as the function does into it.
//
// Parts that begin before the function has a frame are not found, nor those that
// only other parts jump to. Without call frame information the error wraps
// [ErrNoTable].
func Parts(r io.ReaderAt, from, to uint64) (found [][2]uint64, err error) {
	defer guard("find parts of a function", &err)
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	base, err := f.base()
	if err != nil {
		return nil, fmt.Errorf("find parts of a function: %w", err)
	}
	fdes, err := f.describe(&Table{Machine: f.Machine, Base: base})
	if err != nil {
		return nil, fmt.Errorf("find parts of a function: %w", err)
	}
	whole := addrRange{from, to}
	code, err := f.codeOf(whole)
	if err != nil {
		return nil, fmt.Errorf("find parts of a function: %w", err)
	}
	entry, ok := f.firstRule(fdes, from, base)
	if !ok {
		return nil, fmt.Errorf("find parts of a function: no description at %#x: %w", from, ErrNoTable)
	}
	var parts []addrRange
	for target := range jumps(f.Machine, code, from) {
		part, ok := describedAt(fdes, target)
		if !ok || part.start < to && part.end > from || slices.Contains(parts, part) {
			continue
		}
		if first, ok := f.firstRule(fdes, part.start, base); ok && first != entry && f.jumpsInto(part, whole) {
			parts = append(parts, part)
		}
	}
	for _, p := range parts {
		found = append(found, [2]uint64{p.start, p.end})
	}
	return found, nil
}

// codeOf reads the code of a range.
func (f *elfFile) codeOf(r addrRange) ([]byte, error) {
	for _, l := range f.loads {
		if l.Exec && l.Vaddr <= r.start && r.start < r.end && r.end-l.Vaddr <= l.FileSize && r.end-r.start <= maxFunction {
			return f.bytes("code", l.Offset+(r.start-l.Vaddr), r.end-r.start)
		}
	}
	return nil, fmt.Errorf("no code from %#x to %#x", r.start, r.end)
}

// describedAt returns the described range around an address.
func describedAt(fdes frame.FrameDescriptionEntries, addr uint64) (addrRange, bool) {
	fde, err := fdes.FDEForPC(addr)
	if err != nil {
		return addrRange{}, false
	}
	return addrRange{fde.Begin(), fde.End()}, true
}

// firstRule returns the rule at the first instruction of the range that begins at
// an address.
func (f *elfFile) firstRule(fdes frame.FrameDescriptionEntries, addr, base uint64) (Rule, bool) {
	fde, err := fdes.FDEForPC(addr)
	if err != nil || fde.Begin() != addr {
		return Rule{}, false
	}
	table := &Table{Machine: f.Machine, Base: base}
	if err := compile(table, frame.FrameDescriptionEntries{fde}, nil); err != nil {
		return Rule{}, false
	}
	return table.Find(addr)
}

// jumpsInto tells whether the code of part jumps into whole.
func (f *elfFile) jumpsInto(part, whole addrRange) bool {
	code, err := f.codeOf(part)
	if err != nil {
		return false
	}
	for target := range jumps(f.Machine, code, part.start) {
		if whole.start <= target && target < whole.end {
			return true
		}
	}
	return false
}

// jumps yields where the direct jumps in the code at an address lead. Bytes that
// only look like one lead anywhere; x86's two-byte jumps, which do not lead far,
// are left out.
func jumps(machine elf.Machine, code []byte, at uint64) func(func(uint64) bool) {
	le := binary.LittleEndian
	if machine == elf.EM_AARCH64 {
		return func(yield func(uint64) bool) {
			for i := 0; i+4 <= len(code); i += 4 {
				if off, ok := jumpARM64(le.Uint32(code[i:])); ok && !yield(at+uint64(i)+uint64(off)) {
					return
				}
			}
		}
	}
	return func(yield func(uint64) bool) {
		for i := 0; i+5 <= len(code); i++ {
			length := 0
			switch {
			case code[i] == 0xe9: // jmp
				length = 5
			case code[i] == 0x0f && code[i+1]&0xf0 == 0x80 && i+6 <= len(code): // jcc
				length = 6
			default:
				continue
			}
			next := i + length
			if !yield(at + uint64(next) + uint64(int64(int32(le.Uint32(code[next-4:]))))) {
				return
			}
		}
	}
}

// jumpARM64 returns the distance of a direct jump (Arm Architecture Reference
// Manual, C4.1 "Branches").
func jumpARM64(word uint32) (off int64, ok bool) {
	switch {
	case word&0xfc000000 == 0x14000000: // b
		return int64(int32(word<<6)>>6) * 4, true
	case word&0xff000000 == 0x54000000, word&0x7e000000 == 0x34000000: // b.cond, cbz, cbnz
		return int64(int32(word<<8)>>13) * 4, true
	case word&0x7e000000 == 0x36000000: // tbz, tbnz
		return int64(int32(word<<13)>>18) * 4, true
	}
	return 0, false
}
