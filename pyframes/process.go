// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrNoThread says that a thread has no thread state, or that it cannot be told
// which is its.
var ErrNoThread = errors.New("no thread state")

// Process reads the Python side of one process from its memory. It is used from
// one goroutine.
type Process struct {
	// Dir makes relative file names absolute: the working folder of the process.
	Dir string
	// Source reads a source file, to find qualified names before 3.11; nil: names
	// stay as they are.
	Source func(path string) ([]byte, error)
	// Threads lists the thread numbers of the process, see Frames.
	Threads func() ([]int, error)

	mem     io.ReaderAt
	runtime uint64
	offsets *Offsets
	scopes  map[string]*ScopeIndex
}

// OpenProcess reads the interpreter in of a process through its memory.
func OpenProcess(mem io.ReaderAt, in *Interp) *Process {
	return newProcess(mem, in.RuntimeAddr, &in.Runtime.Offsets)
}

func newProcess(mem io.ReaderAt, runtime uint64, o *Offsets) *Process {
	return &Process{mem: mem, runtime: runtime, offsets: o, scopes: map[string]*ScopeIndex{}}
}

// ThreadState is one thread of an interpreter.
type ThreadState struct {
	Addr uint64
	// NativeID is the number gettid() gave, in the thread's own pid namespace;
	// 0 before 3.11.
	NativeID uint64
	// ID is pthread_self() of the thread.
	ID uint64
}

// Bounds of the lists of a process: longer ones are damaged, or loops.
const (
	maxThreads = 1 << 14
	maxDepth   = 1 << 12
)

// ThreadStates lists the thread states of all interpreters.
func (p *Process) ThreadStates() ([]ThreadState, error) {
	o := p.offsets
	interp, err := readWord(p.mem, p.runtime+uint64(o.RuntimeInterpretersHead))
	if err != nil {
		return nil, fmt.Errorf("list of interpreters: %w", err)
	}
	var list []ThreadState
	for n := 0; interp != 0 && n < maxThreads; n++ {
		state, err := readWord(p.mem, interp+uint64(o.InterpThreadsHead))
		if err != nil {
			return nil, fmt.Errorf("list of threads: %w", err)
		}
		for state != 0 {
			if len(list) >= maxThreads {
				return nil, fmt.Errorf("more than %d thread states", maxThreads)
			}
			t := ThreadState{Addr: state}
			if t.ID, err = readWord(p.mem, state+uint64(o.ThreadID)); err != nil {
				return nil, fmt.Errorf("thread state at %#x: %w", state, err)
			}
			if o.ThreadNativeID != NoField {
				if t.NativeID, err = readWord(p.mem, state+uint64(o.ThreadNativeID)); err != nil {
					return nil, fmt.Errorf("thread state at %#x: %w", state, err)
				}
			}
			list = append(list, t)
			if state, err = readWord(p.mem, state+uint64(o.ThreadNext)); err != nil {
				return nil, fmt.Errorf("thread state at %#x: %w", list[len(list)-1].Addr, err)
			}
		}
		if interp, err = readWord(p.mem, interp+uint64(o.InterpNext)); err != nil {
			return nil, fmt.Errorf("list of interpreters: %w", err)
		}
	}
	return list, nil
}

// Frames appends the frames of a thread to dst, innermost first. The thread is
// found by its number tid from 3.11 on; before, by threadPointer or, where that
// is 0, by the number glibc keeps behind the thread pointer. A thread that runs
// meanwhile yields frames of different moments: use it for blocked threads.
func (p *Process) Frames(tid int, threadPointer uint64, dst []Frame) ([]Frame, error) {
	states, err := p.ThreadStates()
	if err != nil {
		return dst, err
	}
	state, err := p.stateOf(states, tid, threadPointer)
	if err != nil {
		return dst, err
	}
	return p.walk(state, dst)
}

func (p *Process) stateOf(states []ThreadState, tid int, threadPointer uint64) (uint64, error) {
	if p.offsets.ThreadNativeID != NoField {
		for _, s := range states {
			if s.NativeID == uint64(tid) {
				return s.Addr, nil
			}
		}
		return 0, ErrNoThread
	}
	if threadPointer == 0 {
		return p.stateByGlibc(states, tid)
	}
	for _, s := range states {
		if s.ID == threadPointer {
			return s.Addr, nil
		}
	}
	return 0, ErrNoThread
}

// glibcTID is the offset of tid in glibc's struct pthread on x86-64
// (nptl/descr.h; the same since 2.4).
const glibcTID = 720

// stateByGlibc matches by the thread number that glibc keeps in its own thread
// structure. It is believed only if for all thread states it names a thread of
// the process: another libc has something else there.
func (p *Process) stateByGlibc(states []ThreadState, tid int) (uint64, error) {
	if p.Threads == nil {
		return 0, ErrNoThread
	}
	tids, err := p.Threads()
	if err != nil {
		return 0, err
	}
	known := map[uint32]bool{}
	for _, t := range tids {
		known[uint32(t)] = true
	}
	found := uint64(0)
	for _, s := range states {
		var b [4]byte
		if err := readFull(p.mem, b[:], s.ID+glibcTID); err != nil {
			return 0, ErrNoThread
		}
		n := binary.LittleEndian.Uint32(b[:])
		if !known[n] {
			return 0, ErrNoThread
		}
		if n == uint32(tid) {
			found = s.Addr
		}
	}
	if found == 0 {
		return 0, ErrNoThread
	}
	return found, nil
}

// walk follows the chain of frames, as perfevent/bpf/c/python.h does.
func (p *Process) walk(state uint64, dst []Frame) ([]Frame, error) {
	o := p.offsets
	frame, err := readWord(p.mem, state+uint64(o.ThreadFrame))
	if err == nil && o.CFrameCurrent != NoField {
		frame, err = readWord(p.mem, frame+uint64(o.CFrameCurrent))
	}
	if err != nil {
		return dst, fmt.Errorf("frame of the thread state at %#x: %w", state, err)
	}
	size := max(o.FrameCode, o.FrameBack, o.FrameInstr) + 8
	for _, off := range []uint32{o.FrameOwner, o.FrameEntry} {
		if off != NoField {
			size = max(size, off+1)
		}
	}
	raw := make([]byte, size)
	first := len(dst)
	for n := 0; frame != 0; n++ {
		if n >= maxDepth {
			return dst, fmt.Errorf("more than %d frames", maxDepth)
		}
		if err := readFull(p.mem, raw, frame); err != nil {
			return dst, fmt.Errorf("frame at %#x: %w", frame, err)
		}
		frame = binary.LittleEndian.Uint64(raw[o.FrameBack:])
		if o.FrameOwner != NoField && uint32(raw[o.FrameOwner]) == o.OwnerCStack {
			if len(dst) > first {
				dst[len(dst)-1].Entry = true
			}
			continue
		}
		f, err := p.frame(raw)
		if err != nil {
			return dst, err
		}
		dst = append(dst, f)
	}
	return dst, nil
}

// frame decodes one frame structure.
func (p *Process) frame(raw []byte) (Frame, error) {
	o := p.offsets
	le := binary.LittleEndian
	f := Frame{Code: CodeKey{Addr: le.Uint64(raw[o.FrameCode:])}}
	switch o.Style {
	case StyleLastiByte:
		f.Lasti, f.Entry = int32(le.Uint32(raw[o.FrameInstr:])), true
	case StyleLastiUnit:
		f.Lasti, f.Entry = 2*int32(le.Uint32(raw[o.FrameInstr:])), true
	default:
		f.Lasti = int32(le.Uint64(raw[o.FrameInstr:]) - f.Code.Addr - uint64(o.CodeBytes))
	}
	if o.FrameEntry != NoField {
		f.Entry = raw[o.FrameEntry] == 1
	}
	var line [4]byte
	if err := readFull(p.mem, line[:], f.Code.Addr+uint64(o.CodeFirstLine)); err != nil {
		return f, fmt.Errorf("code object at %#x: %w", f.Code.Addr, err)
	}
	f.Code.FirstLine = le.Uint32(line[:])
	table, err := readWord(p.mem, f.Code.Addr+uint64(o.CodeLineTable))
	f.Code.LineTable = table
	return f, err
}
