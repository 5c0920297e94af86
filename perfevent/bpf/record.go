// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"pathprof/join/sched"
	"pathprof/perfevent/recording"
	"pathprof/pyframes"
)

// Record is one record of a CPU's ring. Its slices are valid until the next
// record is decoded into it.
type Record struct {
	// Event is the execution event; for a sample it holds time, CPU, task and
	// context, and its Kind is sched.KindInvalid. Event.Stack is not set here.
	Event sched.Event
	// Sample: a counter overflowed. Value is the period it stands for; of a work
	// item, which is no sample, the address of its function. Counter is what the
	// counter itself had counted then, 0 if that could not be read.
	Sample  bool
	Value   int64
	Counter int64
	// KernelMode: the sample interrupted kernel code.
	KernelMode bool
	// Thinned: a blocked stack was due but left out.
	Thinned bool
	// GIL and Collecting are of the thread whose stack was taken.
	GIL        recording.GIL
	Collecting bool
	// File is what Event's descriptor is, if its Kind is sched.KindObject.
	File File
	// HasStack tells whether Stack was taken.
	HasStack bool
	Stack    Stack

	realtime int64 // CLOCK_REALTIME minus CLOCK_MONOTONIC, for absolute timeouts
}

// NativeExact is set in a native address that is the next instruction to run,
// as in the innermost frame; the others are return addresses.
const NativeExact = 1 << 63

// Stack is what was walked, addresses only, innermost first.
type Stack struct {
	Kernel, Native []uint64
	Python         []pyframes.Frame
	// Why each part ended.
	KernelStop, NativeStop, PythonStop recording.StopReason
	// Raw are the undecoded bytes: equal bytes of one process are equal stacks.
	Raw []byte
}

const (
	eventSize   = 72
	headSize    = 16
	pyFrameSize = 24
	commSize    = 16
)

// decode reads one record as written by c/event.h.
func decode(raw []byte, cpu int, rec *Record) error {
	if len(raw) < eventSize {
		return fmt.Errorf("record of %d bytes", len(raw))
	}
	le := binary.LittleEndian
	flags := pathprofEventFlags(le.Uint32(raw[32:]))
	rec.Event = sched.Event{
		Time:   int64(le.Uint64(raw)),
		CPU:    int32(cpu),
		Ctx:    sched.Context(le.Uint32(raw[28:])),
		Vector: int32(le.Uint32(raw[36:])),
		Task:   sched.Ref{PID: int32(le.Uint32(raw[40:])), TID: int32(le.Uint32(raw[44:]))},
		Other:  sched.Ref{PID: int32(le.Uint32(raw[48:])), TID: int32(le.Uint32(raw[52:]))},
		State:  le.Uint32(raw[56:]),
	}
	rec.Event.Preempt = flags&pathprofEventFlagsFLAG_PREEMPT != 0
	rec.Value, rec.Counter = int64(le.Uint64(raw[8:])), 0
	rec.KernelMode = flags&pathprofEventFlagsFLAG_KERNEL != 0
	rec.Thinned = flags&pathprofEventFlagsFLAG_THINNED != 0
	rec.HasStack = flags&pathprofEventFlagsFLAG_STACK != 0
	rec.Sample = false
	status := pathprofStatus(le.Uint32(raw[60:]))
	rec.Collecting = status&pathprofStatusSTATUS_COLLECTING != 0
	rec.GIL = recording.GIL(status &^ pathprofStatusSTATUS_COLLECTING)
	if err := rec.setKind(pathprofEventKind(le.Uint32(raw[24:])), raw[eventSize:]); err != nil {
		return err
	}
	switch rec.Event.Kind {
	case sched.KindInvalid: // a sample
		rec.Counter = int64(le.Uint64(raw[16:]))
	case sched.KindSwitch:
		decodeWait(raw, &rec.Event, rec.realtime)
	case sched.KindQueue, sched.KindWork, sched.KindWorkEnd:
		rec.Event.Object, rec.Value = le.Uint64(raw[8:]), int64(le.Uint64(raw[16:]))
	case sched.KindThrottle:
		rec.Event.Conn = le.Uint64(raw[8:])
	case sched.KindObject:
		return rec.decodeFile(raw)
	case sched.KindIO:
		rec.Event.Count = rec.Value
	case sched.KindSend, sched.KindReceive:
		rec.Event.Conn = le.Uint64(raw[8:])
		rec.Event.Count, rec.Event.Seq = int64(le.Uint32(raw[16:])), le.Uint32(raw[20:])
	}
	if rec.HasStack {
		return rec.Stack.decode(raw[eventSize:])
	}
	return nil
}

func (rec *Record) setKind(kind pathprofEventKind, rest []byte) error {
	switch kind {
	case pathprofEventKindEVENT_SWITCH:
		rec.Event.Kind = sched.KindSwitch
		rec.Event.Vector = 0
	case pathprofEventKindEVENT_WAKING:
		rec.Event.Kind = sched.KindWaking
	case pathprofEventKindEVENT_EXIT:
		rec.Event.Kind = sched.KindExit
	case pathprofEventKindEVENT_FORK:
		rec.Event.Kind = sched.KindFork
	case pathprofEventKindEVENT_EXEC:
		rec.Event.Kind = sched.KindExec
		if old := int32(rec.Value); old != rec.Event.Task.TID {
			rec.Event.Other = sched.Ref{TID: old, PID: rec.Event.Task.PID}
		}
	case pathprofEventKindEVENT_COMM:
		rec.Event.Kind = sched.KindComm
	case pathprofEventKindEVENT_SEND:
		rec.Event.Kind = sched.KindSend
	case pathprofEventKindEVENT_RECEIVE:
		rec.Event.Kind = sched.KindReceive
	case pathprofEventKindEVENT_QUEUE:
		rec.Event.Kind = sched.KindQueue
	case pathprofEventKindEVENT_WORK:
		rec.Event.Kind = sched.KindWork
	case pathprofEventKindEVENT_WORK_END:
		rec.Event.Kind = sched.KindWorkEnd
	case pathprofEventKindEVENT_IO:
		rec.Event.Kind = sched.KindIO
	case pathprofEventKindEVENT_THROTTLE:
		rec.Event.Kind = sched.KindThrottle
	case pathprofEventKindEVENT_FILE:
		rec.Event.Kind = sched.KindObject
	case pathprofEventKindEVENT_SAMPLE:
		rec.Sample = true
		return nil
	default:
		return fmt.Errorf("record of unknown kind %d", kind)
	}
	switch rec.Event.Kind {
	case sched.KindFork, sched.KindExec, sched.KindComm:
		if len(rest) < commSize {
			return fmt.Errorf("name of %d bytes", len(rest))
		}
		name, _, _ := bytes.Cut(rest[:commSize], []byte{0})
		rec.Event.Name = string(name)
	}
	return nil
}

func (s *Stack) decode(raw []byte) error {
	if len(raw) < headSize {
		return fmt.Errorf("stack of %d bytes", len(raw))
	}
	le := binary.LittleEndian
	kernel, native, python := int(le.Uint16(raw)), int(le.Uint16(raw[2:])), int(le.Uint16(raw[4:]))
	size := headSize + 8*(kernel+native) + pyFrameSize*python
	if len(raw) < size {
		return fmt.Errorf("stack of %d bytes for %d frames", len(raw), kernel+native+python)
	}
	s.Raw = raw[:size]
	s.KernelStop = recording.StopReason(raw[6])
	s.NativeStop = recording.StopReason(raw[7])
	s.PythonStop = recording.StopReason(raw[8])
	words := raw[headSize:]
	s.Kernel = appendWords(s.Kernel[:0], words[:8*kernel])
	s.Native = appendWords(s.Native[:0], words[8*kernel:8*(kernel+native)])
	s.Python = appendFrames(s.Python[:0], words[8*(kernel+native):size-headSize])
	// Every chain begins with a frame entered from C. While a generator is
	// resumed or left, its frame is current for an instruction or two without
	// being linked to its caller's (DISPATCH_INLINED in Python/ceval_macros.h,
	// 3.12): such a stack is cut, though nothing in memory says so.
	if n := len(s.Python); n > 0 && !s.Python[n-1].Entry && s.PythonStop == recording.StopComplete {
		s.PythonStop = recording.StopBadFrame
	}
	return nil
}

func appendWords(dst []uint64, raw []byte) []uint64 {
	for ; len(raw) >= 8; raw = raw[8:] {
		dst = append(dst, binary.LittleEndian.Uint64(raw))
	}
	return dst
}

func appendFrames(dst []pyframes.Frame, raw []byte) []pyframes.Frame {
	le := binary.LittleEndian
	for ; len(raw) >= pyFrameSize; raw = raw[pyFrameSize:] {
		position := int32(le.Uint32(raw[20:]))
		dst = append(dst, pyframes.Frame{
			Code: pyframes.CodeKey{
				Addr:      le.Uint64(raw),
				LineTable: le.Uint64(raw[8:]),
				FirstLine: le.Uint32(raw[16:]),
			},
			Lasti: position >> 1,
			Entry: position&1 != 0,
		})
	}
	return dst
}
