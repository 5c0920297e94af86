// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"fmt"
	"iter"
	"runtime"
	"sync"

	"pathprof/join/sched"
)

// Slab is a stretch of a recording with the events of all CPUs, in time order.
// It may be called more than once, each time for all its events.
type Slab = func() iter.Seq2[sched.Event, error]

// Build makes the graph of [begin, end) from a recording that lies in slabs,
// which follow each other in time. The slabs are read by so many workers at once (0:
// one per processor), each from unknown state; no more than twice that many wait for their turn
// to be merged. The graph is the same for any cut and any number of workers. An
// error of a slab ends it. Events that [Builder.Add] refuses are counted in
// Graph.Loss.
func Build(opt Options, slabs []Slab, begin, end int64, workers int) (*Graph, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	type result struct {
		unit *Builder
		err  error
	}
	results := make([]chan result, len(slabs))
	for i := range results {
		results[i] = make(chan result, 1)
	}
	jobs := make(chan int)
	room := make(chan struct{}, 2*workers)
	done := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	for range min(workers, len(slabs)) {
		wg.Go(func() {
			for i := range jobs {
				u := newUnit(opt, never)
				results[i] <- result{u, u.read(slabs[i], done)}
			}
		})
	}
	wg.Go(func() {
		defer close(jobs)
		for i := range slabs {
			select {
			case room <- struct{}{}:
				jobs <- i
			case <-done:
				return
			}
		}
	})
	b := NewBuilder(opt)
	for i, slab := range slabs {
		r := <-results[i]
		if r.err == nil && r.unit.first < b.now {
			// Its first events are late. How late, only the slabs before tell.
			r.unit = newUnit(opt, b.now)
			r.err = r.unit.read(slab, done)
		}
		if r.err != nil {
			return nil, fmt.Errorf("slab %d: %w", i, r.err)
		}
		b.merge(r.unit)
		<-room
	}
	return b.graph(begin, end, true), nil
}

// read adds all events of a slab, or those before done is closed.
func (b *Builder) read(slab Slab, done <-chan struct{}) error {
	n := 0
	for ev, err := range slab() {
		if err != nil {
			return err
		}
		_ = b.add(&ev) // what is refused is counted
		if n++; n&0xfff == 0 {
			select {
			case <-done:
				return nil
			default:
			}
		}
	}
	return nil
}
