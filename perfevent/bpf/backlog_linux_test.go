// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"slices"
	"sync/atomic"
	"testing"
	"unsafe"

	"pathprof/join/sched"
)

// fakeRing is a ring that the test writes, as the programs do.
type fakeRing struct {
	ring
	head uint64
}

func newFakeRing() *fakeRing {
	return &fakeRing{ring: ring{shared: new(pathprofRing), chunks: [][]byte{make([]byte, unsafe.Sizeof(pathprofRingChunk{}))}}}
}

// write puts an event with this time into the ring; false: it is full.
func (f *fakeRing) write(time, lost uint64) bool {
	size := headerSize + int(unsafe.Sizeof(pathprofEvent{}))
	size = (size + 7) &^ 7
	if f.head-atomic.LoadUint64(&f.shared.Tail)+uint64(size) > chunkSize {
		return false
	}
	at := int(f.head % chunkSize)
	e := pathprofEvent{Time: time, Kind: pathprofEventKindEVENT_EXIT}
	copy(f.chunks[0][at+headerSize:], unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)))
	binary.NativeEndian.PutUint64(f.chunks[0][at:], uint64(size)|lost<<32)
	f.head += uint64(size)
	atomic.StoreUint64(&f.shared.Head, f.head)
	return true
}

// What goes through the backlog comes out in each CPU's order and with its losses,
// while both sides work at the same time.
func TestBacklogOrder(t *testing.T) {
	const events = 60_000
	fakes := []*fakeRing{newFakeRing(), newFakeRing()}
	c := &Capture{rings: &ringReader{rings: make([]ring, len(fakes))}}
	for i, f := range fakes {
		c.rings.rings[i] = f.ring
	}
	done := make(chan error, 1)
	go func() {
		for n := [2]uint64{}; n[0] < events || n[1] < events; {
			for cpu, f := range fakes {
				for n[cpu] < events && f.write(n[cpu]+1, n[cpu]%7) {
					n[cpu]++
				}
			}
			if err := c.Gather(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var got [2][]int64
	var lost [2]int64
	var rec Record
	deliver := func() {
		if err := c.Deliver(&rec, func(r *Record) error {
			if r.Event.Kind == sched.KindLost {
				lost[r.Event.CPU] += r.Event.Count
			} else {
				got[r.Event.CPU] = append(got[r.Event.CPU], r.Event.Time)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		default:
		}
		deliver()
	}
	// What could not be handed over before is now.
	if err := c.Gather(); err != nil {
		t.Fatal(err)
	}
	deliver()
	var want int64
	for n := range int64(events) {
		want += n % 7
	}
	for cpu := range got {
		if len(got[cpu]) != events || !slices.IsSorted(got[cpu]) || got[cpu][events-1] != events {
			t.Errorf("cpu %d: %d of %d events, or out of order", cpu, len(got[cpu]), events)
		}
		if lost[cpu] != want {
			t.Errorf("cpu %d: %d lost, want %d", cpu, lost[cpu], want)
		}
	}
	if held := c.backlog.bytes.Load(); held != 0 {
		t.Errorf("%d bytes are still held", held)
	}
}

// A backlog that nobody takes from leaves the rest in the ring.
func TestBacklogBound(t *testing.T) {
	f := newFakeRing()
	c := &Capture{rings: &ringReader{rings: []ring{f.ring}}}
	for n := uint64(0); c.backlog.bytes.Load() < maxBacklog; n++ {
		if !f.write(n+1, 0) {
			if err := c.Gather(); err != nil {
				t.Fatal(err)
			}
		}
	}
	for f.write(1, 0) {
	}
	if err := c.Gather(); err != nil {
		t.Fatal(err)
	}
	for f.write(1, 0) { // what fitted into the last block
	}
	if err := c.Gather(); err != nil || f.write(1, 0) {
		t.Errorf("the ring had room after a full backlog (%v)", err)
	}
	if held := c.backlog.bytes.Load(); held > maxBacklog {
		t.Errorf("%d bytes are held, %d may be", held, maxBacklog)
	}
	var rec Record
	if err := c.Deliver(&rec, func(*Record) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if err := c.Gather(); err != nil || !f.write(1, 0) {
		t.Errorf("the ring has no room after the backlog was taken (%v)", err)
	}
}
