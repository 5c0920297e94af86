// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"errors"
	"io"
	"io/fs"
	"slices"

	"pathprof/perfevent/bpf"
	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// tableLoader gives the kernel programs the unwind tables of processes: each
// file's once, each process' mappings as they change. It is used by the
// watcher's goroutine alone.
type tableLoader struct {
	capture *bpf.Capture
	cache   *unwind.TableCache // nil: tables are built each time
	files   map[imageKey]loadedTable
	nextID  uint32
	// trampolines of -X perf, by the size of the mapping.
	trampolines map[uint64]bpf.TableRef
	// notes counts what could not be done, by reason.
	notes map[string]int
	// denied are processes that may not be read.
	denied map[int32]bool
}

type loadedTable struct {
	ref      bpf.TableRef
	segments []unwind.Segment
}

func newTableLoader(capture *bpf.Capture) *tableLoader {
	l := &tableLoader{
		capture: capture, files: map[imageKey]loadedTable{}, trampolines: map[uint64]bpf.TableRef{},
		notes: map[string]int{}, denied: map[int32]bool{},
	}
	dir, err := unwind.DefaultCacheDir()
	if err == nil {
		l.cache, err = unwind.OpenTableCache(dir)
	}
	if err != nil {
		l.notes["unwind tables are not kept: "+err.Error()]++
	}
	return l
}

// load makes the mappings of a process known and returns their number, 0 if
// there are none.
func (l *tableLoader) load(pid int32) uint32 {
	maps, err := proc.Maps(int(pid))
	if err != nil {
		return 0 // gone
	}
	var list []bpf.CodeMap
	for i := range maps {
		if m := &maps[i]; m.Exec {
			list = append(list, l.codeMap(pid, m))
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.SortFunc(list, func(a, b bpf.CodeMap) int { return cmp.Compare(a.Start, b.Start) })
	l.nextID++
	left, err := l.capture.SetCodeMaps(l.nextID, list)
	if err != nil {
		l.notes[err.Error()]++
		return 0
	}
	if left > 0 {
		l.notes["a process has more executable mappings than fit: its stacks may be cut"]++
	}
	return l.nextID
}

// codeMap finds the table of a mapping; without a file there is none.
func (l *tableLoader) codeMap(pid int32, m *proc.Mapping) bpf.CodeMap {
	c := bpf.CodeMap{Start: m.Start, End: m.End}
	if isMade(m) {
		c.Table, c.Bias = l.madeTable(pid, m), m.Start
		return c
	}
	t, known := l.files[fileOf(m)]
	if !known {
		t = l.open(pid, m)
		if t.ref == bpf.NotLoaded && gone(pid) {
			return c // its end explains it; another process shall ask anew
		}
		l.files[fileOf(m)] = t
	}
	c.Table = t.ref
	if v, ok := unwind.FileOffsetToVaddr(t.segments, m.Offset); ok {
		c.Bias = m.Start - v
	} else if m.Path == vdsoName {
		c.Bias = m.Start
	}
	return c
}

const vdsoName = "[vdso]"

func fileOf(m *proc.Mapping) imageKey {
	key := imageKey{dev: m.Dev, inode: m.Inode}
	if m.Inode == 0 {
		key.path = m.Path
	}
	return key
}

// open reads or builds the table of a mapped file, and loads it.
func (l *tableLoader) open(pid int32, m *proc.Mapping) loadedTable {
	if m.Path == vdsoName {
		return l.openVDSO(pid, m)
	}
	f, err := proc.OpenMapped(int(pid), *m)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrPermission):
			l.denied[pid] = true
		case !gone(pid):
			l.notes["unwind table: "+err.Error()]++
		}
		return loadedTable{ref: bpf.NotLoaded}
	}
	defer f.Close()
	var t *unwind.Table
	id, err := proc.BuildID(f)
	if err == nil && l.cache != nil {
		t, err = l.cache.Table(id, f)
	} else {
		t, err = unwind.BuildTable(f)
	}
	segments, _ := unwind.Segments(f)
	return loadedTable{ref: l.put(m.Path, t, err), segments: segments}
}

// openVDSO builds the table of the kernel's code in a process, from its memory.
func (l *tableLoader) openVDSO(pid int32, m *proc.Mapping) loadedTable {
	mem, err := proc.OpenMemory(int(pid))
	if err != nil {
		return loadedTable{ref: bpf.NotLoaded}
	}
	defer mem.Close()
	t, err := unwind.BuildTable(io.NewSectionReader(mem, int64(m.Start), int64(m.End-m.Start)))
	if err != nil && gone(pid) {
		return loadedTable{ref: bpf.NotLoaded}
	}
	return loadedTable{ref: l.put(m.Path, t, err)}
}

// gone tells whether a process has ended, and with it its mappings.
func gone(pid int32) bool {
	maps, err := proc.Maps(int(pid))
	return err != nil || len(maps) == 0
}

// madeTable is the table of code made at run time, of which only CPython's own
// trampolines are known.
func (l *tableLoader) madeTable(pid int32, m *proc.Mapping) bpf.TableRef {
	mem, err := proc.OpenMemory(int(pid))
	if err != nil {
		return bpf.TableRef{}
	}
	defer mem.Close()
	var head [64]byte
	if _, err := mem.ReadAt(head[:], int64(m.Start)); err != nil {
		return bpf.TableRef{}
	}
	size := m.End - m.Start
	t, ok := unwind.TrampolineTable(head[:], size)
	if !ok {
		return bpf.TableRef{}
	}
	ref, known := l.trampolines[size]
	if !known {
		ref = l.put("trampolines", t, nil)
		l.trampolines[size] = ref
	}
	return ref
}

func (l *tableLoader) put(path string, t *unwind.Table, err error) bpf.TableRef {
	if errors.Is(err, unwind.ErrNoTable) {
		return bpf.TableRef{}
	}
	var ref bpf.TableRef
	if err == nil {
		ref, err = l.capture.LoadTable(t)
	}
	if err != nil {
		l.notes["unwind table of "+path+": "+err.Error()]++
		return bpf.NotLoaded
	}
	return ref
}
