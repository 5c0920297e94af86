// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"pathprof/join/sched"
)

// column ties one column to a field of T: how it is appended to a batch, and
// how it is taken from one.
type column[T any] struct {
	field arrow.Field
	put   func(array.Builder, *T)
	// reader returns the function that takes row i; nil if the column has not
	// the expected type.
	reader func(arrow.Array) func(i int, v *T)
}

// table is the form of one stream.
type table[T any] struct {
	schema  *arrow.Schema
	columns []column[T]
	// time of a row, ns, and whether the stream has times at all.
	time func(*T) int64
}

func newTable[T any](time func(*T) int64, words map[string][]string, columns ...column[T]) *table[T] {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = c.field
		if w := words[c.field.Name]; w != nil {
			fields[i].Metadata = arrow.NewMetadata([]string{"words"}, []string{strings.Join(w, ",")})
		}
	}
	meta := arrow.NewMetadata([]string{"pathprof"}, []string{fmt.Sprint(FormatVersion)})
	return &table[T]{schema: arrow.NewSchema(fields, &meta), columns: columns, time: time}
}

// number makes a column of a numeric field. B is Arrow's builder, A its array.
func number[T any, V comparable, B interface{ Append(V) }, A interface{ Value(int) V }](
	name string, kind arrow.DataType, get func(*T) V, set func(*T, V),
) column[T] {
	return column[T]{
		field: arrow.Field{Name: name, Type: kind},
		put:   func(b array.Builder, v *T) { any(b).(B).Append(get(v)) },
		reader: func(a arrow.Array) func(int, *T) {
			typed, ok := any(a).(A)
			if !ok {
				return nil
			}
			return func(i int, v *T) { set(v, typed.Value(i)) }
		},
	}
}

func i64[T any](name string, get func(*T) *int64) column[T] {
	return number[T, int64, *array.Int64Builder, *array.Int64](name, arrow.PrimitiveTypes.Int64,
		func(v *T) int64 { return *get(v) }, func(v *T, n int64) { *get(v) = n })
}

func i32[T any](name string, get func(*T) *int32) column[T] {
	return number[T, int32, *array.Int32Builder, *array.Int32](name, arrow.PrimitiveTypes.Int32,
		func(v *T) int32 { return *get(v) }, func(v *T, n int32) { *get(v) = n })
}

func u32[T any](name string, get func(*T) *uint32) column[T] {
	return number[T, uint32, *array.Uint32Builder, *array.Uint32](name, arrow.PrimitiveTypes.Uint32,
		func(v *T) uint32 { return *get(v) }, func(v *T, n uint32) { *get(v) = n })
}

func u64[T any](name string, get func(*T) *uint64) column[T] {
	return number[T, uint64, *array.Uint64Builder, *array.Uint64](name, arrow.PrimitiveTypes.Uint64,
		func(v *T) uint64 { return *get(v) }, func(v *T, n uint64) { *get(v) = n })
}

// enum makes a column of a small enumeration.
func enum[T any, E ~uint8](name string, get func(*T) *E) column[T] {
	return number[T, uint8, *array.Uint8Builder, *array.Uint8](name, arrow.PrimitiveTypes.Uint8,
		func(v *T) uint8 { return uint8(*get(v)) }, func(v *T, n uint8) { *get(v) = E(n) })
}

func boolean[T any](name string, get func(*T) *bool) column[T] {
	return number[T, bool, *array.BooleanBuilder, *array.Boolean](name, arrow.FixedWidthTypes.Boolean,
		func(v *T) bool { return *get(v) }, func(v *T, b bool) { *get(v) = b })
}

// text makes a column of a string. Names of tasks can be any bytes, Arrow's are
// UTF-8.
func text[T any](name string, get func(*T) *string) column[T] {
	return number[T, string, *array.StringBuilder, *array.String](name, arrow.BinaryTypes.String,
		func(v *T) string { return strings.ToValidUTF8(*get(v), "\uFFFD") },
		func(v *T, s string) { *get(v) = strings.Clone(s) }) // the batch's memory is reused
}

// list makes a column of a list of numbers.
func list[T any](name string, get func(*T) *[]uint32) column[T] {
	return column[T]{
		field: arrow.Field{Name: name, Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Uint32)},
		put: func(b array.Builder, v *T) {
			l := b.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.Uint32Builder).AppendValues(*get(v), nil)
		},
		reader: func(a arrow.Array) func(int, *T) {
			l, ok := a.(*array.List)
			if !ok {
				return nil
			}
			values, ok := l.ListValues().(*array.Uint32)
			if !ok {
				return nil
			}
			return func(i int, v *T) {
				from, to := l.ValueOffsets(i)
				*get(v) = append([]uint32(nil), values.Values()[from:to]...)
			}
		},
	}
}

// flags makes a column of a list of booleans.
func flags[T any](name string, get func(*T) *[]bool) column[T] {
	return column[T]{
		field: arrow.Field{Name: name, Type: arrow.ListOfNonNullable(arrow.FixedWidthTypes.Boolean)},
		put: func(b array.Builder, v *T) {
			l := b.(*array.ListBuilder)
			l.Append(true)
			l.ValueBuilder().(*array.BooleanBuilder).AppendValues(*get(v), nil)
		},
		reader: func(a arrow.Array) func(int, *T) {
			l, ok := a.(*array.List)
			if !ok {
				return nil
			}
			values, ok := l.ListValues().(*array.Boolean)
			if !ok {
				return nil
			}
			return func(i int, v *T) {
				from, to := l.ValueOffsets(i)
				out := make([]bool, 0, to-from)
				for j := from; j < to; j++ {
					out = append(out, values.Value(int(j)))
				}
				*get(v) = out
			}
		},
	}
}

var (
	contextWords = []string{"unknown", "task", "hardirq", "softirq", "hrtimer", "timer", "ipi", "nmi", "idle"}
	kindWords    = []string{"invalid", "switch", "waking", "fork", "exec", "exit", "comm", "task", "lost"}
	frameWords   = []string{"invalid", "python", "native", "kernel"}
)

var eventTable = newTable(func(e *sched.Event) int64 { return e.Time },
	map[string][]string{"kind": kindWords, "ctx": contextWords},
	i64("time_ns", func(e *sched.Event) *int64 { return &e.Time }),
	i32("cpu", func(e *sched.Event) *int32 { return &e.CPU }),
	enum("kind", func(e *sched.Event) *sched.Kind { return &e.Kind }),
	enum("ctx", func(e *sched.Event) *sched.Context { return &e.Ctx }),
	i32("vector", func(e *sched.Event) *int32 { return &e.Vector }),
	boolean("preempt", func(e *sched.Event) *bool { return &e.Preempt }),
	i32("tid", func(e *sched.Event) *int32 { return &e.Task.TID }),
	i32("pid", func(e *sched.Event) *int32 { return &e.Task.PID }),
	i32("other_tid", func(e *sched.Event) *int32 { return &e.Other.TID }),
	i32("other_pid", func(e *sched.Event) *int32 { return &e.Other.PID }),
	u32("state", func(e *sched.Event) *uint32 { return &e.State }),
	u32("stack", func(e *sched.Event) *uint32 { return &e.Stack }),
	text("name", func(e *sched.Event) *string { return &e.Name }),
	i64("count", func(e *sched.Event) *int64 { return &e.Count }),
)

var sampleTable = newTable(func(s *Sample) int64 { return s.Time },
	map[string][]string{"ctx": contextWords},
	i64("time_ns", func(s *Sample) *int64 { return &s.Time }),
	i32("cpu", func(s *Sample) *int32 { return &s.CPU }),
	i32("pid", func(s *Sample) *int32 { return &s.PID }),
	i32("tid", func(s *Sample) *int32 { return &s.TID }),
	u32("stack", func(s *Sample) *uint32 { return &s.Stack }),
	i64("value", func(s *Sample) *int64 { return &s.Value }),
	boolean("kernel_mode", func(s *Sample) *bool { return &s.Kernel }),
	enum("ctx", func(s *Sample) *sched.Context { return &s.Ctx }),
)

var stackTable = newTable(nil,
	map[string][]string{"kernel_stop": stopWords, "native_stop": stopWords, "python_stop": stopWords},
	u32("id", func(s *Stack) *uint32 { return &s.ID }),
	list("kernel", func(s *Stack) *[]uint32 { return &s.Kernel }),
	list("native", func(s *Stack) *[]uint32 { return &s.Native }),
	list("python", func(s *Stack) *[]uint32 { return &s.Python }),
	flags("python_entry", func(s *Stack) *[]bool { return &s.Entry }),
	enum("kernel_stop", func(s *Stack) *StopReason { return &s.KernelStop }),
	enum("native_stop", func(s *Stack) *StopReason { return &s.NativeStop }),
	enum("python_stop", func(s *Stack) *StopReason { return &s.PythonStop }),
)

var frameTable = newTable(nil,
	map[string][]string{"kind": frameWords},
	u32("id", func(f *Frame) *uint32 { return &f.ID }),
	enum("kind", func(f *Frame) *FrameKind { return &f.Kind }),
	text("name", func(f *Frame) *string { return &f.Name }),
	text("file", func(f *Frame) *string { return &f.File }),
	i32("line", func(f *Frame) *int32 { return &f.Line }),
	i32("first_line", func(f *Frame) *int32 { return &f.FirstLine }),
	u64("address", func(f *Frame) *uint64 { return &f.Address }),
	text("build_id", func(f *Frame) *string { return &f.BuildID }),
	boolean("eval", func(f *Frame) *bool { return &f.Eval }),
)

// batch is one row of the index.
type batch struct {
	Stream         string
	Offset, Length int64
	Rows           int64
	First, Last    int64 // times, ns; 0 for streams without
	Lost           int64 // events lost within, as the KindLost rows say
}

var indexTable = newTable(nil, nil,
	text("stream", func(b *batch) *string { return &b.Stream }),
	i64("offset", func(b *batch) *int64 { return &b.Offset }),
	i64("length", func(b *batch) *int64 { return &b.Length }),
	i64("rows", func(b *batch) *int64 { return &b.Rows }),
	i64("first_ns", func(b *batch) *int64 { return &b.First }),
	i64("last_ns", func(b *batch) *int64 { return &b.Last }),
	i64("lost", func(b *batch) *int64 { return &b.Lost }),
)

// stopWords names the stop reasons in order.
var stopWords = []string{
	"none", "complete", "depth", "fault", "bad-frame", "no-interpreter", "no-thread-state",
	"no-frame-pointer", "thinned", "unsupported", "no-unwind-rule", "no-unwind-table",
}

// String returns the reason's word.
func (r StopReason) String() string {
	if int(r) < len(stopWords) {
		return stopWords[r]
	}
	return fmt.Sprintf("stop-%d", r)
}
