// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// imageCache holds the symbols of mapped files, read when an address in them is
// first seen. Files are told apart by device and inode, or by path where a
// side-band record gave no more.
type imageCache struct {
	images map[imageKey]*image
}

type imageKey struct {
	dev, inode uint64
	path       string
}

// image is one mapped ELF file; symbols is nil if it could not be read.
type image struct {
	buildID string
	symbols *unwind.Symbols
}

func newImageCache() *imageCache { return &imageCache{images: map[imageKey]*image{}} }

// of returns the image of a mapping of a process.
func (c *imageCache) of(pid int32, m *proc.Mapping) *image {
	key := imageKey{dev: m.Dev, inode: m.Inode}
	if m.Inode == 0 {
		key.path = m.Path
	}
	im := c.images[key]
	if im == nil {
		im = openImage(pid, m)
		c.images[key] = im
	}
	return im
}

func openImage(pid int32, m *proc.Mapping) *image {
	im := &image{}
	f, err := proc.OpenMapped(int(pid), *m)
	if err != nil && m.Path != "" && m.Path[0] == '/' {
		f, err = os.Open(m.Path) // the process is gone
	}
	if err != nil {
		return im
	}
	defer f.Close()
	if id, err := proc.BuildID(f); err == nil {
		im.buildID = id
	}
	if s, err := unwind.OpenSymbols(f); err == nil {
		im.symbols = s
	}
	return im
}

// vaddr converts an offset in the file to the file's own virtual address; the
// offset itself where the file cannot be read.
func (im *image) vaddr(offset uint64) uint64 {
	if im.symbols != nil {
		if v, ok := im.symbols.FileOffsetToVaddr(offset); ok {
			return v
		}
	}
	return offset
}

// function returns the name of the function at vaddr, empty if unknown.
func (im *image) function(vaddr uint64) string {
	if im.symbols == nil {
		return ""
	}
	s, ok := im.symbols.Lookup(vaddr)
	if !ok {
		return ""
	}
	return s.Name
}
