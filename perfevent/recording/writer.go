// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pathprof/join/sched"
)

// Options of a Writer. The zero value works.
type Options struct {
	// RowsPerBatch is when a batch is written without a Flush; 0 is 32768.
	RowsPerBatch int
}

const (
	defaultRows = 32 << 10
	metaName    = "meta.json"
	// metaReserve is kept free for the final meta.json, should the disk be full.
	metaReserve = 64 << 10
)

// Writer writes a recording. It is used from one goroutine. The first error
// sticks: everything flushed before stays readable.
type Writer struct {
	dir     string
	rows    int
	size    int64
	err     error
	cpus    map[int32]*stream[sched.Event]
	order   []*stream[sched.Event] // as they came
	samples *stream[Sample]
	stacks  *stream[Stack]
	frames  *stream[Frame]
	index   *stream[batch]
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
	w := &Writer{dir: dir, rows: opt.RowsPerBatch, cpus: map[int32]*stream[sched.Event]{}}
	if w.rows <= 0 {
		w.rows = defaultRows
	}
	meta.Complete = false
	if err := w.writeMeta(meta, metaReserve); err != nil {
		return nil, err
	}
	if err := w.openStreams(); err != nil {
		return nil, err
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
	s := w.cpus[ev.CPU]
	if s == nil {
		if w.err != nil {
			return w.err
		}
		var err error
		if s, err = newStream(w, eventsName(ev.CPU), eventTable); err != nil {
			return w.fail(err)
		}
		w.cpus[ev.CPU] = s
		w.order = append(w.order, s)
	}
	s.append(&ev)
	if ev.Kind == sched.KindLost {
		s.lost += ev.Count
	}
	return w.limit(s.rows)
}

// Sample appends a sample.
func (w *Writer) Sample(v Sample) error { w.samples.append(&v); return w.limit(w.samples.rows) }

// Stack appends a stack; its slices may be reused afterwards.
func (w *Writer) Stack(v Stack) error { w.stacks.append(&v); return w.limit(w.stacks.rows) }

// Frame appends a frame.
func (w *Writer) Frame(v Frame) error { w.frames.append(&v); return w.limit(w.frames.rows) }

// limit flushes when a batch is full: all streams, for what one refers to must
// be on disk before it.
func (w *Writer) limit(rows int) error {
	if w.err != nil || rows < w.rows {
		return w.err
	}
	return w.Flush()
}

// Flush writes every batch that has rows, what is referred to first.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	if err := errors.Join(w.frames.flush(w), w.stacks.flush(w), w.samples.flush(w)); err != nil {
		return w.fail(err)
	}
	for _, s := range w.order {
		if err := s.flush(w); err != nil {
			return w.fail(err)
		}
	}
	if err := w.index.flush(w); err != nil {
		return w.fail(err)
	}
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
// unless something could not be written.
func (w *Writer) Close(meta Meta) error {
	err := w.Flush()
	for _, s := range w.order {
		err = errors.Join(err, s.end(w, err == nil))
	}
	for _, end := range []func(*Writer, bool) error{w.samples.end, w.stacks.end, w.frames.end, w.index.end} {
		err = errors.Join(err, end(w, err == nil))
	}
	meta.Complete = err == nil
	return errors.Join(err, w.writeMeta(meta, 0))
}

// Update rewrites meta.json while recording goes on, so that a recording whose
// recorder is killed knows its beginning.
func (w *Writer) Update(meta Meta) error {
	meta.Complete = false
	return w.writeMeta(meta, metaReserve)
}

// writeMeta replaces meta.json. On a full disk it is overwritten in place: room
// was reserved as white space, which JSON allows at the end.
func (w *Writer) writeMeta(meta Meta, reserve int) error {
	text, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return fmt.Errorf("write meta.json: %w", err)
	}
	text = append(text, '\n')
	text = append(text, bytes.Repeat([]byte{' '}, reserve)...)
	path, temp := filepath.Join(w.dir, metaName), filepath.Join(w.dir, metaName+".new")
	err = writeFile(temp, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, text)
	if err == nil {
		if err = os.Rename(temp, path); err == nil {
			return nil
		}
	}
	os.Remove(temp)
	if inPlace := writeFile(path, os.O_WRONLY, text); inPlace != nil {
		return fmt.Errorf("write meta.json: %w", errors.Join(err, inPlace))
	}
	return nil
}

func writeFile(path string, flag int, text []byte) error {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Truncate(int64(len(text)))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// stream writes one file.
type stream[T any] struct {
	name    string
	table   *table[T]
	file    *os.File
	builder *array.RecordBuilder
	schema  []byte // the file's first bytes, which begin every encoded batch
	buffer  bytes.Buffer
	offset  int64
	rows    int
	lost    int64
	first   int64
	last    int64
}

func newStream[T any](w *Writer, name string, t *table[T]) (*stream[T], error) {
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s := &stream[T]{name: name, table: t, file: f, builder: array.NewRecordBuilder(memory.DefaultAllocator, t.schema)}
	if s.schema, err = schemaBytes(t); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, s.write(w, s.schema)
}

// endMark ends an Arrow stream: the continuation and a length of zero.
var endMark = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// schemaBytes is how a stream of the table begins.
func schemaBytes[T any](t *table[T]) ([]byte, error) {
	var b bytes.Buffer
	if err := ipc.NewWriter(&b, ipc.WithSchema(t.schema)).Close(); err != nil {
		return nil, fmt.Errorf("encode schema: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), endMark), nil
}

func (s *stream[T]) append(v *T) {
	for i, c := range s.table.columns {
		c.put(s.builder.Field(i), v)
	}
	if s.table.time != nil {
		t := s.table.time(v)
		if s.rows == 0 {
			s.first, s.last = t, t
		}
		s.first, s.last = min(s.first, t), max(s.last, t)
	}
	s.rows++
}

// write appends to the file with one call, so that a batch is there or not.
func (s *stream[T]) write(w *Writer, b []byte) error {
	n, err := s.file.Write(b)
	w.size += int64(n)
	s.offset += int64(n)
	return err
}

// flush writes the rows gathered so far as one batch and indexes it.
func (s *stream[T]) flush(w *Writer) error {
	if s.rows == 0 {
		return nil
	}
	record := s.builder.NewRecordBatch()
	defer record.Release()
	s.buffer.Reset()
	out := ipc.NewWriter(&s.buffer, ipc.WithSchema(s.table.schema), ipc.WithLZ4())
	if err := out.Write(record); err != nil {
		return fmt.Errorf("encode %s: %w", s.name, err)
	}
	body := s.buffer.Bytes()[len(s.schema):]
	b := batch{
		Stream: s.name, Offset: s.offset, Length: int64(len(body)), Rows: int64(s.rows),
		First: s.first, Last: s.last, Lost: s.lost,
	}
	if err := s.write(w, body); err != nil {
		return err
	}
	s.rows, s.lost = 0, 0
	if s.name != w.index.name {
		w.index.append(&b)
	}
	return nil
}

// end closes the file, after the end mark if all went well.
func (s *stream[T]) end(w *Writer, well bool) error {
	var err error
	if well {
		err = s.write(w, endMark)
	}
	s.builder.Release()
	return errors.Join(err, s.file.Close())
}
