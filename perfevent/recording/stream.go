// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// endMark ends an Arrow stream: the continuation and a length of zero.
var endMark = []byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}

// castagnoli is the polynomial of the batches' checksums: processors have an
// instruction for it.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoder makes the bytes of a stream. It keeps its memory between batches.
type encoder[T any] struct {
	table   *table[T]
	scratch []scratch
	arrays  []arrow.Array
	ipc     *ipc.Writer
	out     bytes.Buffer
}

func newEncoder[T any](t *table[T]) *encoder[T] {
	e := &encoder[T]{table: t, scratch: make([]scratch, len(t.columns)), arrays: make([]arrow.Array, len(t.columns))}
	e.ipc = ipc.NewWriter(&e.out, ipc.WithSchema(t.schema), ipc.WithLZ4())
	return e
}

// write appends a batch to out; before the first one comes the schema.
func (e *encoder[T]) write(rows []T) error {
	for i, c := range e.table.columns {
		d := c.encode(rows, &e.scratch[i])
		e.arrays[i] = array.MakeFromData(d)
		d.Release()
	}
	record := array.NewRecordBatch(e.table.schema, e.arrays, int64(len(rows)))
	defer record.Release()
	for _, a := range e.arrays {
		a.Release() // the record keeps it
	}
	return e.ipc.Write(record)
}

// stream writes one file.
type stream[T any] struct {
	name    string
	table   *table[T]
	file    *os.File
	encoder *encoder[T]
	offset  int64
	schema  int // length of the schema that the encoder's first batch begins with
	rows    []T
	lost    int64
	written int64 // rows that are in the file
	last    int64 // latest time in the file
}

func newStream[T any](w *Writer, name string, t *table[T]) (*stream[T], error) {
	form, err := t.form()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(w.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	s := &stream[T]{name: name, table: t, file: f, encoder: newEncoder(t), schema: len(form.prefix)}
	if err := s.write(w, form.prefix); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// write appends to the file with one call. What was written of a piece that
// found no room is taken back, so that the file ends with a whole batch.
func (s *stream[T]) write(w *Writer, b []byte) error {
	n, err := s.file.Write(b)
	if err != nil && n > 0 && s.file.Truncate(s.offset) == nil {
		n = 0
	}
	w.size += int64(n)
	s.offset += int64(n)
	return err
}

// span returns the first and last time of the rows gathered.
func (s *stream[T]) span() (first, last int64) {
	if s.table.time == nil || len(s.rows) == 0 {
		return 0, 0
	}
	first = s.table.time(&s.rows[0])
	last = first
	for i := range s.rows {
		t := s.table.time(&s.rows[i])
		first, last = min(first, t), max(last, t)
	}
	return first, last
}

// flush writes the rows gathered so far as one batch and indexes it.
func (s *stream[T]) flush(w *Writer) error {
	if len(s.rows) == 0 {
		return nil
	}
	s.encoder.out.Reset()
	if err := s.encoder.write(s.rows); err != nil {
		return fmt.Errorf("encode %s: %w", s.name, err)
	}
	body := s.encoder.out.Bytes()[s.schema:]
	s.schema = 0
	first, last := s.span()
	b := batch{
		Stream: s.name, Offset: s.offset, Length: int64(len(body)), Rows: int64(len(s.rows)),
		First: first, Last: last, Lost: s.lost, CRC: crc32.Checksum(body, castagnoli),
	}
	if err := s.write(w, body); err != nil {
		return err
	}
	s.written += b.Rows
	s.last = max(s.last, last)
	clear(s.rows) // keep no names
	s.rows, s.lost = s.rows[:0], 0
	if s.name != w.index.name {
		w.index.rows = append(w.index.rows, b)
	}
	return nil
}

// end closes the file, after the end mark if all went well.
func (s *stream[T]) end(w *Writer, well bool) error {
	var err error
	if well {
		err = s.write(w, endMark)
	}
	return errors.Join(err, s.file.Close())
}
