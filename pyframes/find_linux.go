// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"pathprof/unwind/proc"
)

// Cache remembers what files hold, also that they hold nothing. It is safe for
// concurrent use.
type Cache struct {
	// Parts, if set before the first use, finds the other parts of the function
	// at [from, to) of a file: a stripped one names only one part of the
	// evaluation function, which its libraries use.
	Parts func(file io.ReaderAt, from, to uint64) ([][2]uint64, error)

	mu    sync.Mutex
	files map[fileKey]*cached
}

type fileKey struct{ dev, inode uint64 }

// cached is what one file holds.
type cached struct {
	parts   func(file io.ReaderAt, from, to uint64) ([][2]uint64, error) // Cache.Parts
	mu      sync.Mutex
	known   bool // the file was read
	runtime *Runtime
	err     error // of the file, not of reaching it
	buildID string
	loads   []elf.ProgHeader
	checked bool // against the member tables of a process
}

// NewCache returns an empty cache.
func NewCache() *Cache { return &Cache{files: map[fileKey]*cached{}} }

func (c *Cache) file(m *proc.Mapping) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fileKey{m.Dev, m.Inode}
	f := c.files[key]
	if f == nil {
		f = &cached{parts: c.Parts}
		c.files[key] = f
	}
	return f
}

// Find looks for a CPython in a process. It is quick for the many processes that
// have none. The error is ErrNotPython, ErrNotYet, an *UnsupportedError,
// os.ErrNotExist if the process is gone, or one of reading.
func Find(pid int, cache *Cache) (*Interp, error) {
	maps, err := proc.Maps(pid)
	if err != nil {
		return nil, err
	}
	found := error(ErrNotPython)
	for _, m := range candidates(maps) {
		in, err := cache.file(&m).find(pid, m)
		switch {
		case err == nil:
			return in, nil
		case err != ErrNotPython && errors.Is(found, ErrNotPython):
			found = err // says more
		}
	}
	return nil, found
}

// candidates are the first mappings of files that may hold a runtime, the most
// likely first: libraries named for Python, programs so named, the program
// itself, then libraries: an embedded interpreter may have any name, but its
// code is writable data's neighbour, so a file without executable pages is none.
func candidates(maps []proc.Mapping) []proc.Mapping {
	var list []proc.Mapping
	rank := map[fileKey]int{}
	for _, m := range maps {
		key := fileKey{m.Dev, m.Inode}
		if m.Inode == 0 || !m.Exec || !strings.HasPrefix(m.Path, "/") {
			continue
		}
		if _, seen := rank[key]; seen {
			continue
		}
		rank[key] = likely(m.Path, len(list))
		list = append(list, m)
	}
	slices.SortStableFunc(list, func(a, b proc.Mapping) int {
		return cmp.Compare(rank[fileKey{a.Dev, a.Inode}], rank[fileKey{b.Dev, b.Inode}])
	})
	return list
}

func likely(path string, at int) int {
	name := filepath.Base(path)
	switch {
	case strings.HasPrefix(name, "libpython"):
		return 0
	case strings.Contains(name, "python"):
		return 1
	case at == 0:
		return 2
	}
	return 3
}

// find reads the file, unless it is known, and places what it holds in the
// process.
func (f *cached) find(pid int, m proc.Mapping) (*Interp, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.known {
		file, err := proc.OpenMapped(pid, m)
		if err != nil {
			return nil, err // the next process may let us: not remembered
		}
		defer file.Close()
		f.err = f.load(file, m.Path)
		f.known = true
	}
	if f.err != nil {
		return nil, f.err
	}
	return f.interp(pid, &m)
}

// load reads the file for the first time.
func (f *cached) load(file io.ReaderAt, path string) (err error) {
	if f.runtime, err = Detect(file, path); err != nil {
		if errors.Is(err, ErrNotPython) && needsPython(file) {
			return ErrNotYet
		}
		return err
	}
	if f.parts != nil && f.runtime.stripped && len(f.runtime.EvalRanges) == 1 {
		// Without them stacks are told apart less well, no more: see join.Merge.
		if more, err := f.parts(file, f.runtime.EvalRanges[0][0], f.runtime.EvalRanges[0][1]); err == nil {
			f.runtime.EvalRanges = append(f.runtime.EvalRanges, more...)
		}
	}
	if f.buildID, err = proc.BuildID(file); err != nil && !errors.Is(err, proc.ErrNoBuildID) {
		return err
	}
	f.loads, err = loads(file)
	return err
}

// needsPython tells whether a program asks the dynamic linker for libpython.
func needsPython(r io.ReaderAt) (needs bool) {
	defer func() {
		if recover() != nil { // see Detect
			needs = false
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil {
		return false
	}
	libs, err := f.ImportedLibraries()
	return err == nil && slices.ContainsFunc(libs, func(name string) bool {
		return strings.HasPrefix(name, "libpython") && name != "libpython3.so" // the stable ABI's name has no runtime
	})
}

func loads(r io.ReaderAt) ([]elf.ProgHeader, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("ELF file: %w", err)
	}
	var list []elf.ProgHeader
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			list = append(list, p.ProgHeader)
		}
	}
	return list, nil
}

// interp places the runtime of the file in a process.
func (f *cached) interp(pid int, m *proc.Mapping) (*Interp, error) {
	bias, ok := bias(f.loads, m)
	if !ok {
		return nil, fmt.Errorf("%s: its mapping fits none of its segments", m.Path)
	}
	if !f.checked {
		if err := f.compare(pid, bias); err != nil {
			return nil, err
		}
	}
	in := &Interp{
		Runtime: f.runtime, Path: m.Path, BuildID: f.buildID, Bias: bias,
		RuntimeAddr: f.runtime.RuntimeVaddr + bias,
	}
	for _, r := range f.runtime.EvalRanges {
		in.EvalRanges = append(in.EvalRanges, [2]uint64{r[0] + bias, r[1] + bias})
	}
	return in, nil
}

// compare checks the offsets against a process' own member tables, once a file.
// Before the dynamic linker has relocated them, and in a process that is gone,
// they cannot be read: then the next process of the file is asked.
func (f *cached) compare(pid int, bias uint64) error {
	if f.runtime.members == (memberTables{}) && !f.runtime.unproven {
		f.checked = true
		return nil
	}
	mem, err := proc.OpenMemory(pid)
	if err != nil {
		return err
	}
	defer mem.Close()
	if f.runtime.unproven {
		return f.prove(mem, bias)
	}
	n, err := f.runtime.members.check(mem, bias, &f.runtime.Offsets)
	switch {
	case errors.Is(err, errLayout):
		f.err = &UnsupportedError{f.runtime.Version, err.Error()}
		return f.err
	case err != nil || n == 0:
		return nil
	}
	f.checked = true
	seen := *f.runtime // others read the old one meanwhile
	seen.Source += fmt.Sprintf(", %d of them equal to the process' member tables", n)
	f.runtime = &seen
	return nil
}

// prove lets a process show that the offsets of an unknown version are right.
// Until one does, the version is refused.
func (f *cached) prove(mem *proc.Memory, bias uint64) error {
	err := prove(mem, f.runtime.RuntimeVaddr+bias, &f.runtime.Offsets)
	if err != nil {
		return &UnsupportedError{f.runtime.Version,
			fmt.Sprintf("3.%d to 3.%d are, and its own word for its layout did not hold: %v", minMinor, maxMinor, err)}
	}
	f.checked = true
	seen := *f.runtime // others read the old one meanwhile
	seen.Source += ", proven by the process' frames"
	f.runtime = &seen
	return nil
}

// bias is the difference between the addresses of a mapping and of the file.
func bias(loads []elf.ProgHeader, m *proc.Mapping) (uint64, bool) {
	page := uint64(os.Getpagesize())
	for _, p := range loads {
		if p.Flags&elf.PF_X == 0 {
			continue
		}
		if first := p.Off &^ (page - 1); m.Offset >= first && m.Offset < p.Off+p.Filesz {
			return m.Start - m.Offset + p.Off - p.Vaddr, true
		}
	}
	return 0, false
}
