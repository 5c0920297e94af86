// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"pathprof/perfevent/recording"
	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// imageCache holds the mapped files that native frames lie in, opened when an
// address in them is first seen. Files are told apart by device and inode, or by
// path where a side-band record gave no more. Names are found when the recording
// ends, from files that stay open until then: the target may be gone by then, and
// its container.
type imageCache struct {
	images map[imageKey]*image
	order  []*image
	embed  bool // names go into the recording
	kept   int  // open files
}

type imageKey struct {
	dev, inode uint64
	path       string
}

// image is one mapped ELF file, the kernel's code in a process, or the code that
// a process made at run time.
type image struct {
	buildID  string
	segments []unwind.Segment // nil: no ELF file
	code     codeFile
	made     *madeCode // of a process; nil for files
}

// maxKept bounds the files that are held open; those beyond it are looked for
// again when the recording ends.
const maxKept = 512

func newImageCache(embed bool) *imageCache {
	return &imageCache{images: map[imageKey]*image{}, embed: embed}
}

// of returns the image of a mapping of a process.
func (c *imageCache) of(p *process, m *proc.Mapping) *image {
	key := imageKey{dev: m.Dev, inode: m.Inode}
	if m.Inode == 0 {
		key.path = m.Path
	}
	im := c.images[key]
	if im == nil && !isMade(m) {
		im = c.open(p.pid, m)
		c.images[key] = im
		c.order = append(c.order, im)
	}
	if im == nil || im.segments == nil && m.Path != vdsoName {
		return c.madeBy(p)
	}
	return im
}

// isMade tells memory that holds no file's code.
func isMade(m *proc.Mapping) bool {
	return m.Path != vdsoName && !strings.HasPrefix(m.Path, "/") || strings.HasPrefix(m.Path, "//")
}

func (c *imageCache) open(pid int32, m *proc.Mapping) *image {
	if m.Path == vdsoName {
		return openVDSO(pid, m)
	}
	im := &image{code: codeFile{path: m.Path}}
	f, err := proc.OpenMapped(int(pid), *m)
	if err != nil {
		f = openRegular(m.Path) // the process is gone
	}
	if f == nil {
		return im
	}
	im.segments, _ = unwind.Segments(f)
	im.buildID, _ = proc.BuildID(f)
	switch {
	case !c.embed || im.segments == nil:
		f.Close()
	case c.kept >= maxKept:
		f.Close()
		im.code.open = fileID{m.Path, im.buildID}.open
	default:
		debug := openDebug(fmt.Sprintf("/proc/%d/root", pid), m.Path, im.buildID, f)
		if debug == nil { // the host's, for containers without
			debug = openDebug("", m.Path, im.buildID, f)
		}
		im.code.open = func() (*os.File, *os.File) { return f, debug }
		c.kept += 2
	}
	return im
}

// openVDSO copies the kernel's code out of a process: there is no file of it.
func openVDSO(pid int32, m *proc.Mapping) *image {
	im := &image{}
	mem, err := proc.OpenMemory(int(pid))
	if err != nil {
		return im
	}
	defer mem.Close()
	b := make([]byte, min(m.End-m.Start, 1<<20))
	if _, err := mem.ReadAt(b, int64(m.Start)); err != nil {
		return im
	}
	im.code.image = bytes.NewReader(b)
	im.segments, _ = unwind.Segments(im.code.image)
	im.buildID, _ = proc.BuildID(im.code.image)
	return im
}

// vaddr converts an address in a mapping to the file's own virtual address; the
// offset in the file where that cannot be read.
func (im *image) vaddr(m *proc.Mapping, pc uint64) uint64 {
	if im.made != nil {
		return pc
	}
	offset := pc - m.Start + m.Offset
	if v, ok := unwind.FileOffsetToVaddr(im.segments, offset); ok {
		return v
	}
	return offset
}

// named notes that a frame needs a name.
func (c *imageCache) named(im *image, frame uint32, vaddr uint64) {
	if c.embed {
		im.code.places = append(im.code.places, codePlace{frame, vaddr})
	}
}

// embedNames writes the names of all frames, and closes the files.
func (c *imageCache) embedNames(write func([]recording.Symbol) error) error {
	var files []codeFile
	for _, im := range c.order {
		if len(im.code.places) > 0 && (im.code.open != nil || im.code.image != nil || im.code.made != nil) {
			files = append(files, im.code)
		}
	}
	err := symbolize(files, write)
	for _, im := range c.order {
		if im.made != nil && im.made.file != nil {
			im.made.file.Close()
		}
	}
	return err
}

// madeCode is code that a process made at run time. Its names are in a file that
// the process writes while it runs, if it does.
type madeCode struct {
	file   *os.File
	pid    int32
	looked time.Time
	parent *madeCode // names of code from before a fork
}

// lookEvery is how often a map file is looked for that was not there.
const lookEvery = time.Second

// madeBy returns the image of a process' run-time code.
func (c *imageCache) madeBy(p *process) *image {
	if p.made == nil {
		m := &madeCode{pid: p.pid}
		for from := p.parent; from != nil && m.parent == nil; from = from.parent {
			if from.made != nil {
				m.parent = from.made.made
			}
		}
		p.made = &image{made: m, code: codeFile{made: m.maps}}
		c.order = append(c.order, p.made)
	}
	if c.embed {
		p.made.made.look()
	}
	return p.made
}

// look opens the map file in the process' own file system, under the number by
// which the process knows itself.
func (m *madeCode) look() {
	if m.file != nil || time.Since(m.looked) < lookEvery {
		return
	}
	m.looked = time.Now()
	inner, err := proc.InnerTID(int(m.pid))
	if err != nil {
		inner = int(m.pid)
	}
	name := fmt.Sprintf("/tmp/perf-%d.map", inner)
	for _, path := range []string{fmt.Sprintf("/proc/%d/root%s", m.pid, name), name} { // the process may be gone
		// A link would be followed to where it leads here, not there.
		if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() && m.file == nil {
			m.file = openRegular(path)
		}
	}
}

// maps reads the map files when all is written.
func (m *madeCode) maps() (list []*unwind.PerfMap) {
	for ; m != nil; m = m.parent {
		if m.looked = (time.Time{}); m.file == nil {
			m.look()
		}
		if m.file == nil {
			continue
		}
		st, err := m.file.Stat()
		if err != nil || st.Size() > maxPerfMapFile {
			continue
		}
		if parsed, err := unwind.ParsePerfMap(io.NewSectionReader(m.file, 0, st.Size())); err == nil {
			list = append(list, parsed)
		}
	}
	return list
}

// maxPerfMapFile bounds the map files that are read.
const maxPerfMapFile = 1 << 30
