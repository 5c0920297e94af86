// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/go-delve/delve/pkg/dwarf/frame"
)

// frameData is the call frame information of a file before it is parsed.
type frameData struct {
	bytes []byte
	addr  uint64 // of .eh_frame; 0: the form of .debug_frame
}

// maxFrameData is several times what the largest programs have, and bounds the
// rows that come of it.
const maxFrameData = 256 << 20

// readFrameData finds .eh_frame by its section or, where section headers were
// stripped, by its header segment; else .debug_frame.
func (f *elfFile) readFrameData() (d frameData, err error) {
	defer func() {
		if err == nil && len(d.bytes) > maxFrameData {
			d, err = frameData{}, fmt.Errorf("%d bytes of call frame information are too many", len(d.bytes))
		}
	}()
	if s := f.Section(".eh_frame"); s != nil && s.Type != elf.SHT_NOBITS && s.Addr != 0 && s.Size > 4 {
		b, err := f.data(s)
		return frameData{b, s.Addr}, err
	}
	if d, ok := f.frameDataFromSegment(); ok {
		return d, nil
	}
	b, err := f.section(".debug_frame")
	if err == nil && len(b) == 0 {
		err = ErrNoTable
	}
	return frameData{bytes: b}, err
}

// frameDataFromSegment reads the pointer in .eh_frame_hdr (Linux Standard Base,
// core part, section 10.6.2) and takes the bytes up to the segment's end.
func (f *elfFile) frameDataFromSegment() (frameData, bool) {
	for _, p := range f.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME {
			continue
		}
		var head [8]byte
		if n, _ := p.ReadAt(head[:], 0); n != len(head) || head[0] != 1 || head[1] != 0x1b { // pcrel, sdata4
			return frameData{}, false
		}
		addr := p.Vaddr + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(head[4:]))))
		for _, l := range f.loads {
			if addr <= l.Vaddr || addr-l.Vaddr >= l.FileSize {
				continue
			}
			skip := addr - l.Vaddr
			b, err := f.bytes("frame information", l.Offset+skip, l.FileSize-skip)
			return frameData{untilTerminator(b), addr}, err == nil
		}
	}
	return frameData{}, false
}

// untilTerminator cuts at the entry of length zero that ends .eh_frame.
func untilTerminator(b []byte) []byte {
	for at := uint64(0); at+4 <= uint64(len(b)); {
		n := uint64(binary.LittleEndian.Uint32(b[at:]))
		if n == 0 {
			return b[:at]
		}
		at += 4 + n
	}
	return b
}

// unusable is the version that prepare gives to a CIE whose functions have to be
// left out.
const unusable = 0xff

// prepare makes the bytes fit for the parser, which takes whole sections and
// gives up at the first entry it does not know: it cuts where entries end, and
// marks, or brings to a known form, the common parts (CIEs) that it knows to
// trouble the parser. It returns how often it cut.
func (d *frameData) prepare() (skipped int) {
	le := binary.LittleEndian
	cies := make(map[uint64]bool)
	at := uint64(0)
	for at+4 <= uint64(len(d.bytes)) {
		n := uint64(le.Uint32(d.bytes[at:]))
		if n == 0 { // a terminator; linkers leave some in the middle
			at += 4
			continue
		}
		if n < 8 || n > uint64(len(d.bytes))-at-4 { // also the 64-bit form, which nobody emits
			skipped++
			break
		}
		entry := d.bytes[at+4 : at+4+n]
		id := uint64(le.Uint32(entry))
		if d.isCIE(id) {
			cies[at] = true
			d.fixCIE(entry[4:])
		} else {
			if d.addr != 0 {
				id = at + 4 - id
			}
			if !cies[id] {
				skipped++
				break
			}
		}
		at += 4 + n
	}
	d.bytes = d.bytes[:at]
	return skipped
}

func (d *frameData) isCIE(id uint64) bool {
	if d.addr != 0 {
		return id == 0
	}
	return id == 0xffffffff
}

// fixCIE works on a CIE from its version on.
func (d *frameData) fixCIE(b []byte) {
	end := bytes.IndexByte(b[1:], 0) + 1 // of the augmentation
	if end == 0 || end+3 > len(b) {
		blankCIE(b)
		return
	}
	if d.addr == 0 {
		// Version 4 has the sizes of addresses and segments before the code
		// alignment, which three bytes can hold as well.
		if b[0] == 4 && end == 1 && len(b) > 5 && b[2] == 8 && b[3] == 0 && b[4] < 0x80 {
			b[0], b[2], b[3], b[4] = 3, b[4]|0x80, 0x80, 0
		}
		if b[0] == 4 || end != 1 {
			blankCIE(b)
		}
		return
	}
	for i := 1; i < end; i++ {
		switch c := b[i]; {
		case c == 'z' && i == 1, i > 1 && (c == 'L' || c == 'R' || c == 'P' || c == 'S'):
		case i > 1 && (c == 'B' || c == 'G') && b[end+1] < 0x80:
			// arm64: signed with the B key, tagged frames; both have no data.
			// The code alignment takes the place.
			copy(b[i:], b[i+1:end+1])
			b[end], b[end+1] = b[end+1]|0x80, 0
			end--
			i--
		default:
			blankCIE(b)
			return
		}
	}
}

func blankCIE(b []byte) {
	clear(b)
	b[0] = unusable
}

// parse returns the functions in order of addresses, those it can use.
func (d *frameData) parse(table *Table) (fdes frame.FrameDescriptionEntries, err error) {
	defer guard("read call frame information", &err)
	table.Skipped += d.prepare()
	all, err := frame.Parse(d.bytes, binary.LittleEndian, 0, 8, d.addr)
	if err != nil {
		return nil, fmt.Errorf("read call frame information: %w", err)
	}
	for _, fde := range all {
		begin, end := fde.Begin(), fde.End()
		switch {
		case fde.CIE.Version == unusable:
			table.Skipped++
		case begin == end || begin == 0:
			// Removed by the linker, which leaves the description.
		case end < begin || begin < table.Base || end-table.Base > maxTablePC:
			table.Skipped++
		default:
			fdes = append(fdes, fde)
		}
	}
	slices.SortStableFunc(fdes, func(a, b *frame.FrameDescriptionEntry) int { return cmp.Compare(a.Begin(), b.Begin()) })
	return fdes, nil
}

// BuildTable compiles the call frame information of an ELF file. r may also be
// the image of a library in memory, such as the [vdso]. Without any it returns
// an error that wraps [ErrNoTable].
func BuildTable(r io.ReaderAt) (*Table, error) {
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	base, err := f.base()
	if err != nil {
		return nil, fmt.Errorf("build unwind table: %w", err)
	}
	table := &Table{Machine: f.Machine, Base: base}
	fdes, err := f.describe(table)
	if err != nil {
		return nil, fmt.Errorf("build unwind table: %w", err)
	}
	patches := f.patches(base)
	if f.Machine == elf.EM_AARCH64 {
		fdes = withoutSignalReturns(fdes, patches, base)
	}
	if err := compile(table, fdes, patches); err != nil {
		return nil, fmt.Errorf("build unwind table: %w", err)
	}
	if len(table.Rows) == 0 {
		return nil, fmt.Errorf("build unwind table: %w", ErrNoTable)
	}
	return table, nil
}

// describe returns the functions of .eh_frame and those that only .debug_frame has:
// a program built without unwind tables, but with debugging information, has
// .eh_frame for the C library's start files alone.
func (f *elfFile) describe(table *Table) (frame.FrameDescriptionEntries, error) {
	data, err := f.readFrameData()
	if err != nil {
		return nil, err
	}
	fdes, err := data.parse(table)
	if err != nil || data.addr == 0 {
		return fdes, err
	}
	b, err := f.section(".debug_frame")
	if err != nil || len(b) > maxFrameData-len(data.bytes) {
		table.Skipped++
		return fdes, nil
	}
	more, err := (&frameData{bytes: b}).parse(table)
	if err != nil {
		table.Skipped++
		return fdes, nil
	}
	fdes = append(fdes, more...) // of those that begin alike the first is taken
	slices.SortStableFunc(fdes, func(a, b *frame.FrameDescriptionEntry) int { return cmp.Compare(a.Begin(), b.Begin()) })
	return fdes, nil
}

// withoutSignalReturns drops the descriptions of signal returns.
func withoutSignalReturns(fdes frame.FrameDescriptionEntries, patches []codePatch, base uint64) frame.FrameDescriptionEntries {
	return slices.DeleteFunc(fdes, func(fde *frame.FrameDescriptionEntry) bool {
		return slices.ContainsFunc(patches, func(p codePatch) bool {
			return p.rule.Flags&FlagSignal != 0 && fde.Cover(base+p.end-1)
		})
	})
}

// The code a signal handler returns to. Unwinders know it by its bytes
// (libgcc's linux-unwind.h of each processor), because not every C library
// describes it, and the kernel's own description for arm64 leaves out the
// interrupted function.
var (
	sigreturnAMD64 = []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}    // mov $15,%rax; syscall
	sigreturnARM64 = []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0x00, 0x00, 0xd4} // mov x8, #139; svc #0
)

// signalReturn is that code and its rule.
func signalReturn(machine elf.Machine) ([]byte, Rule) {
	if machine == elf.EM_AARCH64 {
		return sigreturnARM64, signalRuleARM64
	}
	return sigreturnAMD64, signalRuleAMD64
}

// signalReturns finds it, as addresses relative to base.
func (f *elfFile) signalReturns(base uint64) []uint64 {
	var found []uint64
	pattern, _ := signalReturn(f.Machine)
	budget := uint64(maxSection) // hostile segments may all show the same bytes
	for _, l := range f.loads {
		l.FileSize = min(l.FileSize, budget)
		if !l.Exec || l.Vaddr < base || l.Vaddr-base > maxTablePC-l.FileSize {
			continue
		}
		budget -= l.FileSize
		for at := range f.search(l, pattern) {
			found = append(found, l.Vaddr-base+at)
			if len(found) == 16 {
				return found
			}
		}
	}
	return found
}

// search yields where in a segment a pattern is, reading it in pieces.
func (f *elfFile) search(l Segment, pattern []byte) func(func(uint64) bool) {
	return func(yield func(uint64) bool) {
		if l.FileSize < uint64(len(pattern)) {
			return
		}
		buf := make([]byte, min(l.FileSize, 1<<18))
		step := uint64(len(buf) - len(pattern) + 1)
		for from := uint64(0); from < l.FileSize; from += step {
			b := buf[:min(uint64(len(buf)), l.FileSize-from)]
			n, err := f.r.ReadAt(b, int64(l.Offset+from))
			for at := 0; ; at++ {
				i := bytes.Index(b[at:n], pattern)
				if i < 0 {
					break
				}
				if at += i; !yield(from + uint64(at)) {
					return
				}
			}
			if n < len(b) || err != nil && !errors.Is(err, io.EOF) {
				return
			}
		}
	}
}
