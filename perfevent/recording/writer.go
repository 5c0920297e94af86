// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"

	"pathprof/join/sched"
)

// Options of a Writer. The zero value works.
type Options struct {
	// RowsPerBatch is when a batch is written without a Flush; 0 is 32768.
	RowsPerBatch int
}

const (
	defaultRows = 32 << 10
	// maxBatchRows bounds what one batch holds, or may claim to hold.
	maxBatchRows = 1 << 20
	// maxPending bounds the bytes of stacks, frames and symbols that wait for a
	// Flush.
	maxPending = 64 << 20
)

// Writer writes a recording. It is used from one goroutine. The first error
// sticks: everything flushed before stays readable.
type Writer struct {
	dir     string
	limit   int // rows of a batch
	size    int64
	err     error
	cpus    map[int32]*stream[sched.Event]
	order   []*stream[sched.Event] // as they came
	samples *stream[Sample]
	stacks  *stream[Stack]
	frames  *stream[Frame]
	symbols *stream[Symbol]
	index   *stream[batch]
	// What stacks that wait for a Flush hold.
	numbers []uint32
	entries []bool
	pending int // bytes of stacks, frames and symbols
	// wholeTo is the latest time when all that came was flushed.
	wholeTo int64
	refused Loss // what came after an error
}

// Create makes the folder dir and writes meta with Complete unset. A folder
// that exists must be empty.
func Create(dir string, meta Meta, opt Options) (*Writer, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("create recording: %w", err)
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("create recording: folder %s is not empty; choose another with -o", dir)
	}
	w := &Writer{dir: dir, limit: min(opt.RowsPerBatch, maxBatchRows), cpus: map[int32]*stream[sched.Event]{}}
	if w.limit <= 0 {
		w.limit = defaultRows
	}
	meta.Complete = false
	// A busy disk takes seconds to sync; Update does it when recording has begun.
	if err := writeMeta(dir, meta, metaReserve, false); err != nil {
		return nil, err
	}
	if err := w.openStreams(); err != nil {
		w.closeFiles(false)
		return nil, fmt.Errorf("create recording: %w", err)
	}
	return w, nil
}

func (w *Writer) openStreams() (err error) {
	if w.index, err = newStream(w, "index.arrow", indexTable); err != nil {
		return err
	}
	if w.frames, err = newStream(w, "frames.arrow", frameTable); err != nil {
		return err
	}
	if w.symbols, err = newStream(w, "symbols.arrow", symbolTable); err != nil {
		return err
	}
	if w.stacks, err = newStream(w, "stacks.arrow", stackTable); err != nil {
		return err
	}
	w.samples, err = newStream(w, "samples.arrow", sampleTable)
	return err
}

// eventsName is the stream of a CPU's events; CPU -1 holds the task dump.
func eventsName(cpu int32) string {
	if cpu < 0 {
		return "events-tasks.arrow"
	}
	return "events-cpu" + strconv.Itoa(int(cpu)) + ".arrow"
}

// Event appends an execution event to the stream of its CPU.
func (w *Writer) Event(ev sched.Event) error {
	if w.err != nil {
		w.refused.Events++
		return w.err
	}
	s := w.cpus[ev.CPU]
	if s == nil {
		var err error
		if s, err = newStream(w, eventsName(ev.CPU), eventTable); err != nil {
			w.refused.Events++
			return w.fail(err)
		}
		w.cpus[ev.CPU] = s
		w.order = append(w.order, s)
	}
	s.rows = append(s.rows, ev)
	if ev.Kind == sched.KindLost {
		s.lost += ev.Count
	}
	return w.full(len(s.rows))
}

// Sample appends a sample.
func (w *Writer) Sample(v Sample) error {
	if w.err != nil {
		w.refused.Samples++
		return w.err
	}
	w.samples.rows = append(w.samples.rows, v)
	return w.full(len(w.samples.rows))
}

// Stack appends a stack; its slices may be reused afterwards.
func (w *Writer) Stack(v Stack) error {
	if w.err != nil {
		return w.err
	}
	for _, part := range []*[]uint32{&v.Kernel, &v.Native, &v.Python} {
		*part = keep(&w.numbers, *part)
	}
	v.Entry = keep(&w.entries, v.Entry)
	w.pending += 4*(len(v.Kernel)+len(v.Native)+len(v.Python)) + len(v.Entry)
	w.stacks.rows = append(w.stacks.rows, v)
	return w.full(len(w.stacks.rows))
}

// keep copies a list into memory that many share. What is in it stays where it
// is when it grows.
func keep[V any](all *[]V, list []V) []V {
	n := len(*all)
	*all = append(*all, list...)
	return (*all)[n:len(*all):len(*all)]
}

// Frame appends a frame; names of native ones are for [Writer.Symbols].
func (w *Writer) Frame(v Frame) error {
	if w.err != nil {
		return w.err
	}
	w.pending += len(v.Name) + len(v.File) + len(v.BuildID)
	w.frames.rows = append(w.frames.rows, v)
	return w.full(len(w.frames.rows))
}

// Symbols appends all symbols of one frame, innermost first: they stay in one
// batch.
func (w *Writer) Symbols(list []Symbol) error {
	if w.err != nil {
		return w.err
	}
	for _, v := range list {
		w.pending += len(v.Name) + len(v.File)
	}
	w.symbols.rows = append(w.symbols.rows, list...)
	return w.full(len(w.symbols.rows))
}

// full flushes when a batch is: all streams, for what one refers to must be on
// disk before it.
func (w *Writer) full(rows int) error {
	if rows < w.limit && w.pending < maxPending {
		return nil
	}
	return w.Flush()
}

// Flush writes every batch that has rows, what is referred to first.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	_, to := w.samples.span()
	if err := errors.Join(w.frames.flush(w), w.symbols.flush(w), w.stacks.flush(w), w.samples.flush(w)); err != nil {
		return w.fail(err)
	}
	w.numbers, w.entries, w.pending = w.numbers[:0], w.entries[:0], 0
	for _, s := range w.order {
		if err := s.flush(w); err != nil {
			return w.fail(err)
		}
		to = max(to, s.last)
	}
	if err := w.index.flush(w); err != nil {
		return w.fail(err)
	}
	w.wholeTo = max(w.wholeTo, to)
	return nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = fmt.Errorf("write recording: %w", err)
	}
	return w.err
}

// Size is the number of bytes written so far.
func (w *Writer) Size() int64 { return w.size }

// Close flushes, ends the streams and writes the final meta.json, complete
// unless something could not be written. In that case the recording ends with
// the last whole Flush, and what is not in it counts as lost.
func (w *Writer) Close(meta Meta) error {
	err := w.Flush()
	err = errors.Join(err, w.closeFiles(err == nil))
	meta.Complete = err == nil
	if !meta.Complete {
		w.shorten(&meta)
	}
	return errors.Join(err, writeMeta(w.dir, meta, 0, true))
}

// closeFiles closes the streams, with end marks if all went well so far.
func (w *Writer) closeFiles(well bool) (err error) {
	for _, s := range w.order {
		err = errors.Join(err, s.end(w, well && err == nil))
	}
	if w.samples != nil {
		err = errors.Join(err, w.samples.end(w, well && err == nil))
	}
	if w.stacks != nil {
		err = errors.Join(err, w.stacks.end(w, well && err == nil))
	}
	if w.symbols != nil {
		err = errors.Join(err, w.symbols.end(w, well && err == nil))
	}
	if w.frames != nil {
		err = errors.Join(err, w.frames.end(w, well && err == nil))
	}
	if w.index != nil {
		err = errors.Join(err, w.index.end(w, well && err == nil))
	}
	return err
}

// shorten makes meta say what was written really.
func (w *Writer) shorten(meta *Meta) {
	lost := w.refused
	lost.Samples += uint64(len(w.samples.rows))
	to, events := w.samples.last, int64(0)
	for _, s := range w.order {
		lost.Events += uint64(len(s.rows))
		to, events = max(to, s.last), events+s.written
	}
	if w.wholeTo > 0 {
		to = w.wholeTo
	}
	meta.EndNs = min(meta.EndNs, max(to, meta.BeginNs))
	meta.Samples, meta.Events = uint64(w.samples.written), uint64(events)
	meta.Loss.Events += lost.Events
	meta.Loss.Samples += lost.Samples
	if lost.Events+lost.Samples > 0 {
		meta.Warnings = append(slices.Clone(meta.Warnings), fmt.Sprintf(
			"%d events and %d samples were not written: the recording ends before them", lost.Events, lost.Samples))
	}
}

// Update rewrites meta.json while recording goes on, so that a recording whose
// recorder is killed knows its beginning.
func (w *Writer) Update(meta Meta) error {
	meta.Complete = false
	return writeMeta(w.dir, meta, metaReserve, true)
}
