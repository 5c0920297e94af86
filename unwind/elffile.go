// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// maxSection bounds what one section may occupy in memory once decompressed;
// the largest string tables seen (debug builds of machine learning libraries)
// are about 300 MB.
const maxSection = 1 << 30

// elfFile is an ELF file opened through the one door for hostile input.
type elfFile struct {
	*elf.File
	r     io.ReaderAt
	loads []Segment
	code  []addrRange // executable, by start
}

type addrRange struct{ start, end uint64 }

// Segment is a loadable part of an ELF file.
type Segment struct {
	Vaddr, Offset uint64
	FileSize      uint64
	MemSize       uint64
	Exec          bool
}

// openELF reads the headers. debug/elf does not promise to survive every
// input, so a panic inside it is turned into an error here; decoders that run
// later use [guard] themselves.
func openELF(r io.ReaderAt) (f *elfFile, err error) {
	defer guard("read ELF headers", &err)
	file, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("read ELF headers: %w", err)
	}
	if file.Class != elf.ELFCLASS64 || file.Data != elf.ELFDATA2LSB {
		return nil, fmt.Errorf("read ELF headers: %v %v: %w", file.Class, file.Data, errors.ErrUnsupported)
	}
	if file.Machine != elf.EM_X86_64 && file.Machine != elf.EM_AARCH64 {
		return nil, fmt.Errorf("read ELF headers: machine %v: %w", file.Machine, errors.ErrUnsupported)
	}
	f = &elfFile{File: file, r: r, loads: loadSegments(file)}
	f.code = f.codeRanges()
	return f, nil
}

// guard turns a panic of a third-party decoder into an error.
func guard(what string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: damaged input: %v", what, p)
	}
}

func loadSegments(f *elf.File) []Segment {
	var loads []Segment
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Vaddr+p.Memsz < p.Vaddr || p.Off+p.Filesz < p.Off {
			continue
		}
		loads = append(loads, Segment{
			Vaddr: p.Vaddr, Offset: p.Off, FileSize: p.Filesz, MemSize: p.Memsz,
			Exec: p.Flags&elf.PF_X != 0,
		})
	}
	return loads
}

// base is the lowest address the file is linked at.
func (f *elfFile) base() (uint64, error) {
	if len(f.loads) == 0 {
		return 0, errors.New("no loadable segment")
	}
	base := f.loads[0].Vaddr
	for _, l := range f.loads[1:] {
		base = min(base, l.Vaddr)
	}
	return base, nil
}

// codeRanges are the executable sections or, where section headers were
// stripped, segments.
func (f *elfFile) codeRanges() []addrRange {
	const code = elf.SHF_ALLOC | elf.SHF_EXECINSTR
	var ranges []addrRange
	for _, s := range f.Sections {
		if s.Flags&code == code && s.Addr+s.Size > s.Addr {
			ranges = append(ranges, addrRange{s.Addr, s.Addr + s.Size})
		}
	}
	if len(ranges) == 0 {
		for _, l := range f.loads {
			if l.Exec && l.MemSize > 0 {
				ranges = append(ranges, addrRange{l.Vaddr, l.Vaddr + l.MemSize})
			}
		}
	}
	slices.SortFunc(ranges, func(a, b addrRange) int { return cmp.Compare(a.start, b.start) })
	return ranges
}

// execRange returns the end of the executable range around addr.
func (f *elfFile) execRange(addr uint64) (end uint64, ok bool) {
	i, found := slices.BinarySearchFunc(f.code, addr, func(r addrRange, addr uint64) int { return cmp.Compare(r.start, addr) })
	if !found {
		i--
	}
	if i < 0 || addr >= f.code[i].end {
		return 0, false
	}
	return f.code[i].end, true
}

// section returns a section's bytes, nil if the file has none of this name.
func (f *elfFile) section(name string) ([]byte, error) {
	s := f.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS {
		return nil, nil
	}
	return f.data(s)
}

// data reads a section without trusting its size: what the file does not hold
// is found out by reading the last byte, before anything is allocated.
func (f *elfFile) data(s *elf.Section) (b []byte, err error) {
	defer guard("read section "+s.Name, &err)
	if s.Size > maxSection {
		return nil, fmt.Errorf("read section %s: %d bytes are too many", s.Name, s.Size)
	}
	if s.Flags&elf.SHF_COMPRESSED == 0 {
		return f.bytes(s.Name, s.Offset, s.Size)
	}
	b, err = io.ReadAll(io.LimitReader(s.Open(), int64(s.Size)))
	if err != nil {
		return nil, fmt.Errorf("read section %s: %w", s.Name, err)
	}
	return b, nil
}

// bytes reads a range of the file.
func (f *elfFile) bytes(what string, off, size uint64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	if size > maxSection || off > math.MaxInt64-maxSection {
		return nil, fmt.Errorf("read %s at %#x: %d bytes are too many", what, off, size)
	}
	var last [1]byte
	if n, err := f.r.ReadAt(last[:], int64(off+size-1)); n != 1 {
		return nil, fmt.Errorf("read %s at %#x: %w", what, off, cmp.Or(err, io.ErrUnexpectedEOF))
	}
	b := make([]byte, size)
	if n, err := f.r.ReadAt(b, int64(off)); n != len(b) {
		return nil, fmt.Errorf("read %s at %#x: %w", what, off, err)
	}
	return b, nil
}

// Segments returns the loadable segments of an ELF file. With the offset at
// which a mapping shows the file, [FileOffsetToVaddr] gives the difference
// between addresses in a process and in the file.
func Segments(r io.ReaderAt) ([]Segment, error) {
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	return f.loads, nil
}

// FileOffsetToVaddr translates an offset in the file to the address the linker
// gave it. The loader maps whole pages, so bytes up to a page around a segment
// count as its own where no other segment holds them.
func FileOffsetToVaddr(segments []Segment, off uint64) (uint64, bool) {
	for _, s := range segments {
		if off >= s.Offset && off-s.Offset < s.FileSize {
			return s.Vaddr + (off - s.Offset), true
		}
	}
	const page = 1 << 16 // the largest page of arm64
	for _, s := range segments {
		start := s.Offset - s.Offset%page
		if s.Vaddr >= s.Offset-start && off >= start && off < s.Offset {
			return s.Vaddr - (s.Offset - off), true
		}
	}
	return 0, false
}

// buildID is the file's GNU build id in hex, empty if it has none.
func (f *elfFile) buildID() string {
	const maxNotes, maxNote = 64, 1 << 16
	notes := 0
	for _, s := range f.Sections {
		if s.Type != elf.SHT_NOTE || s.Size > maxNote || notes == maxNotes {
			continue
		}
		notes++
		if b, err := f.data(s); err == nil {
			if id := gnuBuildID(b); id != "" {
				return id
			}
		}
	}
	return ""
}

// gnuBuildID finds NT_GNU_BUILD_ID (3) in the notes of one section.
func gnuBuildID(b []byte) string {
	le := binary.LittleEndian
	for len(b) >= 12 {
		name, desc, kind := uint64(le.Uint32(b)), uint64(le.Uint32(b[4:])), le.Uint32(b[8:])
		descAt := 12 + (name+3)&^3
		end := descAt + desc
		if end > uint64(len(b)) {
			return ""
		}
		if kind == 3 && name == 4 && string(b[12:16]) == "GNU\x00" {
			return hex.EncodeToString(b[descAt:end])
		}
		b = b[min(uint64(len(b)), (end+3)&^3):]
	}
	return ""
}
