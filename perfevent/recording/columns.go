// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// column ties one column to a field of T. Both ways go through a batch column
// by column: that costs a fifth of going row by row through Arrow's builders.
type column[T any] struct {
	field arrow.Field
	// encode makes Arrow's form of the column, in memory that s lends until the
	// next batch.
	encode func(rows []T, s *scratch) *array.Data
	// decode sets the field in each row. The array is not trusted.
	decode func(a arrow.Array, rows []T) error
}

// errColumn says that an array does not hold what its batch declares.
var errColumn = errors.New("column is not as declared")

// scratch is memory for the buffers of one column: of 8 bytes, to be aligned
// for any number.
type scratch [3][]uint64

// room lends memory for n values as a column's buffer i. Its content is old.
func room[V arrow.FixedWidthType](s *scratch, i, n int) []V {
	var v [1]V
	words := (n*len(arrow.GetBytes(v[:])) + 7) / 8
	if cap(s[i]) < words {
		s[i] = make([]uint64, words+words/4+8)
	}
	return arrow.GetData[V](arrow.GetBytes(s[i][:cap(s[i])]))[:n]
}

// data wraps buffers as Arrow's data, without a copy. There is no bitmap of nulls, as nothing is
// null.
func data(kind arrow.DataType, rows int, children []arrow.ArrayData, buffers ...[]byte) *array.Data {
	list := make([]*memory.Buffer, 1, 1+len(buffers))
	for _, b := range buffers {
		list = append(list, memory.NewBufferBytes(b))
	}
	return array.NewData(kind, rows, list, children, 0, 0)
}

// integer is what the number columns hold.
type integer interface {
	~int64 | ~int32 | ~uint64 | ~uint32 | ~uint16 | ~uint8
}

// number makes a column of numbers of type V from a field of type F.
func number[T any, F integer, V interface {
	integer
	arrow.FixedWidthType
}](name string, kind arrow.DataType, get func(*T) *F) column[T] {
	return column[T]{
		field: arrow.Field{Name: name, Type: kind},
		encode: func(rows []T, s *scratch) *array.Data {
			values := room[V](s, 0, len(rows))
			for i := range rows {
				values[i] = V(*get(&rows[i]))
			}
			return data(kind, len(rows), nil, arrow.GetBytes(values))
		},
		decode: func(a arrow.Array, rows []T) error {
			typed, ok := a.(interface{ Values() []V })
			if !ok || len(typed.Values()) != len(rows) {
				return errColumn
			}
			for i, v := range typed.Values() {
				*get(&rows[i]) = F(v)
			}
			return nil
		},
	}
}

func i64[T any](name string, get func(*T) *int64) column[T] {
	return number[T, int64, int64](name, arrow.PrimitiveTypes.Int64, get)
}

func i32[T any](name string, get func(*T) *int32) column[T] {
	return number[T, int32, int32](name, arrow.PrimitiveTypes.Int32, get)
}

func u32[T any](name string, get func(*T) *uint32) column[T] {
	return number[T, uint32, uint32](name, arrow.PrimitiveTypes.Uint32, get)
}

func u64[T any](name string, get func(*T) *uint64) column[T] {
	return number[T, uint64, uint64](name, arrow.PrimitiveTypes.Uint64, get)
}

// u16 makes a column of a larger enumeration.
func u16[T any, E ~uint16](name string, get func(*T) *E) column[T] {
	return number[T, E, uint16](name, arrow.PrimitiveTypes.Uint16, get)
}

// enum makes a column of a small enumeration.
func enum[T any, E ~uint8](name string, get func(*T) *E) column[T] {
	return number[T, E, uint8](name, arrow.PrimitiveTypes.Uint8, get)
}

func boolean[T any](name string, get func(*T) *bool) column[T] {
	return column[T]{
		field: arrow.Field{Name: name, Type: arrow.FixedWidthTypes.Boolean},
		encode: func(rows []T, s *scratch) *array.Data {
			bits := room[uint8](s, 0, (len(rows)+7)/8)
			clear(bits)
			for i := range rows {
				if *get(&rows[i]) {
					bitutil.SetBit(bits, i)
				}
			}
			return data(arrow.FixedWidthTypes.Boolean, len(rows), nil, bits)
		},
		decode: func(a arrow.Array, rows []T) error {
			typed, ok := a.(*array.Boolean)
			if !ok || typed.Len() != len(rows) {
				return errColumn
			}
			for i := range rows {
				*get(&rows[i]) = typed.Value(i)
			}
			return nil
		},
	}
}

// text makes a column of a string. Names of tasks can be any bytes, Arrow's are
// UTF-8: what is not is replaced by U+FFFD.
func text[T any](name string, get func(*T) *string) column[T] {
	return column[T]{
		field: arrow.Field{Name: name, Type: arrow.BinaryTypes.String},
		encode: func(rows []T, s *scratch) *array.Data {
			offsets := room[int32](s, 0, len(rows)+1)
			offsets[0] = 0
			total := 0
			for i := range rows {
				total += len(*get(&rows[i]))
			}
			bytes := room[uint8](s, 1, total)[:0]
			for i := range rows {
				v := *get(&rows[i])
				if !utf8.ValidString(v) {
					v = strings.ToValidUTF8(v, "\uFFFD")
				}
				bytes = append(bytes, v...)
				offsets[i+1] = int32(len(bytes))
			}
			return data(arrow.BinaryTypes.String, len(rows), nil, arrow.GetBytes(offsets), bytes)
		},
		decode: func(a arrow.Array, rows []T) error {
			typed, ok := a.(*array.String)
			if !ok || typed.Len() != len(rows) {
				return errColumn
			}
			before := 0
			for i := range rows {
				// Values that overlap would take more memory than they have bytes.
				if typed.ValueOffset(i) < before {
					return errColumn
				}
				before = typed.ValueOffset(i)
				*get(&rows[i]) = strings.Clone(typed.Value(i)) // outlives the batch
			}
			return nil
		},
	}
}

// list makes a column of a list of numbers.
func list[T any](name string, get func(*T) *[]uint32) column[T] {
	kind := arrow.ListOfNonNullable(arrow.PrimitiveTypes.Uint32)
	return column[T]{
		field: arrow.Field{Name: name, Type: kind},
		encode: func(rows []T, s *scratch) *array.Data {
			offsets, total := listOffsets(rows, s, get)
			values := room[uint32](s, 1, total)
			for i := range rows {
				copy(values[offsets[i]:], *get(&rows[i]))
			}
			child := data(arrow.PrimitiveTypes.Uint32, total, nil, arrow.GetBytes(values))
			return data(kind, len(rows), []arrow.ArrayData{child}, arrow.GetBytes(offsets))
		},
		decode: func(a arrow.Array, rows []T) error {
			offsets, child, err := listParts(a, len(rows))
			if err != nil {
				return err
			}
			typed, ok := child.(*array.Uint32)
			if !ok || len(typed.Values()) < int(offsets[len(rows)]) {
				return errColumn
			}
			all := append([]uint32(nil), typed.Values()...)
			for i := range rows {
				from, to := offsets[i], offsets[i+1]
				*get(&rows[i]) = sub(all, int(from), int(to))
			}
			return nil
		},
	}
}

// flags makes a column of a list of booleans.
func flags[T any](name string, get func(*T) *[]bool) column[T] {
	kind := arrow.ListOfNonNullable(arrow.FixedWidthTypes.Boolean)
	return column[T]{
		field: arrow.Field{Name: name, Type: kind},
		encode: func(rows []T, s *scratch) *array.Data {
			offsets, total := listOffsets(rows, s, get)
			bits := room[uint8](s, 1, (total+7)/8)
			clear(bits)
			for i := range rows {
				for j, v := range *get(&rows[i]) {
					if v {
						bitutil.SetBit(bits, int(offsets[i])+j)
					}
				}
			}
			child := data(arrow.FixedWidthTypes.Boolean, total, nil, bits)
			return data(kind, len(rows), []arrow.ArrayData{child}, arrow.GetBytes(offsets))
		},
		decode: func(a arrow.Array, rows []T) error {
			offsets, child, err := listParts(a, len(rows))
			if err != nil {
				return err
			}
			typed, ok := child.(*array.Boolean)
			if !ok || typed.Len() < int(offsets[len(rows)]) {
				return errColumn
			}
			all := make([]bool, typed.Len())
			for i := range all {
				all[i] = typed.Value(i)
			}
			for i := range rows {
				*get(&rows[i]) = sub(all, int(offsets[i]), int(offsets[i+1]))
			}
			return nil
		},
	}
}

// listOffsets lays lists out one after the other.
func listOffsets[T, V any](rows []T, s *scratch, get func(*T) *[]V) (offsets []int32, total int) {
	offsets = room[int32](s, 0, len(rows)+1)
	offsets[0] = 0
	for i := range rows {
		total += len(*get(&rows[i]))
		offsets[i+1] = int32(total)
	}
	return offsets, total
}

// listParts returns a list's offsets, which ascend, and what they point into.
func listParts(a arrow.Array, rows int) (offsets []int32, child arrow.Array, err error) {
	typed, ok := a.(*array.List)
	if !ok || typed.Len() != rows || len(typed.Offsets()) < rows+1 {
		return nil, nil, errColumn
	}
	offsets = typed.Offsets()[:rows+1]
	for i, to := range offsets {
		if to < 0 || i > 0 && to < offsets[i-1] {
			return nil, nil, errColumn // overlapping lists could be of any length together
		}
	}
	return offsets, typed.ListValues(), nil
}

// sub is a part of a list, or nil: an empty one stays as it was written most often.
func sub[V any](all []V, from, to int) []V {
	if from == to {
		return nil
	}
	return all[from:to:to]
}
