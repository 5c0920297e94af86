// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pathprof/join/sched"
)

// Source is a recording as analysis sees it: a [Reader], or [Data] in memory.
type Source interface {
	Meta() Meta
	// Frames and Stacks by number: element 0 is unused, one that was lost has
	// ID 0.
	Frames() ([]Frame, error)
	Stacks() ([]Stack, error)
	// Samples and Events in time order.
	Samples() iter.Seq2[Sample, error]
	Events() iter.Seq2[sched.Event, error]
	// Warnings says what of the recording is missing or damaged.
	Warnings() []string
}

// Reader reads a recording. Its methods are safe for concurrent use, but
// Warnings grow while damaged batches are met.
type Reader struct {
	meta     Meta
	files    []*os.File
	events   []*indexed[sched.Event]
	samples  *indexed[Sample]
	stacks   *indexed[Stack]
	frames   *indexed[Frame]
	symbols  *indexed[Symbol]
	warnings warningList
}

// indexed is a stream with its batches in order of their first time.
type indexed[T any] struct {
	*streamFile[T]
	batches []batch
	// lost makes what stands for a damaged batch, if anything does.
	lost func(batch) []T
}

// Open opens a recording. A recording whose recorder was killed opens, and
// Warnings says so.
func Open(dir string) (*Reader, error) {
	meta, err := readMeta(dir)
	if err != nil {
		return nil, err
	}
	r := &Reader{meta: meta}
	if err := r.openStreams(dir); err != nil {
		r.Close()
		return nil, err
	}
	if !meta.Complete {
		r.completeMeta()
	}
	return r, nil
}

func (r *Reader) openStreams(dir string) error {
	index := r.readIndex(dir)
	var err error
	if r.samples, err = openIndexed(r, dir, "samples.arrow", sampleTableOf(r.meta.Format), index); err != nil {
		return err
	}
	if r.stacks, err = openIndexed(r, dir, "stacks.arrow", stackTable, index); err != nil {
		return err
	}
	if r.frames, err = openIndexed(r, dir, "frames.arrow", frameTable, index); err != nil {
		return err
	}
	if r.symbols, err = openIndexed(r, dir, "symbols.arrow", symbolTable, index); err != nil {
		return err
	}
	cpus, err := eventCPUs(dir, index)
	if err != nil {
		return err
	}
	for _, cpu := range cpus {
		s, err := openIndexed(r, dir, eventsName(cpu), eventTableOf(r.meta.Format), index)
		if err != nil {
			return err
		}
		if cpu >= 0 {
			s.lost = func(b batch) []sched.Event {
				return []sched.Event{{Time: b.Last, CPU: cpu, Kind: sched.KindLost, Count: max(b.Rows, 1)}}
			}
		}
		r.events = append(r.events, s)
	}
	return nil
}

// maxCPU bounds the numbers of CPUs; Linux can be built for 8192.
const maxCPU = 8192

// eventCPUs lists the CPUs that have streams, by the folder and by the index, in
// order; the task dump, -1, first.
func eventCPUs(dir string, index map[string][]batch) ([]int32, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	found := map[int32]bool{}
	note := func(name string) {
		digits := strings.TrimSuffix(strings.TrimPrefix(name, "events-cpu"), ".arrow")
		n, err := strconv.ParseUint(digits, 10, 16)
		if name == eventsName(-1) {
			found[-1] = true
		} else if err == nil && n < maxCPU && name == eventsName(int32(n)) {
			found[int32(n)] = true
		}
	}
	for _, e := range entries {
		note(e.Name())
	}
	for name := range index {
		note(name)
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// readIndex returns the batches of each stream; a missing index is found again
// by scanning the streams.
func (r *Reader) readIndex(dir string) map[string][]batch {
	out := map[string][]batch{}
	s, err := openIndexed(r, dir, "index.arrow", indexTable, nil)
	if err != nil {
		r.warnings.add("index: %v; streams are read without it", err)
		return out
	}
	for _, b := range s.batches {
		rows, err := s.read(b)
		if err != nil {
			r.warnings.damaged(b, err)
			continue
		}
		for _, row := range rows {
			out[row.Stream] = append(out[row.Stream], row)
		}
	}
	return out
}

// openIndexed opens a stream and completes its index by what lies beyond it. Of a
// stream that cannot be read, all batches that the index names are gone.
func openIndexed[T any](r *Reader, dir, name string, t *table[T], index map[string][]batch) (*indexed[T], error) {
	s := &indexed[T]{streamFile: &streamFile[T]{name: name, table: t}}
	f, size, err := openRegular(filepath.Join(dir, name))
	switch {
	case errors.Is(err, os.ErrNotExist):
		r.warnings.add("%s is missing", name)
	case err != nil:
		r.warnings.add("%s: %v", name, err)
	default:
		r.files = append(r.files, f)
		file, err := openStream(name, t, f, size)
		if err != nil {
			r.warnings.add("%v", err)
			break
		}
		s.streamFile = file
	}
	s.complete(index[name], &r.meta, &r.warnings)
	r.countGone(s.name, s.batches)
	return s, nil
}

// completeMeta makes an incomplete recording end with what it holds, and fills in
// what a killed recorder did not say.
func (r *Reader) completeMeta() {
	m := &r.meta
	var last, events, samples int64
	for _, s := range r.events {
		l, n := held(s)
		last, events = max(last, l), events+n
	}
	l, samples := held(r.samples)
	last = max(last, l, m.BeginNs)
	if m.Stopped == "" {
		m.Stopped = "the recorder was killed"
	}
	if m.EndNs == 0 {
		m.EndNs, m.Events, m.Samples = last, uint64(events), uint64(samples)
		m.RealtimeOffsetEndNs = m.RealtimeOffsetBeginNs
		r.warnings.add("the recorder was killed: the recording ends with what was flushed, %.3f s after it began; "+
			"what was lost or throttled, and the achieved rate, are not known", float64(m.EndNs-m.BeginNs)/1e9)
		return
	}
	r.warnings.add("the recording is incomplete: %s", m.Stopped)
	m.EndNs = min(m.EndNs, last)
	if n := uint64(events); n < m.Events {
		m.Loss.Events += m.Events - n
		m.Events = n
	}
	if n := uint64(samples); n < m.Samples {
		m.Loss.Samples += m.Samples - n
		m.Samples = n
	}
}

// held returns the latest time of a stream and the count of its rows, with those
// of damaged batches, which are counted as lost elsewhere.
func held[T any](s *indexed[T]) (last, rows int64) {
	for _, b := range s.batches {
		last = max(last, b.Last)
		rows += b.Rows
	}
	return last, rows
}

// Close closes the files.
func (r *Reader) Close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Meta returns what the recording says of itself. Loss has the rows of damaged
// batches that were met so far: some are found only when they are read.
func (r *Reader) Meta() Meta {
	m := r.meta
	events, samples := r.warnings.loss()
	m.Loss.Events += events
	m.Loss.Samples += samples
	return m
}

// countGone counts what is known to be gone before it is read.
func (r *Reader) countGone(name string, batches []batch) {
	for _, b := range batches {
		if b.gone {
			b.Stream = name
			r.warnings.damaged(b, nil)
		}
	}
}

// Warnings says what of the recording is missing or damaged.
func (r *Reader) Warnings() []string { return append(r.warnings.list(), r.meta.Warnings...) }

// Frames returns the frames by number, with their symbols.
func (r *Reader) Frames() ([]Frame, error) {
	frames, err := byNumber(r, r.frames, func(f *Frame) uint32 { return f.ID })
	if err != nil {
		return nil, err
	}
	for _, b := range r.symbols.batches {
		rows, err := r.symbols.read(b)
		if err != nil {
			r.warnings.damaged(b, err)
			continue
		}
		if n := AddSymbols(frames, rows); n > 0 {
			r.warnings.add("%s: %d symbols without a native frame", r.symbols.name, n)
		}
	}
	return frames, nil
}

// Stacks returns the stacks by number.
func (r *Reader) Stacks() ([]Stack, error) {
	return byNumber(r, r.stacks, func(s *Stack) uint32 { return s.ID })
}

// byNumber reads a whole stream. Numbers are handed out one by one, so none is
// above the count of rows. The index may claim any count for a damaged batch, but
// numbers differ in every row, so that a row takes a byte at least.
func byNumber[T any](r *Reader, s *indexed[T], id func(*T) uint32) ([]T, error) {
	total := int64(0)
	for _, b := range s.batches {
		total += b.Rows
	}
	total = min(total, s.size)
	var out []T
	for _, b := range s.batches {
		rows, err := s.read(b)
		if err != nil {
			r.warnings.damaged(b, err)
			continue
		}
		for i := range rows {
			n := int64(id(&rows[i]))
			if n == 0 || n > total {
				r.warnings.add("%s: number %d of %d", s.name, n, total)
				continue
			}
			if n >= int64(len(out)) {
				out = append(out, make([]T, n+1-int64(len(out)))...)
			}
			out[n] = rows[i]
		}
	}
	return out, nil
}

// Samples yields all samples in time order.
func (r *Reader) Samples() iter.Seq2[Sample, error] {
	return merge(r, []*indexed[Sample]{r.samples}, -forever, forever)
}

// Events yields all events in time order; of equal times, those of the lower
// CPU first.
func (r *Reader) Events() iter.Seq2[sched.Event, error] {
	return merge(r, r.events, -forever, forever)
}
