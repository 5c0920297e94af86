// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// maxBatchBytes bounds a batch, packed.
const maxBatchBytes = 512 << 20

// errMissing says that a stream has no file, or none that can be read.
var errMissing = errors.New("stream cannot be read")

// streamFile is an open stream that begins with the schema of its table.
type streamFile[T any] struct {
	name  string
	table *table[T]
	form  form
	file  io.ReaderAt // nil if there is none
	size  int64
	start int64 // where the batches begin
}

// guarded runs f, and makes an error of a panic: Arrow's decoder trusts the
// lengths within a message, and a recording is hostile input.
func guarded(name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: damaged: %v", name, p)
		}
	}()
	if err := f(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// openStream checks that a stream begins with the columns of its table. The words
// in a schema may be of an older or newer version: they are not compared. Arrow's
// decoder is never given the file's schema, but our own.
func openStream[T any](name string, t *table[T], file io.ReaderAt, size int64) (*streamFile[T], error) {
	s := &streamFile[T]{name: name, table: t, file: file, size: size}
	var err error
	if s.form, err = t.form(); err != nil {
		return nil, err
	}
	m, err := s.header(0)
	if err != nil {
		return nil, fmt.Errorf("%s: schema: %w", name, err)
	}
	got, err := m.columns()
	if err != nil {
		return nil, fmt.Errorf("%s: schema: %w", name, err)
	}
	if got != s.form.columns || m.body != 0 {
		return nil, fmt.Errorf("%s: damaged, or of another version: its columns are not the expected ones", name)
	}
	s.start = m.size
	return s, nil
}

// header reads the beginning of the message at an offset.
func (s *streamFile[T]) header(at int64) (m message, err error) {
	var head [8]byte
	if err := s.readAt(head[:], at); err != nil {
		return m, err
	}
	n, err := headerLength(head[:])
	if err != nil {
		return m, err
	}
	b := make([]byte, 8+n)
	if err := s.readAt(b, at); err != nil {
		return m, err
	}
	return parseMessage(b)
}

// readAt fills b, or says that the stream is cut.
func (s *streamFile[T]) readAt(b []byte, at int64) error {
	if at < 0 || int64(len(b)) > s.size-at {
		return io.ErrUnexpectedEOF
	}
	if n, err := s.file.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("read at %d: %w", at, err)
	}
	return nil
}

// read decodes one batch, in time order where the table has times. What comes
// out is what the index says, or an error.
func (s *streamFile[T]) read(b batch) (rows []T, err error) {
	err = guarded(s.name, func() error {
		if b.gone || s.file == nil {
			return errMissing
		}
		if b.Offset < s.start || b.Length < 8 || b.Length > maxBatchBytes || b.Length > s.size-b.Offset {
			return fmt.Errorf("batch at %d lies outside the file", b.Offset)
		}
		raw := make([]byte, b.Length)
		if err := s.readAt(raw, b.Offset); err != nil {
			return err
		}
		if !b.unchecked && crc32.Checksum(raw, castagnoli) != b.CRC {
			return fmt.Errorf("batch at %d of %d rows is damaged", b.Offset, b.Rows)
		}
		if rows, err = s.decode(raw); err != nil {
			return fmt.Errorf("batch at %d of %d rows: %w", b.Offset, b.Rows, err)
		}
		first, last := s.span(rows)
		if !b.unchecked && (int64(len(rows)) != b.Rows || first != b.First || last != b.Last) {
			return fmt.Errorf("batch at %d has %d rows of %d to %d ns, by the index %d rows of %d to %d ns",
				b.Offset, len(rows), first, last, b.Rows, b.First, b.Last)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return rows, nil
}

// span returns the times of the first and last row, which are in order.
func (s *streamFile[T]) span(rows []T) (first, last int64) {
	if s.table.time == nil || len(rows) == 0 {
		return 0, 0
	}
	return s.table.time(&rows[0]), s.table.time(&rows[len(rows)-1])
}

// decode makes rows of the bytes of a batch.
func (s *streamFile[T]) decode(raw []byte) ([]T, error) {
	m, err := parseMessage(raw)
	if err != nil {
		return nil, err
	}
	shape, err := m.batch()
	if err != nil {
		return nil, err
	}
	if m.size+m.body != int64(len(raw)) || shape.nodes != s.form.shape.nodes || shape.buffers != s.form.shape.buffers {
		return nil, errMessage
	}
	if shape.rows == 0 {
		return nil, nil
	}
	messages := &messageList{}
	defer messages.Release()
	messages.add(s.form.prefix[8:], nil)
	messages.add(raw[8:m.size], raw[m.size:])
	r, err := ipc.NewReaderFromMessageReader(messages, ipc.WithAllocator(limitedMemory(memoryFor(int64(len(raw))))))
	if err != nil {
		return nil, err
	}
	defer r.Release()
	if !r.Next() {
		return nil, errors.Join(errMessage, r.Err())
	}
	record := r.RecordBatch()
	// The columns are there now, so this many rows are.
	for i := range s.table.columns {
		if int64(record.Column(i).Len()) != shape.rows {
			return nil, errColumn
		}
	}
	rows := make([]T, shape.rows)
	for i, c := range s.table.columns {
		if err := c.decode(record.Column(i), rows); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.field.Name, err)
		}
	}
	if s.table.time != nil {
		slices.SortStableFunc(rows, func(a, b T) int { return compare(s.table.time(&a), s.table.time(&b)) })
	}
	return rows, nil
}

func compare(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// messageList gives messages that were checked to Arrow's decoder, which would
// take memory by their lengths if it read them itself.
type messageList struct {
	all []*ipc.Message
	at  int
}

func (l *messageList) add(header, body []byte) {
	l.all = append(l.all, ipc.NewMessage(memory.NewBufferBytes(header), memory.NewBufferBytes(body)))
}

// Message returns the next message.
func (l *messageList) Message() (*ipc.Message, error) {
	if l.at >= len(l.all) {
		return nil, io.EOF
	}
	l.at++
	return l.all[l.at-1], nil
}

// Retain does nothing: the memory is the garbage collector's.
func (l *messageList) Retain() {}

// Release does nothing, like Retain.
func (l *messageList) Release() {}

// memoryFor is how much memory the batch of a given length may take: LZ4 packs
// at most about 255 to one, and a column of one value nearly reaches that.
func memoryFor(length int64) int64 {
	const least, most = 1 << 20, 1 << 30
	return min(max(length*256, least), most)
}

// boundedAllocator refuses to hand out more than a limit.
type boundedAllocator struct {
	memory.Allocator
	left int64
}

func limitedMemory(limit int64) memory.Allocator {
	return &boundedAllocator{Allocator: memory.DefaultAllocator, left: limit}
}

// Allocate panics beyond the limit, which Arrow or guarded turns into an error:
// the interface has no other way to refuse.
func (a *boundedAllocator) Allocate(size int) []byte {
	a.take(int64(size))
	return a.Allocator.Allocate(size)
}

// Reallocate is bounded like Allocate.
func (a *boundedAllocator) Reallocate(size int, b []byte) []byte {
	a.take(int64(size - len(b)))
	return a.Allocator.Reallocate(size, b)
}

func (a *boundedAllocator) take(n int64) {
	if n < 0 {
		return
	}
	if n > a.left {
		panic(fmt.Sprintf("asks for %d bytes of memory", n)) // recovered in guarded
	}
	a.left -= n
}

// forever is the end of a time range that has none.
const forever = math.MaxInt64
