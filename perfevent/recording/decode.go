// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// maxBatchRows bounds what one batch may claim to hold; ours hold at most some
// ten thousand.
const maxBatchRows = 1 << 20

// streamFile is an open stream with its schema.
type streamFile[T any] struct {
	name   string
	table  *table[T]
	file   io.ReaderAt
	size   int64
	prefix []byte // the bytes of the schema message
}

// countingReader counts what was read of it.
type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
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

// openStream checks that a stream begins with the schema of its table. The bytes
// must be those this version writes: Arrow's decoder takes memory by counts
// within a schema, so one that anybody wrote is not given to it.
func openStream[T any](name string, t *table[T], file io.ReaderAt, size int64) (*streamFile[T], error) {
	s := &streamFile[T]{name: name, table: t, file: file, size: size}
	var err error
	if s.prefix, err = schemaBytes(t); err != nil {
		return nil, err
	}
	got := make([]byte, len(s.prefix))
	if n, err := file.ReadAt(got, 0); n < len(got) {
		return nil, fmt.Errorf("%s: cut within its schema: %w", name, err)
	}
	if !bytes.Equal(got, s.prefix) {
		return nil, fmt.Errorf("%s: damaged, or of another version: its schema is not the expected one", name)
	}
	return s, nil
}

// read decodes one batch, in time order where the table has times.
func (s *streamFile[T]) read(b batch) (rows []T, err error) {
	if b.Offset < int64(len(s.prefix)) || b.Length <= 0 || b.Offset > s.size || b.Length > s.size-b.Offset {
		return nil, fmt.Errorf("%s: batch at %d lies outside the file", s.name, b.Offset)
	}
	section := io.NewSectionReader(s.file, b.Offset, b.Length)
	err = guarded(s.name, func() error {
		r, err := ipc.NewReader(io.MultiReader(bytes.NewReader(s.prefix), section),
			ipc.WithAllocator(limitedMemory(memoryFor(b.Length))), ipc.WithBodySizeLimit(b.Length),
			ipc.WithMetadataSizeLimit(b.Length))
		if err != nil {
			return err
		}
		defer r.Release()
		if rows, err = s.rows(r); err != nil {
			return err
		}
		return nil
	})
	if err == nil && s.table.time != nil {
		s.sort(rows)
	}
	return rows, err
}

func (s *streamFile[T]) sort(rows []T) {
	slices.SortStableFunc(rows, func(a, b T) int {
		return compare(s.table.time(&a), s.table.time(&b))
	})
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

// rows takes the values out of the record batches that r holds.
func (s *streamFile[T]) rows(r *ipc.Reader) ([]T, error) {
	var out []T
	for r.Next() {
		rec := r.RecordBatch()
		n := rec.NumRows()
		if n < 0 || n > maxBatchRows {
			return nil, fmt.Errorf("batch of %d rows", n)
		}
		from := len(out)
		out = append(out, make([]T, n)...)
		for i, c := range s.table.columns {
			take := c.reader(rec.Column(i))
			if take == nil || int64(rec.Column(i).Len()) < n {
				return nil, fmt.Errorf("column %s is not as declared", c.field.Name)
			}
			for j := range n {
				take(int(j), &out[from+int(j)])
			}
		}
	}
	return out, r.Err()
}

// scan decodes batches one after the other from an offset on, for a stream
// without a usable index. It returns those that are whole, and what ended it.
func (s *streamFile[T]) scan(from int64) (found []batch, rest int64, err error) {
	for at := from; at < s.size; {
		b, next, err := s.scanOne(at)
		if errors.Is(err, io.EOF) {
			return found, 0, nil // the end mark
		}
		if err != nil {
			return found, s.size - at, err
		}
		found = append(found, b)
		at = next
	}
	return found, 0, nil
}

func (s *streamFile[T]) scanOne(at int64) (b batch, next int64, err error) {
	b = batch{Stream: s.name, Offset: at}
	err = guarded(s.name, func() error {
		in := &countingReader{r: io.NewSectionReader(s.file, at, s.size-at)}
		r, err := ipc.NewReader(io.MultiReader(bytes.NewReader(s.prefix), in),
			ipc.WithAllocator(limitedMemory(memoryFor(s.size-at))), ipc.WithBodySizeLimit(s.size-at),
			ipc.WithMetadataSizeLimit(s.size-at))
		if err != nil {
			return err
		}
		defer r.Release()
		if !r.Next() {
			if r.Err() == nil {
				return io.EOF
			}
			return r.Err()
		}
		rec := r.RecordBatch()
		b.Length, b.Rows = in.n, rec.NumRows()
		return nil
	})
	if err != nil {
		return b, 0, err
	}
	rows, err := s.read(b)
	if err != nil {
		return b, 0, err
	}
	if s.table.time != nil && len(rows) > 0 {
		b.First, b.Last = s.table.time(&rows[0]), s.table.time(&rows[len(rows)-1])
	}
	return b, at + b.Length, nil
}

// memoryFor is how much memory the batch of a given length may take: LZ4 packs
// at most about 255 to one, and a column of one value nearly reaches that.
func memoryFor(length int64) int64 {
	const least, most = 8 << 20, 1 << 30
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
