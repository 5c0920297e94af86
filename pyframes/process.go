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
// one goroutine. [OpenProcess] sets the hooks where the memory is a
// *proc.Memory; without them less is known, and nothing is wrong.
type Process struct {
	// Dir makes relative file names absolute: the working folder of the process.
	Dir string
	// Source reads a source file, to find qualified names before 3.11; nil: names
	// stay as they are.
	Source func(path string) ([]byte, error)
	// Threads lists the thread numbers of the process, see Frames.
	Threads func() ([]int, error)
	// InnerTID turns a thread's number into the one by which it knows itself, in
	// its own pid namespace; nil: they are the same.
	InnerTID func(tid int) (int, error)

	mem     io.ReaderAt
	runtime uint64
	offsets *Offsets
	scopes  map[string]*ScopeIndex

	scopeCount int // of all of scopes
}

// OpenProcess reads the interpreter in of a process through its memory.
func OpenProcess(mem io.ReaderAt, in *Interp) *Process {
	p := newProcess(mem, in.RuntimeAddr, &in.Runtime.Offsets)
	p.attach()
	return p
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
	if interp != 0 {
		return nil, fmt.Errorf("more than %d interpreters", maxThreads)
	}
	return list, nil
}

// Frames appends the frames of a thread to dst, innermost first. The thread is
// found by its number tid from 3.11 on; before, by threadPointer or, where that
// is 0, by the number the libc keeps behind the thread pointer. A thread that runs
// meanwhile yields frames of different moments: use it for blocked threads.
func (p *Process) Frames(tid int, threadPointer uint64, dst []Frame) ([]Frame, error) {
	inner := tid
	if p.InnerTID != nil {
		var err error
		if inner, err = p.InnerTID(tid); err != nil {
			return dst, err
		}
	}
	states, err := p.ThreadStates()
	if err != nil {
		return dst, err
	}
	own := ThreadState{NativeID: uint64(inner), ID: threadPointer}
	if p.offsets.ThreadNativeID == NoField && threadPointer == 0 {
		if own.ID, err = p.threadPointer(states, inner, inner == tid); err != nil {
			return dst, err
		}
	}
	return p.walkStates(states, own, dst)
}

// walkStates walks the first state of a thread that has frames. A thread has
// several with sub-interpreters, of which it runs one, the last made first in
// the list, while the others of its own making are idle.
func (p *Process) walkStates(states []ThreadState, own ThreadState, dst []Frame) ([]Frame, error) {
	found := false
	for _, s := range states {
		same := s.ID == own.ID
		if p.offsets.ThreadNativeID != NoField {
			same = s.NativeID == own.NativeID
		}
		if !same {
			continue
		}
		found = true
		frames, err := p.walk(s.Addr, dst)
		if err != nil || len(frames) > len(dst) {
			return frames, err
		}
	}
	if !found {
		return dst, ErrNoThread
	}
	return dst, nil
}

// libcTIDs are offsets at which a libc keeps the number of a thread behind its
// thread pointer: glibc on x86-64 (struct pthread, nptl/descr.h, the same since
// 2.4) and on arm64, musl (src/internal/pthread_impl.h) on 64-bit machines.
var libcTIDs = []uint64{720, 208, 48}

// threadPointer finds the thread pointer of a thread by the number that the libc
// keeps in its own thread structure. An offset is believed only if for all thread
// states it gives the number of a thread of the process, and different ones for
// different pointers: another libc has something else there.
func (p *Process) threadPointer(states []ThreadState, tid int, sameNamespace bool) (uint64, error) {
	if p.Threads == nil {
		return 0, ErrNoThread
	}
	tids, err := p.Threads()
	if err != nil {
		return 0, err
	}
	known := map[uint32]bool{}
	for _, t := range tids {
		if p.InnerTID != nil && !sameNamespace { // else a file less for each thread
			if t, err = p.InnerTID(t); err != nil {
				continue // ended meanwhile
			}
		}
		known[uint32(t)] = true
	}
	for _, offset := range libcTIDs {
		if pointers, ok := p.pointers(states, offset, known); ok {
			if pointer, ok := pointers[uint32(tid)]; ok {
				return pointer, nil
			}
			return 0, ErrNoThread
		}
	}
	return 0, ErrNoThread
}

// pointers reads the number of each thread at an offset from its thread pointer:
// number to pointer.
func (p *Process) pointers(states []ThreadState, offset uint64, known map[uint32]bool) (map[uint32]uint64, bool) {
	pointers := map[uint32]uint64{}
	for _, s := range states {
		var b [4]byte
		if err := readFull(p.mem, b[:], s.ID+offset); err != nil {
			return nil, false
		}
		n := binary.LittleEndian.Uint32(b[:])
		if have, ok := pointers[n]; !known[n] || ok && have != s.ID {
			return nil, false
		}
		pointers[n] = s.ID
	}
	return pointers, len(pointers) > 0
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
	for _, off := range []uint32{o.FrameOwner, o.FrameEntry, o.FrameTLBC} {
		if off != NoField {
			size = max(size, off+4)
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
		if o.FrameOwner != NoField && uint32(raw[o.FrameOwner]) >= o.OwnerShim {
			if len(dst) > first {
				dst[len(dst)-1].Entry = true
			}
			continue
		}
		f, complete, err := p.frame(raw)
		if err != nil {
			return dst, err
		}
		if complete {
			dst = append(dst, f)
		}
	}
	return dst, nil
}

// refTags are the bits that a _PyStackRef keeps beside the address
// (Include/internal/pycore_stackref.h, 3.14); before, they are 0.
const refTags = 3

// bytecode returns where the copy of a code object's bytecode begins that a
// thread of a free-threaded build runs: the first is the code object's own
// (_PyCodeArray in Include/cpython/code.h, 3.14).
func (p *Process) bytecode(code uint64, index int32) (uint64, error) {
	if index == 0 {
		return code + uint64(p.offsets.CodeBytes), nil
	}
	copies, err := readWord(p.mem, code+uint64(p.offsets.CodeTLBC))
	if err != nil {
		return 0, fmt.Errorf("copies of the bytecode of the code object at %#x: %w", code, err)
	}
	size, err := readWord(p.mem, copies)
	if err == nil && (index < 0 || uint64(index) >= size) {
		err = fmt.Errorf("number %d of %d", index, size)
	}
	var begin uint64
	if err == nil {
		begin, err = readWord(p.mem, copies+8+8*uint64(index))
	}
	if err != nil {
		return 0, fmt.Errorf("copy of the bytecode of the code object at %#x: %w", code, err)
	}
	return begin, nil
}

// frame decodes one frame structure. A frame that is about to run is incomplete:
// CPython does not show it (_PyFrame_IsIncomplete, 3.11 and newer).
func (p *Process) frame(raw []byte) (f Frame, complete bool, err error) {
	o := p.offsets
	le := binary.LittleEndian
	f.Code.Addr = le.Uint64(raw[o.FrameCode:]) &^ refTags
	switch o.Style {
	case StyleLastiByte:
		f.Lasti, f.Entry = int32(le.Uint32(raw[o.FrameInstr:])), true
	case StyleLastiUnit:
		f.Lasti, f.Entry = 2*int32(le.Uint32(raw[o.FrameInstr:])), true
		if f.Lasti < 0 {
			f.Lasti = -1
		}
	default:
		begin := f.Code.Addr + uint64(o.CodeBytes)
		if o.FrameTLBC != NoField {
			if begin, err = p.bytecode(f.Code.Addr, int32(le.Uint32(raw[o.FrameTLBC:]))); err != nil {
				return f, false, err
			}
		}
		f.Lasti = int32(le.Uint64(raw[o.FrameInstr:]) - begin)
	}
	if o.FrameEntry != NoField {
		f.Entry = raw[o.FrameEntry] == 1
	}
	size := max(o.CodeFirstLine+4, o.CodeLineTable+8)
	if o.CodeFirstTraceable != NoField {
		size = max(size, o.CodeFirstTraceable+4)
	}
	code := make([]byte, size)
	if err := readFull(p.mem, code, f.Code.Addr); err != nil {
		return f, false, fmt.Errorf("code object at %#x: %w", f.Code.Addr, err)
	}
	f.Code.FirstLine = le.Uint32(code[o.CodeFirstLine:])
	f.Code.LineTable = le.Uint64(code[o.CodeLineTable:])
	if o.CodeFirstTraceable == NoField {
		return f, true, nil
	}
	return f, int64(f.Lasti) >= 2*int64(int32(le.Uint32(code[o.CodeFirstTraceable:]))), nil
}
