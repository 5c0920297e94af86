// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/recording"
	"pathprof/pyframes"
)

// put writes an event the way c/event.h lays it out.
func put(e pathprofEvent, rest ...any) []byte {
	raw, err := binary.Append(nil, binary.LittleEndian, fields(e))
	if err != nil {
		panic(err) // a test's own mistake
	}
	for _, r := range rest {
		if raw, err = binary.Append(raw, binary.LittleEndian, r); err != nil {
			panic(err)
		}
	}
	return raw
}

func fields(e pathprofEvent) any {
	return struct {
		Time, Value, Extra           uint64
		Kind, Context, Flags         uint32
		Vector, PID, TID, OPID, OTID int32
		State, Status                uint32
		Holder, Reserved             int32
	}{e.Time, e.Value, e.Extra, uint32(e.Kind), uint32(e.Context), uint32(e.Flags), e.Vector, e.Pid, e.Tid,
		e.OtherPid, e.OtherTid, e.State, 0, e.Holder, 0}
}

func comm(name string) (b [commSize]byte) {
	copy(b[:], name)
	return b
}

func head(kernel, native, python uint16, stops ...uint8) (b [headSize]byte) {
	binary.LittleEndian.PutUint16(b[0:], kernel)
	binary.LittleEndian.PutUint16(b[2:], native)
	binary.LittleEndian.PutUint16(b[4:], python)
	copy(b[6:], stops)
	return b
}

func TestDecodeEvents(t *testing.T) {
	task, other := sched.Ref{TID: 12, PID: 10}, sched.Ref{TID: 22, PID: 20}
	base := pathprofEvent{Time: 77, Pid: 10, Tid: 12, OtherPid: 20, OtherTid: 22}
	with := func(change func(*pathprofEvent)) pathprofEvent {
		e := base
		change(&e)
		return e
	}
	for _, c := range []struct {
		name string
		raw  []byte
		want sched.Event
	}{
		{"switch", put(with(func(e *pathprofEvent) {
			e.Kind, e.State, e.Flags = pathprofEventKindEVENT_SWITCH, 1, pathprofEventFlagsFLAG_PREEMPT
		})), sched.Event{Kind: sched.KindSwitch, State: 1, Preempt: true}},
		{"waking", put(with(func(e *pathprofEvent) {
			e.Kind, e.Context, e.Vector = pathprofEventKindEVENT_WAKING, pathprofContextCONTEXT_SOFTIRQ, 3
		})), sched.Event{Kind: sched.KindWaking, Ctx: sched.ContextSoftirq, Vector: 3}},
		{"fork", put(with(func(e *pathprofEvent) { e.Kind = pathprofEventKindEVENT_FORK }), comm("python3")),
			sched.Event{Kind: sched.KindFork, Name: "python3"}},
		{"blocked on a mutex", put(with(func(e *pathprofEvent) {
			e.Kind, e.State, e.Value, e.Vector = pathprofEventKindEVENT_SWITCH, 1, 0x7f00, callNumber("futex")+1
			e.Holder, e.Flags = 33, lockFlags(sched.LockMutex)
		})), sched.Event{Kind: sched.KindSwitch, State: 1, Call: sched.CallFutex, Object: 0x7f00,
			Lock: sched.LockMutex, Holder: sched.Ref{TID: 33, PID: 10}}},
		{"blocked until a time", put(with(func(e *pathprofEvent) {
			e.Kind, e.State, e.Extra, e.Vector = pathprofEventKindEVENT_SWITCH, 1, 5077, callNumber("futex")+1
			e.Holder, e.Flags = -1, lockFlags(sched.LockGIL)|pathprofEventFlagsFLAG_MONOTONIC
		})), sched.Event{Kind: sched.KindSwitch, State: 1, Call: sched.CallFutex, Timeout: 5000,
			Lock: sched.LockGIL, Holder: sched.Nobody}},
		{"send", put(with(func(e *pathprofEvent) {
			e.Kind, e.Context, e.Value, e.Extra = pathprofEventKindEVENT_SEND, pathprofContextCONTEXT_TASK, 99, 4000<<32|32
		})), sched.Event{Kind: sched.KindSend, Ctx: sched.ContextTask, Conn: 99, Seq: 4000, Count: 32}},
		{"comm of full length", put(with(func(e *pathprofEvent) { e.Kind = pathprofEventKindEVENT_COMM }),
			comm("0123456789abcdef")), sched.Event{Kind: sched.KindComm, Name: "0123456789abcdef"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rec Record
			if err := decode(c.raw, 3, &rec); err != nil {
				t.Fatal(err)
			}
			c.want.Time, c.want.CPU, c.want.Task, c.want.Other = 77, 3, task, other
			if rec.Event != c.want {
				t.Errorf("got %+v, want %+v", rec.Event, c.want)
			}
		})
	}
}

// callNumber is the number of a system call here.
func callNumber(name string) int32 {
	for n := range maxCalls {
		if c, ok := sched.CallOf(runtime.GOARCH, n); ok && c.String() == name {
			return int32(n)
		}
	}
	return -1
}

func lockFlags(l sched.LockKind) pathprofEventFlags {
	return pathprofEventFlagsFLAG_FUTEX | pathprofEventFlags(l)<<lockShift
}

func TestDecodeSample(t *testing.T) {
	frames := []pyframes.Frame{
		{Code: pyframes.CodeKey{Addr: 0x1000, LineTable: 0x2000, FirstLine: 7}, Lasti: 12, Entry: true},
		{Code: pyframes.CodeKey{Addr: 0x3000, LineTable: 0x4000, FirstLine: 9}, Lasti: -2},
	}
	position := int32(-2)
	raw := put(pathprofEvent{Kind: pathprofEventKindEVENT_SAMPLE, Value: 1000, Extra: 1 << 40,
		Flags: pathprofEventFlagsFLAG_STACK | pathprofEventFlagsFLAG_KERNEL},
		head(1, 2, 2, 1, 3, 1), []uint64{0xffff, 0x10, 0x20},
		uint64(0x1000), uint64(0x2000), uint32(7), int32(12<<1|1),
		uint64(0x3000), uint64(0x4000), uint32(9), position<<1)
	var rec Record
	if err := decode(raw, 0, &rec); err != nil {
		t.Fatal(err)
	}
	if !rec.Sample || rec.Value != 1000 || rec.Counter != 1<<40 || !rec.KernelMode || !rec.HasStack {
		t.Errorf("got sample %v, value %d, kernel %v, stack %v", rec.Sample, rec.Value, rec.KernelMode, rec.HasStack)
	}
	s := &rec.Stack
	if !slices.Equal(s.Kernel, []uint64{0xffff}) || !slices.Equal(s.Native, []uint64{0x10, 0x20}) {
		t.Errorf("got kernel %x, native %x", s.Kernel, s.Native)
	}
	if !reflect.DeepEqual(s.Python, frames) {
		t.Errorf("got %+v, want %+v", s.Python, frames)
	}
	// The outermost frame is no entry: something is missing outside of it.
	if s.KernelStop != recording.StopComplete || s.NativeStop != recording.StopFault || s.PythonStop != recording.StopBadFrame {
		t.Errorf("got stops %d %d %d", s.KernelStop, s.NativeStop, s.PythonStop)
	}
	for n := range raw {
		if err := decode(raw[:n], 0, &rec); err == nil {
			t.Errorf("no error for the first %d of %d bytes", n, len(raw))
		}
	}
}

// No input makes the decoder panic, and what it yields fits the input.
func FuzzDecode(f *testing.F) {
	f.Add(put(pathprofEvent{Kind: pathprofEventKindEVENT_WAKING}))
	f.Add(put(pathprofEvent{Kind: pathprofEventKindEVENT_SAMPLE, Flags: pathprofEventFlagsFLAG_STACK},
		head(1, 0, 1), uint64(1), make([]byte, pyFrameSize)))
	f.Add(put(pathprofEvent{Kind: pathprofEventKindEVENT_SWITCH, Vector: 1 << 30, Extra: 1 << 63, Holder: -7}))
	f.Add(put(pathprofEvent{Kind: pathprofEventKindEVENT_FILE}, [4]uint16{familyInet6, 6, 1, 2}, [40]byte{}))
	f.Add(put(pathprofEvent{Kind: pathprofEventKindEVENT_RECEIVE, Extra: 1<<64 - 1}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var rec Record
		if decode(raw, 0, &rec) != nil || !rec.HasStack {
			return
		}
		n := 8*(len(rec.Stack.Kernel)+len(rec.Stack.Native)) + pyFrameSize*len(rec.Stack.Python)
		if n > len(raw) {
			t.Errorf("%d bytes of frames from %d bytes", n, len(raw))
		}
	})
}
