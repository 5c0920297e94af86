// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"sort"

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

// maxMeta bounds meta.json.
const maxMeta = 16 << 20

// Reader reads a recording. Its methods are safe for concurrent use, but
// Warnings grow while damaged batches are met.
type Reader struct {
	meta     Meta
	files    []*os.File
	events   []*indexed[sched.Event]
	samples  *indexed[Sample]
	stacks   *indexed[Stack]
	frames   *indexed[Frame]
	warnings warningList
}

// indexed is a stream with its batches in order of their first time.
type indexed[T any] struct {
	*streamFile[T]
	batches []batch
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

func readMeta(dir string) (m Meta, err error) {
	f, err := os.Open(filepath.Join(dir, metaName))
	if errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(dir); err != nil {
			return m, fmt.Errorf("no recording %s", dir)
		}
		return m, fmt.Errorf("%s is not a recording: it has no %s", dir, metaName)
	}
	if err != nil {
		return m, fmt.Errorf("open recording: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxMeta))
	if err != nil {
		return m, fmt.Errorf("open recording: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("recording %s: damaged %s: %w", dir, metaName, err)
	}
	switch {
	case m.Format > FormatVersion:
		return m, fmt.Errorf("recording %s has format %d; this pathprof reads up to %d", dir, m.Format, FormatVersion)
	case m.Format < 1:
		return m, fmt.Errorf("%s is not a recording: %s names no format", dir, metaName)
	}
	return m, nil
}

func (r *Reader) openStreams(dir string) error {
	index := r.readIndex(dir)
	var err error
	if r.samples, err = openIndexed(r, dir, "samples.arrow", sampleTable, index); err != nil {
		return err
	}
	if r.stacks, err = openIndexed(r, dir, "stacks.arrow", stackTable, index); err != nil {
		return err
	}
	if r.frames, err = openIndexed(r, dir, "frames.arrow", frameTable, index); err != nil {
		return err
	}
	names, err := filepath.Glob(filepath.Join(dir, "events-*.arrow"))
	if err != nil {
		return fmt.Errorf("open recording: %w", err)
	}
	sort.Strings(names)
	for _, path := range names {
		s, err := openIndexed(r, dir, filepath.Base(path), eventTable, index)
		if err != nil {
			return err
		}
		r.events = append(r.events, s)
	}
	return nil
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
			r.warnings.add("%v", err)
			continue
		}
		for _, row := range rows {
			out[row.Stream] = append(out[row.Stream], row)
		}
	}
	return out
}

// openIndexed opens a stream and completes its index by what lies beyond it. A
// stream that cannot be read at all is empty, and a warning.
func openIndexed[T any](r *Reader, dir, name string, t *table[T], index map[string][]batch) (*indexed[T], error) {
	s := &indexed[T]{streamFile: &streamFile[T]{name: name, table: t}}
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, os.ErrNotExist) {
		r.warnings.add("%s is missing", name)
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	r.files = append(r.files, f)
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open recording: %w", err)
	}
	file, err := openStream(name, t, f, st.Size())
	if err != nil {
		r.warnings.add("%v", err)
		return s, nil
	}
	s.streamFile = file
	s.complete(index[name], &r.warnings)
	return s, nil
}

// complete takes the indexed batches that can be, and looks for more behind them.
func (s *indexed[T]) complete(known []batch, warn *warningList) {
	end := int64(len(s.prefix))
	for _, b := range known {
		if b.Offset != end || b.Length <= 0 || b.Length > s.size-b.Offset || b.Rows < 0 || b.Rows > maxBatchRows {
			warn.add("%s: the index is damaged at byte %d", s.name, end)
			break
		}
		s.batches = append(s.batches, b)
		end += b.Length
	}
	more, rest, err := s.scan(end)
	s.batches = append(s.batches, more...)
	if err != nil {
		warn.add("%s: the last %d bytes are cut or damaged (%v)", s.name, rest, err)
	}
	if s.table.time != nil {
		slices.SortStableFunc(s.batches, func(a, b batch) int { return compare(a.First, b.First) })
	}
}

// completeMeta fills in what a killed recorder did not say.
func (r *Reader) completeMeta() {
	m := &r.meta
	var last, events, samples int64
	for _, s := range r.events {
		for _, b := range s.batches {
			last, events = max(last, b.Last), events+b.Rows
		}
	}
	for _, b := range r.samples.batches {
		last, samples = max(last, b.Last), samples+b.Rows
	}
	if m.Stopped == "" {
		m.Stopped = "the recorder was killed"
	}
	if m.EndNs == 0 {
		m.EndNs, m.Events, m.Samples = max(last, m.BeginNs), uint64(events), uint64(samples)
		m.RealtimeOffsetEndNs = m.RealtimeOffsetBeginNs
		r.warnings.add("the recorder was killed: the recording ends with what was flushed, %.3f s after it began; "+
			"what was lost or throttled, and the achieved rate, are not known", float64(m.EndNs-m.BeginNs)/1e9)
		return
	}
	r.warnings.add("the recording is incomplete: %s", m.Stopped)
}

// Close closes the files.
func (r *Reader) Close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// Meta returns what the recording says of itself.
func (r *Reader) Meta() Meta { return r.meta }

// Warnings says what of the recording is missing or damaged.
func (r *Reader) Warnings() []string { return append(r.warnings.list(), r.meta.Warnings...) }

// Frames returns the frames by number.
func (r *Reader) Frames() ([]Frame, error) {
	return byNumber(r, r.frames, func(f *Frame) uint32 { return f.ID })
}

// Stacks returns the stacks by number.
func (r *Reader) Stacks() ([]Stack, error) {
	return byNumber(r, r.stacks, func(s *Stack) uint32 { return s.ID })
}

// byNumber reads a whole stream. Numbers are handed out one by one, so none is
// above the count of rows.
func byNumber[T any](r *Reader, s *indexed[T], id func(*T) uint32) ([]T, error) {
	total := int64(0)
	for _, b := range s.batches {
		total += b.Rows
	}
	var out []T
	for _, b := range s.batches {
		rows, err := s.read(b)
		if err != nil {
			r.warnings.add("%v", err)
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
