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
	"math"
	"slices"
	"unsafe"
)

// ErrNoSymbols says that a file names none of its functions. A separate debug
// file ([DebugFile], [OpenSymbolsWithDebug]) may help.
var ErrNoSymbols = errors.New("no function symbols")

// Symbol is a named piece of code.
type Symbol struct {
	// Name is for people: demangled, without parameter types and without the
	// suffixes the compiler gives to parts and copies of one function (.cold,
	// .part.0, .isra.0, .constprop.0, …), so that they count as one.
	Name string
	// Linkage is the name as the file has it, with suffixes, without a version.
	Linkage string
	// Start is the address of the first byte, in the address space of Lookup.
	Start uint64
	// Size in bytes: up to the next symbol where the file does not say it.
	Size uint64
}

// Symbols are the functions of an ELF file. It is safe for concurrent use.
type Symbols struct {
	base  uint64
	syms  []symbol // by start
	names []byte   // zero-terminated, back to back
	loads []Segment
	// Skipped counts table entries that could not be used: names outside the
	// string table, or code farther than 4 GiB from the file's first address; and
	// MiniDebugInfo that could not be read.
	Skipped int
	// BuildID of the file in hex, empty if it has none.
	BuildID string
}

// symbol takes 16 bytes: there are hundreds of thousands in large libraries.
type symbol struct {
	start, size uint32 // start relative to Symbols.base
	name        uint32 // offset in Symbols.names
	// outer is the nearest earlier symbol that ends after this one, where to
	// look on behind the end of this one; -1: none.
	outer int32
}

// OpenSymbols reads the function symbols of an ELF file: .symtab, .dynsym and
// the .symtab of MiniDebugInfo (.gnu_debugdata) merged, and the entries of the
// procedure linkage table as name@plt. r may also be the image of a library in
// memory, such as the [vdso] of a process.
func OpenSymbols(r io.ReaderAt) (*Symbols, error) {
	return OpenSymbolsWithDebug(r, nil)
}

// OpenSymbolsWithDebug is [OpenSymbols] with a separate debug file (see
// [DebugFile]) whose .symtab is used, too. It refuses one with another build
// id. A nil debug is allowed.
func OpenSymbolsWithDebug(r, debug io.ReaderAt) (s *Symbols, err error) {
	defer guard("read symbols", &err)
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	base, err := f.base()
	if err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	c := collector{f: f, base: base, names: []byte{0}}
	if debug != nil {
		if err := c.addDebug(debug); err != nil {
			return nil, err
		}
	}
	for rank, name := range []string{".symtab", ".dynsym"} {
		if err := c.addTable(f, name, uint8(rank)); err != nil {
			return nil, err
		}
	}
	// What cannot be unpacked is as good as not there.
	if mini, err := f.miniDebug(); err == nil && mini != nil {
		if err := c.addTable(mini, ".symtab", 0); err != nil {
			c.skipped++
		}
	} else if err != nil {
		c.skipped++
	}
	c.addPLT()
	if len(c.found) == 0 {
		return nil, fmt.Errorf("read symbols: %w", ErrNoSymbols)
	}
	return &Symbols{
		base: base, syms: c.finish(), names: c.names, loads: f.loads,
		Skipped: c.skipped, BuildID: f.buildID(),
	}, nil
}

// Len is the number of symbols.
func (s *Symbols) Len() int { return len(s.syms) }

// FileOffsetToVaddr translates an offset in the file to an address for Lookup.
func (s *Symbols) FileOffsetToVaddr(off uint64) (uint64, bool) {
	return FileOffsetToVaddr(s.loads, off)
}

// Lookup returns the innermost symbol around addr, an address as the linker
// gave it (the file's own, not a process').
func (s *Symbols) Lookup(addr uint64) (Symbol, bool) {
	if addr < s.base || addr-s.base > math.MaxUint32 {
		return Symbol{}, false
	}
	rel := uint32(addr - s.base)
	i, exact := slices.BinarySearchFunc(s.syms, rel, func(x symbol, t uint32) int { return cmp.Compare(x.start, t) })
	if !exact {
		i--
	}
	for i >= 0 && rel-s.syms[i].start >= s.syms[i].size {
		i = int(s.syms[i].outer)
	}
	if i < 0 {
		return Symbol{}, false
	}
	return s.symbol(i), true
}

// Find returns the symbol of a linkage name, such as "_PyEval_EvalFrameDefault".
// It looks through all of them.
func (s *Symbols) Find(linkage string) (Symbol, bool) {
	for i := range s.syms {
		if string(nameAt(s.names, s.syms[i].name)) == linkage {
			return s.symbol(i), true
		}
	}
	return Symbol{}, false
}

// All calls yield for every symbol in order of addresses until it returns false.
func (s *Symbols) All(yield func(Symbol) bool) {
	for i := range s.syms {
		if !yield(s.symbol(i)) {
			return
		}
	}
}

func (s *Symbols) symbol(i int) Symbol {
	x := s.syms[i]
	linkage := string(nameAt(s.names, x.name))
	return Symbol{Name: Demangle(linkage), Linkage: linkage, Start: s.base + uint64(x.start), Size: uint64(x.size)}
}

// nameAt returns the zero-terminated name at an offset of a string table,
// without its version (memcpy@@GLIBC_2.14).
func nameAt(names []byte, off uint32) []byte {
	if uint64(off) >= uint64(len(names)) {
		return nil
	}
	name := names[off:]
	if n := bytes.IndexByte(name, 0); n >= 0 {
		name = name[:n]
	}
	if at := bytes.IndexByte(name, '@'); at > 0 && !bytes.HasSuffix(name, []byte("@plt")) {
		name = name[:at]
	}
	return name
}

// candidate is a symbol before one is chosen per address.
type candidate struct {
	symbol
	rank uint32 // less is better
}

// collector gathers candidates from the tables of a file and of its debug file.
type collector struct {
	f       *elfFile
	base    uint64
	names   []byte
	found   []candidate
	skipped int
}

func (c *collector) addDebug(r io.ReaderAt) error {
	d, err := openELF(r)
	if err != nil {
		return fmt.Errorf("read debug file: %w", err)
	}
	if id, want := d.buildID(), c.f.buildID(); id != want {
		return fmt.Errorf("read debug file: build id %s, want %s", id, want)
	}
	return c.addTable(d, ".symtab", 0)
}

// addTable reads a symbol table as bytes: debug/elf would make a string of
// every name.
func (c *collector) addTable(f *elfFile, section string, source uint8) error {
	s := f.Section(section)
	if s == nil || s.Type == elf.SHT_NOBITS || uint64(s.Link) >= uint64(len(f.Sections)) {
		return nil
	}
	table, err := f.data(s)
	if err != nil {
		return err
	}
	names, err := f.data(f.Sections[s.Link])
	if err != nil {
		return err
	}
	if uint64(len(c.names))+uint64(len(names)) >= math.MaxUint32 {
		return fmt.Errorf("read section %s: string table too large", section)
	}
	offset := uint32(len(c.names))
	c.names = append(append(c.names, names...), 0)
	for ; len(table) >= elf.Sym64Size; table = table[elf.Sym64Size:] {
		c.addEntry(table, offset, uint32(len(names)), source)
	}
	return nil
}

// addEntry looks at one Elf64_Sym.
func (c *collector) addEntry(b []byte, names, nameLen uint32, source uint8) {
	le := binary.LittleEndian
	name, info, section := le.Uint32(b), b[4], le.Uint16(b[6:])
	value, size := le.Uint64(b[8:]), le.Uint64(b[16:])
	kind := elf.ST_TYPE(info)
	if section == uint16(elf.SHN_UNDEF) || section == uint16(elf.SHN_ABS) || name == 0 ||
		kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC && kind != elf.STT_NOTYPE {
		return
	}
	if name >= nameLen || value < c.base || value-c.base > math.MaxUint32 || size > math.MaxUint32 {
		c.skipped++
		return
	}
	label := nameAt(c.names, names+name)
	// $x and .L are marks of assemblers, not functions.
	if len(label) == 0 || kind == elf.STT_NOTYPE && (label[0] == '$' || label[0] == '.') {
		return
	}
	if _, ok := c.f.execRange(value); !ok {
		return
	}
	c.found = append(c.found, candidate{
		symbol: symbol{start: uint32(value - c.base), size: uint32(size), name: names + name},
		rank:   rankSymbol(kind, size, source, elf.ST_BIND(info), label),
	})
}

// rankUntyped marks labels in assembly: they name code only where nothing else does.
const rankUntyped = 1 << 24

// rankSymbol orders the names of one address: functions before labels, sized
// before unsized, full table before the dynamic one, then fewer leading
// underscores (read before __read), then global before weak before local.
func rankSymbol(kind elf.SymType, size uint64, source uint8, bind elf.SymBind, name []byte) uint32 {
	var rank uint32
	if kind == elf.STT_NOTYPE {
		rank += rankUntyped
	}
	if size == 0 {
		rank += 1 << 20
	}
	rank += uint32(source) << 16
	underscores := len(name) - len(bytes.TrimLeft(name, "_"))
	if bytes.HasPrefix(name, []byte(internalPrefix)) {
		underscores = 15
	}
	rank += uint32(min(underscores, 15)) << 8
	switch bind {
	case elf.STB_GLOBAL:
	case elf.STB_WEAK:
		rank++
	default:
		rank += 2
	}
	return rank
}

// internalPrefix begins glibc's own aliases of its functions.
const internalPrefix = "__GI_"

// finish chooses one symbol per address and gives sizes to those without.
func (c *collector) finish() []symbol {
	slices.SortFunc(c.found, func(a, b candidate) int {
		if a.start != b.start {
			return cmp.Compare(a.start, b.start)
		}
		if a.rank != b.rank {
			return cmp.Compare(a.rank, b.rank)
		}
		return bytes.Compare(nameAt(c.names, a.name), nameAt(c.names, b.name))
	})
	out := make([]symbol, 0, len(c.found))
	covered := uint64(0) // end of the typed symbols so far
	for i, x := range c.found {
		if i > 0 && len(out) > 0 && out[len(out)-1].start == x.start {
			continue
		}
		if x.rank >= rankUntyped && uint64(x.start) < covered {
			continue // a label inside a function
		}
		if x.rank < rankUntyped {
			covered = max(covered, uint64(x.start)+uint64(x.size))
		}
		out = append(out, x.symbol)
	}
	c.sizeUnsized(out)
	linkOuter(out)
	return slices.Clip(out)
}

// sizeUnsized ends symbols of unknown size at the next one or at the end of
// their section.
func (c *collector) sizeUnsized(syms []symbol) {
	for i := range syms {
		s := &syms[i]
		if s.size != 0 {
			continue
		}
		end, ok := c.f.execRange(c.base + uint64(s.start))
		if !ok {
			continue
		}
		size := end - c.base - uint64(s.start)
		if i+1 < len(syms) {
			size = min(size, uint64(syms[i+1].start-s.start))
		}
		s.size = uint32(min(size, math.MaxUint32))
	}
}

// linkOuter sets symbol.outer for all. The stack holds, from its top, the
// earlier symbols in falling order of starts and rising order of ends.
func linkOuter(syms []symbol) {
	end := func(i int32) uint64 { return uint64(syms[i].start) + uint64(syms[i].size) }
	var stack []int32
	for i := range syms {
		for len(stack) > 0 && end(stack[len(stack)-1]) <= end(int32(i)) {
			stack = stack[:len(stack)-1]
		}
		syms[i].outer = -1
		if len(stack) > 0 {
			syms[i].outer = stack[len(stack)-1]
		}
		stack = append(stack, int32(i))
	}
}

// bytesUsed is what the symbols occupy, for tests and for the caches of callers.
func (s *Symbols) bytesUsed() int {
	return len(s.syms)*int(unsafe.Sizeof(symbol{})) + len(s.names)
}
