// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// This file looks at Arrow's messages (format/Message.fbs, Schema.fbs) before
// Arrow's decoder sees them. The decoder takes memory by counts within a
// message, up to 64 GB for a damaged one, and the runtime cannot recover from
// that. It also lets a reader step over a batch that it cannot decode.

// maxHeader bounds the header of a message; ours have less than 4 KiB.
const maxHeader = 64 << 10

// maxParts bounds the columns and buffers of a batch.
const maxParts = 256

// Values of the union MessageHeader and the union Type.
const (
	headerSchema = 1
	headerBatch  = 3

	typeInt  = 2
	typeUTF8 = 5
	typeBool = 6
	typeList = 12
)

// errMessage says that bytes are no message of ours.
var errMessage = errors.New("not a message of a recording")

// message is what precedes a body: 0xffffffff, the header's length, the header.
type message struct {
	kind   byte // headerSchema, headerBatch; 0 for the end mark
	header flat
	size   int64 // of the 8 bytes and the header
	body   int64 // length of the body
}

// headerLength is the length of the header behind the first 8 bytes of a message;
// 0 in the end mark.
func headerLength(b []byte) (int, error) {
	if len(b) < 8 || binary.LittleEndian.Uint32(b) != 0xffffffff {
		return 0, errMessage
	}
	n := binary.LittleEndian.Uint32(b[4:])
	// Messages are padded to 8 bytes, so that each begins at a multiple of 8.
	if n > maxHeader || n%8 != 0 {
		return 0, errMessage
	}
	return int(n), nil
}

// parseMessage reads the beginning of a message. It needs the whole header.
func parseMessage(b []byte) (m message, err error) {
	n, err := headerLength(b)
	if err != nil || n > len(b)-8 {
		return m, errMessage
	}
	if n == 0 {
		return message{size: 8}, nil
	}
	root, ok := flatRoot(b[8 : 8+n])
	if !ok {
		return m, errMessage
	}
	kind, ok := root.scalar(1, 1)
	if !ok || kind == 0 {
		return m, errMessage
	}
	m = message{kind: byte(kind), size: 8 + int64(n)}
	if m.header, ok = root.table(2); !ok {
		return m, errMessage
	}
	body, _ := root.scalar(3, 8)
	if m.body = int64(body); m.body < 0 || m.body%8 != 0 {
		return m, errMessage
	}
	// Arrow's decoder makes room for as many pairs as are claimed here.
	if _, n, ok := root.vector(4, 4); ok && n > 0 {
		return m, errMessage
	}
	return m, nil
}

// batchShape is what the header of a record batch says: rows, and how many
// columns and buffers.
type batchShape struct {
	rows           int64
	nodes, buffers int
}

// batch returns the shape of a record batch: of at most maxBatchRows rows without
// nulls, whose buffers lie within its body, uncompressed or LZ4.
func (m *message) batch() (s batchShape, err error) {
	if m.kind != headerBatch {
		return s, errMessage
	}
	rows, _ := m.header.scalar(0, 8)
	s.rows = int64(rows)
	nodes, n, ok := m.header.vector(1, 16)
	buffers, k, also := m.header.vector(2, 16)
	if !ok || !also || n > maxParts || k > maxParts || s.rows < 0 || s.rows > maxBatchRows {
		return s, errMessage
	}
	s.nodes, s.buffers = n, k
	for i := range n { // struct FieldNode: length, null count
		length, _ := m.header.number(nodes+16*i, 8)
		nulls, _ := m.header.number(nodes+16*i+8, 8)
		if nulls != 0 || length > math.MaxInt32 {
			return s, errMessage
		}
	}
	for i := range k { // struct Buffer: offset, length
		offset, _ := m.header.number(buffers+16*i, 8)
		length, _ := m.header.number(buffers+16*i+8, 8)
		if offset%8 != 0 || offset > uint64(m.body) || length > uint64(m.body)-offset {
			return s, errMessage
		}
	}
	if c, ok := m.header.table(3); ok {
		if codec, _ := c.scalar(0, 1); codec != 0 {
			return s, errors.New("compressed with another codec than LZ4")
		}
	}
	return s, nil
}

// columns describes a schema's columns: "time_ns int64, python list<uint32>".
// Words and other remarks in the schema are left out, so that they may grow.
func (m *message) columns() (string, error) {
	if m.kind != headerSchema {
		return "", errMessage
	}
	if order, _ := m.header.scalar(0, 2); order != 0 {
		return "", errors.New("big-endian")
	}
	fields, ok := m.header.tables(1, 64)
	if !ok {
		return "", errMessage
	}
	words := make([]string, len(fields))
	for i, f := range fields {
		kind, ok := f.columnType(true)
		if !ok {
			return "", errMessage
		}
		name, _ := f.text(0)
		words[i] = name + " " + kind
	}
	return strings.Join(words, ", "), nil
}

// columnType is the type of a schema's field, in words.
func (f flat) columnType(outer bool) (string, bool) {
	if _, ok := f.table(4); ok {
		return "", false // a dictionary
	}
	kind, _ := f.scalar(2, 1)
	of, ok := f.table(3)
	if !ok {
		return "", false
	}
	switch kind {
	case typeUTF8:
		return "utf8", true
	case typeBool:
		return "bool", true
	case typeInt:
		bits, _ := of.scalar(0, 4)
		if signed, _ := of.scalar(1, 1); signed != 0 {
			return fmt.Sprintf("int%d", bits), true
		}
		return fmt.Sprintf("uint%d", bits), true
	case typeList:
		items, ok := f.tables(5, 1)
		if !ok || len(items) != 1 || !outer {
			return "", false
		}
		item, ok := items[0].columnType(false)
		return "list<" + item + ">", ok
	}
	return "", false
}

// flat is a table within a flatbuffer. A reader of one checks each offset: the
// bytes are anyone's.
type flat struct {
	b  []byte
	at int
}

func flatRoot(b []byte) (flat, bool) { return flat{b: b}.follow(0) }

// number reads a little-endian number of 1, 2, 4 or 8 bytes.
func (f flat) number(at, size int) (uint64, bool) {
	if at < 0 || at > len(f.b)-size {
		return 0, false
	}
	var wide [8]byte
	copy(wide[:], f.b[at:at+size])
	return binary.LittleEndian.Uint64(wide[:]), true
}

// follow returns the table that the offset at a position leads to.
func (f flat) follow(at int) (flat, bool) {
	offset, ok := f.number(at, 4)
	to := at + int(offset)
	if !ok || to > len(f.b)-4 {
		return flat{}, false
	}
	return flat{f.b, to}, true
}

// slot returns where a field of the table lies; not ok if it is absent.
func (f flat) slot(n int) (int, bool) {
	back, ok := f.number(f.at, 4)
	if !ok {
		return 0, false
	}
	vtable := f.at - int(int32(back))
	size, ok := f.number(vtable, 2)
	if !ok || 4+2*n+2 > int(size) {
		return 0, false
	}
	offset, ok := f.number(vtable+4+2*n, 2)
	return f.at + int(offset), ok && offset != 0
}

// scalar returns a number of the table; 0 and not ok if it is absent, which
// flatbuffers does for zeros.
func (f flat) scalar(slot, size int) (uint64, bool) {
	at, ok := f.slot(slot)
	if !ok {
		return 0, false
	}
	return f.number(at, size)
}

func (f flat) table(slot int) (flat, bool) {
	at, ok := f.slot(slot)
	if !ok {
		return flat{}, false
	}
	return f.follow(at)
}

// vector returns where the elements of a vector begin and how many there are.
func (f flat) vector(slot, size int) (at, n int, ok bool) {
	v, ok := f.table(slot) // the offset leads to the count
	if !ok {
		return 0, 0, false
	}
	count, ok := v.number(v.at, 4)
	if !ok || int64(count)*int64(size) > int64(len(f.b)-v.at-4) {
		return 0, 0, false
	}
	return v.at + 4, int(count), true
}

// tables returns the tables of a vector, of which there are at most a number.
func (f flat) tables(slot, most int) ([]flat, bool) {
	at, n, ok := f.vector(slot, 4)
	if !ok || n > most {
		return nil, false
	}
	out := make([]flat, n)
	for i := range out {
		if out[i], ok = f.follow(at + 4*i); !ok {
			return nil, false
		}
	}
	return out, true
}

func (f flat) text(slot int) (string, bool) {
	at, n, ok := f.vector(slot, 1)
	if !ok {
		return "", false
	}
	return string(f.b[at : at+n]), true
}
