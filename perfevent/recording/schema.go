// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"pathprof/join/sched"
)

// table is the form of one kind of stream.
type table[T any] struct {
	schema  *arrow.Schema
	columns []column[T]
	// time of a row, ns; nil if the stream has no times.
	time func(*T) int64
	// form is how such a stream looks in bytes, found when first needed.
	form func() (form, error)
}

// form is what a stream of a table looks like in bytes.
type form struct {
	prefix  []byte // the schema's message, with which a stream begins
	columns string // see message.columns
	shape   batchShape
}

func newTable[T any](time func(*T) int64, words map[string][]string, columns ...column[T]) *table[T] {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = c.field
		if w := words[c.field.Name]; w != nil {
			fields[i].Metadata = arrow.NewMetadata([]string{"words"}, []string{strings.Join(w, ",")})
		}
	}
	meta := arrow.NewMetadata([]string{"pathprof"}, []string{strconv.Itoa(FormatVersion)})
	t := &table[T]{schema: arrow.NewSchema(fields, &meta), columns: columns, time: time}
	t.form = sync.OnceValues(t.findForm)
	return t
}

// findForm encodes an empty batch and looks at it.
func (t *table[T]) findForm() (f form, err error) {
	e := newEncoder(t)
	if err := e.write(nil); err != nil {
		return f, err
	}
	schema, err := parseMessage(e.out.Bytes())
	if err != nil {
		return f, fmt.Errorf("own schema: %w", err)
	}
	f.prefix = e.out.Bytes()[:schema.size]
	batch, err := parseMessage(e.out.Bytes()[schema.size:])
	if err != nil {
		return f, fmt.Errorf("own batch: %w", err)
	}
	var errs [2]error
	f.columns, errs[0] = schema.columns()
	f.shape, errs[1] = batch.batch()
	return f, errors.Join(errs[:]...)
}

var (
	contextWords = []string{"unknown", "task", "hardirq", "softirq", "hrtimer", "timer", "ipi", "nmi", "idle"}
	kindWords    = []string{"invalid", "switch", "waking", "fork", "exec", "exit", "comm", "task", "lost",
		"object", "send", "receive", "queue", "work", "workend", "io", "throttle"}
	lockWords  = []string{"unknown", "gil", "mutex", "sem", "pymutex", "cond"}
	gilWords   = []string{"unknown", "own", "other", "free"}
	frameWords = []string{"invalid", "python", "native", "kernel"}
)

// eventColumns are those of format 1; causeColumns came with format 2.
var (
	eventColumns = []column[sched.Event]{
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
	}
	causeColumns = []column[sched.Event]{
		u16("call", func(e *sched.Event) *sched.Call { return &e.Call }),
		u64("object", func(e *sched.Event) *uint64 { return &e.Object }),
		i64("timeout_ns", func(e *sched.Event) *int64 { return &e.Timeout }),
		enum("lock", func(e *sched.Event) *sched.LockKind { return &e.Lock }),
		i32("holder_tid", func(e *sched.Event) *int32 { return &e.Holder.TID }),
		i32("holder_pid", func(e *sched.Event) *int32 { return &e.Holder.PID }),
		u64("conn", func(e *sched.Event) *uint64 { return &e.Conn }),
		u32("seq", func(e *sched.Event) *uint32 { return &e.Seq }),
	}
	eventWords = map[string][]string{"kind": kindWords, "ctx": contextWords, "lock": lockWords}

	// eventTable is of this format, eventTable1 of the first, in which older
	// recordings are read.
	eventTable  = newTable(eventTime, eventWords, slices.Concat(eventColumns, causeColumns)...)
	eventTable1 = newTable(eventTime, eventWords, eventColumns...)
)

func eventTime(e *sched.Event) int64 { return e.Time }

// eventTableOf returns the table of a format's event streams.
func eventTableOf(format int) *table[sched.Event] {
	if format == 1 {
		return eventTable1
	}
	return eventTable
}

var sampleWords = map[string][]string{"ctx": contextWords, "gil": gilWords}

func sampleTime(s *Sample) int64 { return s.Time }

var sampleColumns = []column[Sample]{
	i64("time_ns", func(s *Sample) *int64 { return &s.Time }),
	i32("cpu", func(s *Sample) *int32 { return &s.CPU }),
	i32("pid", func(s *Sample) *int32 { return &s.PID }),
	i32("tid", func(s *Sample) *int32 { return &s.TID }),
	u32("stack", func(s *Sample) *uint32 { return &s.Stack }),
	i64("value", func(s *Sample) *int64 { return &s.Value }),
	boolean("kernel_mode", func(s *Sample) *bool { return &s.Kernel }),
	enum("ctx", func(s *Sample) *sched.Context { return &s.Ctx }),
}

var statusColumns = []column[Sample]{
	enum("gil", func(s *Sample) *GIL { return &s.GIL }),
	boolean("collecting", func(s *Sample) *bool { return &s.Collecting }),
}

// sampleTable is of this format; format 2 ends samples with collecting, format 1
// with ctx.
var (
	sampleTable = newTable(sampleTime, sampleWords, slices.Concat(sampleColumns, statusColumns, []column[Sample]{
		i64("counter", func(s *Sample) *int64 { return &s.Counter }),
	})...)
	sampleTable2 = newTable(sampleTime, sampleWords, slices.Concat(sampleColumns, statusColumns)...)
	sampleTable1 = newTable(sampleTime, sampleWords, sampleColumns...)
)

// sampleTableOf returns the table of a format's samples.
func sampleTableOf(format int) *table[Sample] {
	switch format {
	case 1:
		return sampleTable1
	case 2:
		return sampleTable2
	}
	return sampleTable
}

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

var symbolTable = newTable(nil, nil,
	u32("frame", func(s *Symbol) *uint32 { return &s.Frame }),
	text("name", func(s *Symbol) *string { return &s.Name }),
	text("file", func(s *Symbol) *string { return &s.File }),
	i32("line", func(s *Symbol) *int32 { return &s.Line }),
	i32("first_line", func(s *Symbol) *int32 { return &s.FirstLine }),
)

// batch is one row of the index.
type batch struct {
	Stream         string
	Offset, Length int64
	Rows           int64
	First, Last    int64 // times, ns; 0 for streams without
	Lost           int64 // events lost within, as the KindLost rows say
	CRC            uint32
	// unchecked: found by scanning, so the index says nothing to compare with.
	unchecked bool
	// gone: there is nothing to read at its place, which was said already.
	gone bool
}

var indexTable = newTable(nil, nil,
	text("stream", func(b *batch) *string { return &b.Stream }),
	i64("offset", func(b *batch) *int64 { return &b.Offset }),
	i64("length", func(b *batch) *int64 { return &b.Length }),
	i64("rows", func(b *batch) *int64 { return &b.Rows }),
	i64("first_ns", func(b *batch) *int64 { return &b.First }),
	i64("last_ns", func(b *batch) *int64 { return &b.Last }),
	i64("lost", func(b *batch) *int64 { return &b.Lost }),
	u32("crc32c", func(b *batch) *uint32 { return &b.CRC }),
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
