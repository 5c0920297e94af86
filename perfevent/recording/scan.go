// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/binary"
	"slices"
)

// scan finds batches by their framing from an offset on, for a stream whose index
// ends there. A batch that cannot be decoded is stepped over and stays in the
// list, gone. ended tells whether the stream's end mark was met.
func (s *streamFile[T]) scan(from int64, warn *warningList) (found []batch, ended bool) {
	last := int64(0) // time of what was found so far
	for at := from; at < s.size; {
		m, err := s.header(at)
		if err == nil && m.kind == 0 && at == s.size-m.size {
			return found, true
		}
		if err != nil || !s.plausible(&m, at) {
			next := s.resync(at + 1)
			warn.add("%s: %d bytes at %d are cut or damaged", s.name, next-at, at)
			found = append(found, batch{
				Stream: s.name, Offset: at, Length: next - at,
				Rows: 1, First: last, Last: last, unchecked: true, gone: true,
			})
			at = next
			continue
		}
		shape, _ := m.batch()
		b := batch{Stream: s.name, Offset: at, Length: m.size + m.body, Rows: shape.rows, First: last, Last: last, unchecked: true}
		rows, err := s.read(b)
		switch {
		case err != nil:
			warn.add("%v", err)
			b.gone = true
		case len(rows) > 0:
			b.First, b.Last = s.span(rows)
			last = max(last, b.Last)
		}
		found = append(found, b)
		at += b.Length
	}
	return found, false
}

// plausible tells whether a message is a batch of this stream and lies within it.
func (s *streamFile[T]) plausible(m *message, at int64) bool {
	if m.kind != headerBatch || m.body > s.size-at-m.size {
		return false
	}
	shape, err := m.batch()
	return err == nil && shape.nodes == s.form.shape.nodes && shape.buffers == s.form.shape.buffers
}

// resync looks for the next message; messages begin at multiples of 8. It
// returns the stream's size if there is none.
func (s *streamFile[T]) resync(from int64) int64 {
	const step, overlap = 256 << 10, maxHeader + 8 // each header lies within one window
	buffer := make([]byte, min(step+overlap, s.size))
	for at := (from + 7) &^ 7; at < s.size; at += step {
		part := buffer[:min(int64(len(buffer)), s.size-at)]
		if err := s.readAt(part, at); err != nil {
			return s.size
		}
		for i := 0; i < step && i+8 <= len(part); i += 8 {
			if binary.LittleEndian.Uint32(part[i:]) != 0xffffffff {
				continue
			}
			here := at + int64(i)
			m, err := parseMessage(part[i:])
			if err == nil && (m.kind == 0 && here == s.size-m.size || s.plausible(&m, here)) {
				return here
			}
		}
	}
	return s.size
}

// complete takes the indexed batches that can be, and looks for more behind them.
func (s *indexed[T]) complete(known []batch, meta *Meta, warn *warningList) {
	end := s.start
	for _, b := range known {
		if s.file == nil {
			b.gone = true // all of it is missing, and was said to be
		} else if b.Offset != end {
			warn.add("%s: the index is damaged at byte %d", s.name, end)
			break
		}
		if b.Length <= 0 || b.Length > maxBatchBytes || b.Rows < 0 || b.Rows > maxBatchRows || b.Last < b.First {
			warn.add("%s: the index is damaged at byte %d", s.name, end)
			break
		}
		if s.file != nil && b.Length > s.size-end {
			warn.add("%s: cut at byte %d, before %d rows that the index names", s.name, end, b.Rows)
			b.gone = true
		}
		s.batches = append(s.batches, b)
		end += b.Length
	}
	if s.file != nil && end <= s.size {
		more, ended := s.scan(end, warn)
		if meta.Complete && !ended {
			warn.add("%s: cut, it has no end", s.name)
		}
		s.batches = append(s.batches, more...)
		s.placeGone(meta)
	}
	if s.table.time != nil {
		slices.SortStableFunc(s.batches, func(a, b batch) int { return compare(a.First, b.First) })
	}
}

// placeGone gives damaged batches whose times are not known a place: what is lost
// was lost at or before what comes next.
func (s *indexed[T]) placeGone(meta *Meta) {
	next := max(meta.EndNs, meta.BeginNs)
	for _, b := range s.batches {
		next = max(next, b.Last)
	}
	for i := len(s.batches) - 1; i >= 0; i-- {
		b := &s.batches[i]
		if !b.gone {
			next = b.First
		} else if b.unchecked {
			b.First, b.Last = next, next
		}
	}
}
