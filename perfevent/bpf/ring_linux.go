// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// ringReader takes records from the rings that the programs fill, see
// c/output.h. It shares their memory.
type ringReader struct {
	heads, data []byte
	rings       []ring
}

// ring is that of one CPU.
type ring struct {
	shared *pathprofRing
	chunks [][]byte // each with its room behind it
	tail   uint64
}

const (
	chunkSize = 1 << 20 // RING_CHUNK in c/output.h
	// maxRecord is the longest record, with its header.
	maxRecord  = int(unsafe.Sizeof(pathprofRingChunk{})) - chunkSize
	headerSize = 8
)

// openRings maps the rings of cpus CPUs, of so many chunks each.
func openRings(heads, data *ebpf.Map, cpus, chunks int) (*ringReader, error) {
	headStride, dataStride := int(unsafe.Sizeof(pathprofRing{})), int(unsafe.Sizeof(pathprofRingChunk{}))
	r := &ringReader{}
	var err error
	if r.heads, err = mapMemory(heads, cpus*headStride); err != nil {
		return nil, err
	}
	if r.data, err = mapMemory(data, cpus*chunks*dataStride); err != nil {
		unix.Munmap(r.heads)
		return nil, err
	}
	for cpu := range cpus {
		one := ring{shared: (*pathprofRing)(unsafe.Pointer(&r.heads[cpu*headStride]))}
		for chunk := range chunks {
			at := (cpu*chunks + chunk) * dataStride
			one.chunks = append(one.chunks, r.data[at:at+dataStride])
		}
		r.rings = append(r.rings, one)
	}
	return r, nil
}

// mapMemory maps an array map; the kernel rounds its size up to a page.
func mapMemory(m *ebpf.Map, size int) ([]byte, error) {
	page := os.Getpagesize()
	size = (size + page - 1) / page * page
	b, err := unix.Mmap(m.FD(), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of %v: %w", size, m, err)
	}
	return b, nil
}

// errNoRoom leaves a record, and those behind it, in the ring.
var errNoRoom = errors.New("no room")

// poll hands to take the records that are in a CPU's ring now, in order, and how
// many were lost before each. A record is valid during the call, and stays in the
// ring if take has no room for it.
func (r *ring) poll(take func(raw []byte, lost uint64) error) error {
	head := atomic.LoadUint64(&r.shared.Head)
	for r.tail < head {
		chunk := r.chunks[r.tail/chunkSize%uint64(len(r.chunks))]
		at := int(r.tail % chunkSize)
		header := atomic.LoadUint64((*uint64)(unsafe.Pointer(&chunk[at])))
		if header == 0 {
			return nil // reserved, not yet written
		}
		size := int(uint32(header))
		if size < headerSize || size > maxRecord || size%8 != 0 {
			return fmt.Errorf("ring record of %d bytes", size)
		}
		err := take(chunk[at+headerSize:at+size], header>>32)
		if err == errNoRoom {
			return nil
		}
		clear(chunk[at : at+size])
		r.tail += uint64(size)
		atomic.StoreUint64(&r.shared.Tail, r.tail)
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *ringReader) close() error {
	if err := unix.Munmap(r.heads); err != nil {
		return err
	}
	return unix.Munmap(r.data)
}
