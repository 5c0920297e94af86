// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// ErrNotPython says that a file or a process holds no CPython.
var ErrNotPython = errors.New("no CPython")

// ErrNotYet says that a process has not mapped the CPython library that its
// program or a library of it needs, as just after an exec: ask again after its
// next mapping. It is an ErrNotPython, too.
var ErrNotYet = fmt.Errorf("%w so far", ErrNotPython)

// UnsupportedError says why a CPython cannot be read.
type UnsupportedError struct {
	Version string // e.g. 3.7.16; empty if unknown
	Why     string
}

// Error says it in one line.
func (e *UnsupportedError) Error() string {
	return strings.TrimSpace("CPython "+e.Version) + " is not supported: " + e.Why
}

// Runtime is a CPython found in an ELF file: it holds for every process that
// maps the file.
type Runtime struct {
	Version string // e.g. 3.11.7
	Offsets Offsets
	// RuntimeVaddr is the address of _PyRuntime in the file.
	RuntimeVaddr uint64
	// EvalRanges are the evaluation function's parts in the file, [from, to);
	// empty if the file has no symbol for it. See [Cache].Parts.
	EvalRanges [][2]uint64
	// Build is d for a debug build, t for a free-threaded one, both, or empty.
	Build string
	// Source of the offsets, in words.
	Source string

	members  memberTables
	stripped bool // no .symtab
	// unproven: the offsets are the file's own word for a version without a
	// table; a process has to show that they are right.
	unproven bool
}

// Interp is the interpreter of a process.
type Interp struct {
	Runtime *Runtime
	// Path of the file with _PyRuntime, as the process sees it.
	Path, BuildID string
	// Bias is the address in the process minus that in the file.
	Bias uint64
	// RuntimeAddr and EvalRanges are addresses in the process.
	RuntimeAddr uint64
	EvalRanges  [][2]uint64
}

// The versions that can be read: 3.minMinor to 3.maxMinor.
const minMinor, maxMinor = 6, 15

// maxSymbols bounds the bytes of a symbol or string table: libpython's have some
// hundred thousand.
const maxSymbols = 256 << 20

// Detect looks for a CPython runtime in an ELF file. path is where the file was
// found; its name can tell the version. The error is ErrNotPython, an
// *UnsupportedError, or one of reading.
func Detect(r io.ReaderAt, path string) (rt *Runtime, err error) {
	// debug/elf has panicked on damaged files; a mapped file is hostile input.
	defer func() {
		if p := recover(); p != nil {
			rt, err = nil, fmt.Errorf("ELF file %s: %v", path, p)
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, ErrNotPython
	}
	d := &detector{file: f, path: path}
	if err := d.symbols(); err != nil {
		return nil, err
	}
	runtime, ok := d.known["_PyRuntime"]
	if !ok && !d.old() {
		return nil, ErrNotPython
	}
	version, err := d.version()
	if err != nil {
		return nil, err
	}
	rt = &Runtime{Version: version, RuntimeVaddr: runtime, EvalRanges: d.eval, stripped: d.file.Section(".symtab") == nil}
	return rt, d.offsets(rt)
}

// detector gathers what one file tells.
type detector struct {
	file  *elf.File
	path  string
	known map[string]uint64 // addresses of symbols of interest
	eval  [][2]uint64

	strings []byte // see rodata
}

// wanted symbols: the runtime, the version, the types whose member tables are
// read, and marks of builds with another layout.
var wanted = map[string]bool{
	"_PyRuntime": true, "Py_Version": true, "Py_GetVersion": true, "Py_Main": true, "PyEval_EvalFrameEx": true,
	"PyCode_Type": true, "PyFrame_Type": true, "_PyThreadState_Current": true,
	"_Py_NegativeRefcount": true, "PyInterpreterState_Head": true, "interp_head": true,
}

// symbols reads .dynsym, which is small and always there, then .symtab for the
// evaluation function's parts.
func (d *detector) symbols() error {
	d.known = map[string]uint64{}
	for _, name := range []string{".dynsym", ".symtab"} {
		s := d.file.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		if s.Size > maxSymbols {
			return fmt.Errorf("ELF file %s: %s of %d bytes", d.path, name, s.Size)
		}
		if name == ".symtab" && d.known["_PyRuntime"] == 0 && !d.mayBePython() {
			continue // a large static program that is none
		}
		read := d.file.DynamicSymbols
		if name == ".symtab" {
			read = d.file.Symbols
		}
		list, err := read()
		if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
			return fmt.Errorf("ELF file %s: %w", d.path, err)
		}
		for _, sym := range list {
			d.symbol(sym)
		}
	}
	if s := d.file.Section(".PyRuntime"); s != nil && d.known["_PyRuntime"] == 0 {
		d.known["_PyRuntime"] = s.Addr // 3.10 and newer, also when stripped
	}
	return nil
}

func (d *detector) mayBePython() bool {
	return strings.Contains(d.path, "python") || d.file.Section(".PyRuntime") != nil
}

func (d *detector) symbol(s elf.Symbol) {
	if s.Section == elf.SHN_UNDEF || s.Value == 0 {
		return
	}
	if wanted[s.Name] {
		d.known[s.Name] = s.Value
	}
	name, _, _ := strings.Cut(s.Name, ".") // .cold and .part pieces belong to it
	// With tail calls each instruction has a function of its own, which the
	// evaluation function's frame calls or makes way for (3.14).
	if name != "_PyEval_EvalFrameDefault" && !strings.HasPrefix(name, "_TAIL_CALL_") || elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Size == 0 {
		return
	}
	r := [2]uint64{s.Value, s.Value + s.Size}
	for _, have := range d.eval {
		if have == r {
			return
		}
	}
	d.eval = append(d.eval, r)
}

// old tells whether a file without _PyRuntime is a CPython up to 3.6.
func (d *detector) old() bool {
	_, current := d.known["_PyThreadState_Current"]
	_, eval := d.known["PyEval_EvalFrameEx"]
	return current || eval
}

func unsupported(version string) error {
	return &UnsupportedError{version, fmt.Sprintf("3.%d to 3.%d are", minMinor, maxMinor)}
}

// read reads bytes at an address of the file.
func (d *detector) read(addr uint64, n int) ([]byte, error) {
	for _, p := range d.file.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= addr && addr-p.Vaddr <= p.Filesz && uint64(n) <= p.Filesz-(addr-p.Vaddr) {
			b := make([]byte, n)
			_, err := p.ReadAt(b, int64(addr-p.Vaddr))
			return b, err
		}
	}
	return nil, fmt.Errorf("address %#x: not in the file", addr)
}

// offsets chooses the table of the version and compares it with what the file
// itself says.
func (d *detector) offsets(rt *Runtime) error {
	var major, minor int
	if _, err := fmt.Sscanf(rt.Version, "%d.%d", &major, &minor); err != nil || major != 3 || minor < minMinor {
		return unsupported(rt.Version)
	}
	if d.file.Class != elf.ELFCLASS64 {
		return &UnsupportedError{rt.Version, "32-bit programs are not"}
	}
	build, err := d.build(rt.Version, minor)
	if err != nil {
		return err
	}
	if minor > maxMinor {
		return d.future(rt, build)
	}
	rt.Build = build
	rt.Offsets = tables["3."+strconv.Itoa(minor)+build]
	rt.Source = "headers of 3." + strconv.Itoa(minor) + build
	if minor >= 13 {
		return d.checkDebugOffsets(rt, minor)
	}
	if minor == 6 {
		if err := d.place36(rt); err != nil {
			return err
		}
	}
	// Older versions are compared with their member tables in a process.
	rt.members = memberTables{code: d.known["PyCode_Type"], frame: d.known["PyFrame_Type"]}
	return nil
}
