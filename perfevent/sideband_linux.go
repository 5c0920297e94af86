// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/elastic/go-perf"
	"golang.org/x/sys/unix"
)

// sideBandRingBytes is the default size of a CPU's ring. An exec of Python
// writes some 2 KiB; 256 KiB hold a burst of a hundred.
const sideBandRingBytes = 256 << 10

// SideBandConfig says how to open a [SideBand]. The zero value works.
type SideBandConfig struct {
	// RingBytes is the size of each CPU's ring, a power of two and at least a
	// page; 0: 256 KiB.
	RingBytes int
	// CPUs to listen on; nil: all that are online.
	CPUs []int
}

// SideBand is a stream of what perf tells beside samples: mappings of
// executable memory, names, forks and exits, of all tasks.
//
// Records come in the order of their times, as far as one event can have
// brought about the other; unrelated ones of different CPUs may be swapped when
// they lie within microseconds.
//
// One goroutine reads; Close and Stats may be called from others. The kernel
// never waits for the reader: what finds no room is counted.
type SideBand struct {
	rings  []*sideRing
	poll   []unix.PollFd // of the rings, and wakeFD last
	wakeFD int

	closing   atomic.Bool
	lost      atomic.Uint64
	malformed atomic.Uint64

	reader sync.Mutex // held while reading; guards the rings and closed
	closed bool
}

// sideRing is the ring of one CPU, and its next record.
type sideRing struct {
	cpu   int
	event *perf.Event
	head  Record
	full  bool // head is a record
}

// SideBandStats counts what a [SideBand] did not deliver.
type SideBandStats struct {
	// Lost records, for which a ring had no room.
	Lost uint64
	// Malformed records, which were skipped.
	Malformed uint64
}

// OpenSideBand opens the stream. Records begin with the first event after it.
func OpenSideBand(cfg SideBandConfig) (*SideBand, error) {
	cpus := slices.Clone(cfg.CPUs)
	if cpus == nil {
		var err error
		if cpus, err = OnlineCPUs(); err != nil {
			return nil, err
		}
	}
	size := cfg.RingBytes
	if size == 0 {
		size = sideBandRingBytes
	}
	if size < 0 || size&(size-1) != 0 {
		return nil, fmt.Errorf("side-band ring of %d bytes: must be a power of two", size)
	}
	wakeFD, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	s := &SideBand{wakeFD: wakeFD}
	for _, cpu := range cpus {
		err := s.open(cpu, ringPages(size))
		if errors.Is(err, unix.ENODEV) && len(cpus) > 1 {
			continue // went offline since the list was read: nothing runs there
		}
		if err != nil {
			s.Close()
			return nil, err
		}
	}
	s.poll = append(s.poll, unix.PollFd{Fd: int32(wakeFD), Events: unix.POLLIN})
	for _, r := range s.rings {
		if err := r.event.Enable(); err != nil {
			s.Close()
			return nil, fmt.Errorf("enable the side band of CPU %d: %w", r.cpu, err)
		}
	}
	return s, nil
}

// sideBandAttr: a dummy event counts nothing, but its side band works. A
// watermark of one byte wakes the reader with every record; wakeup_events
// would not, it counts samples only.
func sideBandAttr() *perf.Attr {
	return &perf.Attr{
		Type:         perf.SoftwareEvent,
		Config:       uint64(perf.Dummy),
		SampleFormat: perf.SampleFormat{Tid: true, Time: true, CPU: true},
		ClockID:      unix.CLOCK_MONOTONIC,
		Wakeup:       1,
		Options: perf.Options{
			Disabled:    true,
			Mmap:        true,
			Mmap2:       true,
			Comm:        true,
			CommExec:    true,
			Task:        true,
			Watermark:   true,
			SampleIDAll: true,
			UseClockID:  true,
		},
	}
}

func (s *SideBand) open(cpu, pages int) error {
	ev, err := openOn(cpu, sideBandAttr())
	if err != nil {
		return explainOpen(EventSpec{name: "dummy (side band)", typ: typeSoftware}, err)
	}
	s.rings = append(s.rings, &sideRing{cpu: cpu, event: ev}) // Close closes it
	if err := ev.MapRingNumPages(pages); err != nil {
		return fmt.Errorf("side-band ring of CPU %d: %w", cpu, explainMmap(err))
	}
	fd, err := ev.FD()
	if err != nil {
		return fmt.Errorf("side band of CPU %d: %w", cpu, err)
	}
	s.poll = append(s.poll, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	return nil
}

// Read returns the next record. It waits for one until ctx is done.
// See [SideBand.ReadInto].
func (s *SideBand) Read(ctx context.Context) (Record, error) {
	var rec Record
	err := s.ReadInto(ctx, &rec)
	return rec, err
}

// ReadInto reads the next record into rec, and waits for one until ctx is done
// (its error) or the side band is closed ([os.ErrClosed]). Only an error leaves
// rec undefined. Nothing is lost by an end of ctx.
func (s *SideBand) ReadInto(ctx context.Context, rec *Record) error {
	s.reader.Lock()
	defer s.reader.Unlock()
	if !s.closing.Load() && s.tryRead(rec) {
		return nil
	}
	if ctx.Done() != nil {
		defer s.wakeWhenDone(ctx)()
	}
	for {
		if s.closing.Load() {
			return os.ErrClosed
		}
		if s.tryRead(rec) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.wait(); err != nil {
			return err
		}
	}
}

// TryRead reads the next record if there is one, without waiting.
func (s *SideBand) TryRead(rec *Record) bool {
	s.reader.Lock()
	defer s.reader.Unlock()
	return !s.closing.Load() && s.tryRead(rec)
}

// wakeWhenDone makes the end of ctx end a wait. The returned function takes it
// back; a wake-up that was not needed is harmless.
func (s *SideBand) wakeWhenDone(ctx context.Context) (undo func()) {
	woken := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { defer close(woken); s.wake() })
	return func() {
		if !stop() {
			<-woken // else it might write to a closed descriptor
		}
	}
}

// wake ends a wait of the reader, or the next one.
func (s *SideBand) wake() {
	one := [8]byte{1, 1, 1, 1, 1, 1, 1, 1} // not zero in any byte order
	// The only error is a full counter, which wakes as well.
	_, _ = unix.Write(s.wakeFD, one[:])
}

// wait blocks until a ring has something new or wake was called.
func (s *SideBand) wait() error {
	for i := range s.poll {
		s.poll[i].Revents = 0
	}
	_, err := unix.Poll(s.poll, -1)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return os.NewSyscallError("poll", err)
	}
	for i := range s.poll[:len(s.rings)] {
		if s.poll[i].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0 {
			// The CPU is gone: do not ask again, or every wait would
			// end at once. Its ring is still read.
			s.poll[i].Fd = -1
		}
	}
	if s.poll[len(s.rings)].Revents != 0 && !s.closing.Load() {
		var drain [8]byte
		_, _ = unix.Read(s.wakeFD, drain[:]) // nonblocking; empty is fine
	}
	return nil
}

// tryRead yields the earliest of the rings' first records. It first looks at all
// rings until none has a new one: what caused an event was written before it,
// but possibly to a ring already found empty in the same pass.
func (s *SideBand) tryRead(rec *Record) bool {
	for fresh := true; fresh; {
		fresh = false
		for _, r := range s.rings {
			fresh = s.fill(r) || fresh
		}
	}
	var first *sideRing
	for _, r := range s.rings {
		if r.full && (first == nil || r.head.Time < first.head.Time) {
			first = r
		}
	}
	if first == nil {
		return false
	}
	*rec = first.head
	first.full = false
	return true
}

// fill reads a ring's next record, unless one is waiting. It tells whether there
// was one.
func (s *SideBand) fill(r *sideRing) bool {
	if r.full {
		return false
	}
	var raw perf.RawRecord
	for readRaw(r.event, &raw) {
		r.head.CPU = r.cpu
		if decodeRecord(uint32(raw.Header.Type), raw.Header.Misc, raw.Data, &r.head) != nil {
			s.malformed.Add(1)
			continue
		}
		if r.head.Kind == KindLost {
			s.lost.Add(r.head.Lost)
		}
		r.full = true
		return true
	}
	return false
}

// Stats returns the losses so far, also after Close.
func (s *SideBand) Stats() SideBandStats {
	return SideBandStats{Lost: s.lost.Load(), Malformed: s.malformed.Load()}
}

// Close ends a waiting read and releases everything. It may be called twice.
func (s *SideBand) Close() error {
	if !s.closing.Swap(true) {
		s.wake()
	}
	s.reader.Lock()
	defer s.reader.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	var errs []error
	for _, r := range s.rings {
		if err := r.event.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the side band of CPU %d: %w", r.cpu, err))
		}
	}
	s.rings, s.poll = nil, nil
	return errors.Join(append(errs, unix.Close(s.wakeFD))...)
}
