// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
)

// backlog holds records between [Capture.Gather] and [Capture.Deliver], as they
// were in the rings. Rings live in the kernel's memory and are small; who
// empties them must never wait for who makes sense of the records.
type backlog struct {
	mu    sync.Mutex
	full  []*block // in the order of gathering: each CPU's records stay in order
	free  []*block
	bytes atomic.Int64 // of all blocks but the free ones
	// pending are full blocks that could not be handed over without waiting.
	// They belong to Gather.
	pending []*block
}

// block is a piece of one CPU's records.
type block struct {
	cpu  int
	data []byte
}

const (
	blockSize = 1 << 18
	// maxBacklog bounds the memory of the backlog. Beyond it records stay in the
	// rings, and what finds no room there is counted as lost.
	maxBacklog = 64 << 20
)

// Gather takes what the rings hold now into memory of this process, for
// [Capture.Deliver]. It makes no system call and never waits for Deliver, which
// may run at the same time; of Gather itself only one may.
func (c *Capture) Gather() error {
	if c.rings == nil {
		return os.ErrClosed
	}
	defer c.backlog.handOver()
	for cpu := range c.rings.rings {
		if err := c.backlog.fill(cpu, &c.rings.rings[cpu]); err != nil {
			return err
		}
	}
	return nil
}

// fill copies a ring's records to new blocks.
func (b *backlog) fill(cpu int, r *ring) error {
	var into *block
	return r.poll(func(raw []byte, lost uint64) error {
		size := headerSize + len(raw)
		if into == nil || len(into.data)+size > cap(into.data) {
			if b.bytes.Load() >= maxBacklog {
				return errNoRoom
			}
			into = b.block(cpu)
			b.pending = append(b.pending, into)
		}
		into.data = binary.NativeEndian.AppendUint64(into.data, uint64(size)|lost<<32)
		into.data = append(into.data, raw...)
		return nil
	})
}

// block returns an empty block, a used one if there is one at hand.
func (b *backlog) block(cpu int) *block {
	b.bytes.Add(blockSize)
	if b.mu.TryLock() {
		defer b.mu.Unlock()
		if n := len(b.free); n > 0 {
			one := b.free[n-1]
			b.free = b.free[:n-1]
			one.cpu, one.data = cpu, one.data[:0]
			return one
		}
	}
	return &block{cpu: cpu, data: make([]byte, 0, blockSize)}
}

// handOver gives Deliver the pending blocks, now or next time.
func (b *backlog) handOver() {
	if len(b.pending) == 0 || !b.mu.TryLock() {
		return
	}
	b.full = append(b.full, b.pending...)
	b.mu.Unlock()
	b.pending = b.pending[:0]
}

// take returns the blocks handed over so far.
func (b *backlog) take() []*block {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.full
	b.full = nil
	return out
}

// release takes a block back.
func (b *backlog) release(one *block) {
	b.bytes.Add(-blockSize)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free = append(b.free, one)
}

// Deliver hands the records gathered so far to handle, and returns. Records of
// one CPU come in the order in which it wrote them; rec is reused. After an
// error the rest is dropped.
func (c *Capture) Deliver(rec *Record, handle func(*Record) error) error {
	c.realtime = realtimeOffset()
	for _, one := range c.backlog.take() {
		for data := one.data; len(data) >= headerSize; {
			header := binary.NativeEndian.Uint64(data)
			size := int(uint32(header))
			if err := c.deliver(one.cpu, data[headerSize:size], header>>32, rec, handle); err != nil {
				return err
			}
			data = data[size:]
		}
		c.backlog.release(one)
	}
	return nil
}

// Poll is Gather and then Deliver, for who does not need them apart.
func (c *Capture) Poll(rec *Record, handle func(*Record) error) error {
	if err := c.Gather(); err != nil {
		return err
	}
	return c.Deliver(rec, handle)
}
