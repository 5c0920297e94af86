// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"

	"pathprof/join/sched"
)

// warningList gathers warnings from several goroutines, each once.
// It counts the rows of damaged batches, each once.
type warningList struct {
	mu   sync.Mutex
	all  []string
	more int
	seen map[string]bool // damaged batches
	// Rows of damaged batches.
	events, samples uint64
}

// maxWarnings bounds what a thoroughly damaged recording can say of itself.
const maxWarnings = 100

func (w *warningList) add(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	switch {
	case slices.Contains(w.all, text):
	case len(w.all) >= maxWarnings:
		w.more++
	default:
		w.all = append(w.all, text)
	}
}

// damaged notes that a batch is left out. It is said once, as often as it is read.
func (w *warningList) damaged(b batch, err error) {
	w.mu.Lock()
	key := fmt.Sprint(b.Stream, " ", b.Offset)
	again := w.seen[key]
	if !again {
		if w.seen == nil {
			w.seen = map[string]bool{}
		}
		w.seen[key] = true
		rows := uint64(max(b.Rows, 1))
		switch {
		case strings.HasPrefix(b.Stream, "events-"):
			w.events += rows
		case b.Stream == "samples.arrow":
			w.samples += rows
		}
	}
	w.mu.Unlock()
	if err != nil && !again && !b.gone {
		w.add("%v", err)
	}
}

// loss returns the events and samples of damaged batches.
func (w *warningList) loss() (events, samples uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.events, w.samples
}

func (w *warningList) list() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := slices.Clone(w.all)
	if w.more > 0 {
		out = append(out, fmt.Sprintf("and %d more of the kind", w.more))
	}
	return out
}

// Slab is a range of time, [Begin, End).
type Slab struct{ Begin, End int64 }

// Slabs cuts the events' time into at most n ranges of about equal bytes over
// all CPUs: equal times would be uneven work. Together they cover all time.
func (r *Reader) Slabs(n int) []Slab {
	var all []batch
	var total float64
	for _, s := range r.events {
		for _, b := range s.batches {
			all = append(all, b)
			total += float64(b.Length)
		}
	}
	slices.SortFunc(all, func(a, b batch) int { return compare(a.Last, b.Last) })
	slabs := []Slab{{-forever, forever}}
	var sum float64
	for _, b := range all {
		sum += float64(b.Length)
		last := &slabs[len(slabs)-1]
		if sum < total*float64(len(slabs))/float64(max(n, 1)) || b.Last+1 <= last.Begin || len(slabs) >= n {
			continue
		}
		last.End = b.Last + 1
		slabs = append(slabs, Slab{b.Last + 1, forever})
	}
	return slabs
}

// EventsIn yields the events of a slab in the order of Events.
func (r *Reader) EventsIn(s Slab) iter.Seq2[sched.Event, error] {
	return merge(r, r.events, s.Begin, s.End)
}

// lookAhead is how many decoded batches of a stream wait to be merged.
const lookAhead = 2

// cursor yields one stream's rows of a time range in order. Batches are decoded
// ahead by a goroutine of their own.
type cursor[T any] struct {
	time    func(*T) int64
	firsts  []int64 // first times of the batches to come
	batches chan []T
	pending []T
	at      int
}

// merge yields the rows of several streams in time order; of equal times, those
// of the first stream first. Damaged batches are left out, with a warning.
func merge[T any](r *Reader, streams []*indexed[T], begin, end int64) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stop := make(chan struct{})
		var wait sync.WaitGroup
		defer wait.Wait()
		defer close(stop)
		var cursors []*cursor[T]
		for _, s := range streams {
			c := &cursor[T]{time: s.table.time, batches: make(chan []T, lookAhead)}
			var wanted []batch
			for _, b := range s.batches {
				if b.Last >= begin && b.First < end {
					wanted = append(wanted, b)
					c.firsts = append(c.firsts, b.First)
				}
			}
			wait.Go(func() { decodeAhead(r, s, wanted, begin, end, c.batches, stop) })
			if c.fill() {
				cursors = append(cursors, c)
			}
		}
		for len(cursors) > 0 {
			first := 0
			for i, c := range cursors[1:] {
				if c.head() < cursors[first].head() {
					first = i + 1
				}
			}
			c := cursors[first]
			if !yield(c.pending[c.at], nil) {
				return
			}
			c.at++
			if !c.fill() {
				cursors = slices.Delete(cursors, first, first+1)
			}
		}
	}
}

// decodeAhead decodes the batches of one stream, keeping the rows of the range.
func decodeAhead[T any](r *Reader, s *indexed[T], wanted []batch, begin, end int64, out chan<- []T, stop <-chan struct{}) {
	defer close(out)
	for _, b := range wanted {
		rows, err := s.read(b)
		if err != nil {
			r.warnings.damaged(b, err)
			rows = nil
			if s.lost != nil {
				rows = s.lost(b)
			}
		}
		rows = slices.DeleteFunc(rows, func(v T) bool { t := s.table.time(&v); return t < begin || t >= end })
		select {
		case out <- rows:
		case <-stop:
			return
		}
	}
}

func (c *cursor[T]) head() int64 { return c.time(&c.pending[c.at]) }

// fill makes the next row available, and says whether there is one. Batches may
// overlap at their borders: one that begins before the next row comes in first.
func (c *cursor[T]) fill() bool {
	for len(c.firsts) > 0 && (c.at >= len(c.pending) || c.firsts[0] <= c.head()) {
		rows, ok := <-c.batches
		if !ok {
			c.firsts = nil
			break
		}
		c.firsts = c.firsts[1:]
		rest := c.pending[c.at:]
		if len(rest) == 0 {
			c.pending, c.at = rows, 0
			continue
		}
		c.pending, c.at = append(slices.Clone(rest), rows...), 0
		slices.SortStableFunc(c.pending, func(a, b T) int { return compare(c.time(&a), c.time(&b)) })
	}
	return c.at < len(c.pending)
}
