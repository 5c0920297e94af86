// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/elastic/go-perf"
	"golang.org/x/sys/unix"
)

// counterRingBytes is the size of a counter's ring, which holds throttle
// records only: two of 32 bytes a scheduler tick at worst, so seconds' worth.
const counterRingBytes = 32 << 10

// maxPhase bounds the time [Counters.Enable] takes.
const maxPhase = 10 * time.Millisecond

// Counters are counters of one event for all tasks, one on each CPU. Their
// methods may be called from several goroutines.
type Counters struct {
	info Info

	mu       sync.Mutex // guards all below
	counters []*counter
	closed   bool
}

// counter is the counter of one CPU.
type counter struct {
	cpu      int
	fd       int
	event    *perf.Event
	throttle throttleState
}

// Open opens the counters of all CPUs, disabled. CPUs that are switched on
// later are not counted on; one that goes offline stops counting.
//
// An error is a [*FeatureError] if the machine, the kernel or the caller's
// privileges lack something, else a mistake in the configuration or a
// surprise.
func Open(cfg Config) (*Counters, error) {
	info, err := cfg.resolve(noCycles)
	if err != nil {
		return nil, err
	}
	if maxHz, err := readSysctl("kernel.perf_event_max_sample_rate"); err == nil && maxHz > 0 {
		if err := info.checkRate(uint64(maxHz)); err != nil {
			return nil, err
		}
	}
	cpus := slices.Clone(cfg.CPUs)
	if cpus == nil {
		if cpus, err = OnlineCPUs(); err != nil {
			return nil, err
		}
	}
	c := &Counters{info: info}
	if err := c.open(cpus); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Counters) open(cpus []int) error {
	for _, cpu := range cpus {
		n, err := c.openCPU(cpu)
		if errors.Is(err, unix.ENODEV) && len(cpus) > 1 {
			c.info.addNote(fmt.Sprintf("CPU %d is offline", cpu))
			continue
		}
		if err != nil {
			return explainOpen(c.info.Event, err)
		}
		c.counters = append(c.counters, n)
		c.info.CPUs = append(c.info.CPUs, cpu)
	}
	if len(c.counters) == 0 {
		return errors.New("no CPU to count on")
	}
	return nil
}

// openCPU opens one counter, with less precision than asked for if need be.
func (c *Counters) openCPU(cpu int) (*counter, error) {
	for {
		ev, err := openOn(cpu, c.info.attr())
		if err == nil {
			return newCounter(cpu, ev)
		}
		if c.info.Precise == 0 || !isRefused(err) {
			return nil, err
		}
		c.info.Precise--
	}
}

func newCounter(cpu int, ev *perf.Event) (*counter, error) {
	fd, err := ev.FD()
	if err == nil {
		err = explainMmap(ev.MapRingNumPages(ringPages(counterRingBytes)))
	}
	if err != nil {
		ev.Close()
		return nil, err
	}
	return &counter{cpu: cpu, fd: fd, event: ev}, nil
}

// ringPages is the number of pages, a power of two, for a ring of some size.
func ringPages(size int) int { return max(1, size/os.Getpagesize()) }

// attr are the attributes of the counters. sample_type stays empty: samples are
// taken by a BPF program and never reach the ring.
func (i *Info) attr() *perf.Attr {
	a := &perf.Attr{
		Type:        perf.EventType(i.Event.typ),
		Config:      i.Event.config,
		CountFormat: perf.CountFormat{Enabled: true, Running: true},
		ClockID:     unix.CLOCK_MONOTONIC,
		Options: perf.Options{
			Disabled:   true,
			UseClockID: true,
			PreciseIP:  precise(i.Precise),
		},
	}
	if i.Precise > 0 {
		// Else the kernel refuses programs that take stacks
		// (perf_event_set_bpf_handler in kernel/events/core.c).
		a.SampleFormat.Callchain = true
	}
	if i.FreqHz != 0 {
		a.SetSampleFreq(i.FreqHz)
	} else {
		a.SetSamplePeriod(i.Period)
	}
	a.SetWakeupWatermark(counterRingBytes) // nobody waits for this ring
	return a
}

// Info says what is really counted.
func (c *Counters) Info() Info {
	info := c.info
	info.CPUs = slices.Clone(info.CPUs)
	return info
}

// FDs returns the perf event of each CPU, to attach a BPF program to. They stay
// the property of the Counters: detach before Close, or the kernel keeps the
// event until the link goes.
func (c *Counters) FDs() []CPUFD {
	c.mu.Lock()
	defer c.mu.Unlock()
	fds := make([]CPUFD, 0, len(c.counters))
	for _, n := range c.counters {
		fds = append(fds, CPUFD{CPU: n.cpu, FD: n.fd})
	}
	return fds
}

// Enable starts counting. Clock events are started at random offsets within a
// period (10 ms at most), each CPU its own, so that CPUs are not sampled in step
// and repeated recordings of a program do not all hit the same phase of it.
func (c *Counters) Enable() error {
	return c.each(func(counters []*counter) error {
		start := time.Now()
		for _, s := range c.schedule(counters) {
			time.Sleep(s.after - time.Since(start))
			if err := s.event.Enable(); err != nil {
				return fmt.Errorf("enable the counter of CPU %d: %w", s.cpu, err)
			}
		}
		return nil
	})
}

// phased is a counter and when to start it.
type phased struct {
	*counter
	after time.Duration
}

func (c *Counters) schedule(counters []*counter) []phased {
	period := time.Duration(0)
	if c.info.Event.IsClock() {
		period = min(time.Duration(c.info.Period), maxPhase)
	}
	order := make([]phased, 0, len(counters))
	for _, n := range counters {
		p := phased{counter: n}
		if period > 0 {
			p.after = rand.N(period)
		}
		order = append(order, p)
	}
	slices.SortFunc(order, func(a, b phased) int { return cmp.Compare(a.after, b.after) })
	return order
}

// SetPeriod changes the period, in the event's unit, of all counters: it begins
// anew now, so what had passed of the last one stays without a sample. Samples
// carry the period they stand for.
func (c *Counters) SetPeriod(period uint64) error {
	return c.each(func(counters []*counter) error {
		for _, n := range counters {
			if err := n.event.UpdatePeriod(period); err != nil {
				return fmt.Errorf("change the period of CPU %d: %w", n.cpu, err)
			}
		}
		return nil
	})
}

// Disable stops counting. The counts stay.
func (c *Counters) Disable() error {
	return c.each(func(counters []*counter) error {
		var errs []error
		for _, n := range counters {
			if err := n.event.Disable(); err != nil {
				errs = append(errs, fmt.Errorf("disable the counter of CPU %d: %w", n.cpu, err))
			}
		}
		return errors.Join(errs...)
	})
}

// Counts reads all counters.
func (c *Counters) Counts() (Counts, error) {
	var counts Counts
	err := c.each(func(counters []*counter) error {
		for _, n := range counters {
			count, err := n.read()
			if err != nil {
				return fmt.Errorf("read the counter of CPU %d: %w", n.cpu, err)
			}
			counts = append(counts, count)
		}
		return nil
	})
	return counts, err
}

// read is not go-perf's ReadCount, which returns zeros for a short read.
func (n *counter) read() (Count, error) {
	var buf [24]byte
	got, err := unix.Read(n.fd, buf[:])
	switch {
	case err != nil:
		return Count{}, err
	case got != len(buf):
		return Count{}, fmt.Errorf("%d bytes instead of %d", got, len(buf))
	}
	return Count{
		CPU:     n.cpu,
		Value:   binary.NativeEndian.Uint64(buf[0:]),
		Enabled: time.Duration(binary.NativeEndian.Uint64(buf[8:])),
		Running: time.Duration(binary.NativeEndian.Uint64(buf[16:])),
	}, nil
}

// Throttles reads what the kernel wrote about throttling and returns the sums
// since Open. The room for such records is for some seconds of constant
// throttling: call it about once a second, and before Close.
func (c *Counters) Throttles() (Throttles, error) {
	var sum Throttles
	err := c.each(func(counters []*counter) error {
		for _, n := range counters {
			n.drain()
			sum.merge(n.throttle.Throttles)
		}
		return nil
	})
	return sum, err
}

// drain reads at most what a full ring holds, so that a flood cannot hold it.
func (n *counter) drain() {
	var raw perf.RawRecord
	for range counterRingBytes / 8 {
		if !readRaw(n.event, &raw) {
			return
		}
		rec, err := decodeRingRecord(uint32(raw.Header.Type), raw.Data)
		if err != nil {
			n.throttle.Lost++ // garbage stands for something
			continue
		}
		n.throttle.add(&rec)
	}
}

// cancelled keeps go-perf from waiting for a record.
var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// readRaw reads the next record, if there is one. Its data is valid until the
// next call.
func readRaw(ev *perf.Event, raw *perf.RawRecord) bool {
	return ev.HasRecord() && ev.ReadRawRecord(cancelled, raw) == nil
}

// each calls f unless the counters are closed, keeping others out: go-perf's
// Close may not run beside its other methods.
func (c *Counters) each(f func([]*counter) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return os.ErrClosed
	}
	return f(c.counters)
}

// Close stops and releases the counters. It may be called twice.
func (c *Counters) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	var errs []error
	for _, n := range c.counters {
		if err := n.event.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close the counter of CPU %d: %w", n.cpu, err))
		}
	}
	c.counters = nil
	return errors.Join(errs...)
}
