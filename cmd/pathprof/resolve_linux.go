// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"hash/maphash"
	"os"
	"slices"
	"time"

	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
	"pathprof/pyframes"
	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// maxStacks bounds the memory of the resolver: beyond it stacks are written
// again under new numbers.
const maxStacks = 1 << 19

// resolver turns the addresses of stacks into frames with names, soon after
// they were taken, while the code objects and mapped files are still there.
// Stacks and frames are written once and then named by number.
type resolver struct {
	out    frameWriter
	kernel *unwind.KernelSymbols // nil: addresses only
	images *imageCache
	procs  map[int32]*process

	seeds     [2]maphash.Seed
	stacks    map[stackKey]uint32
	frames    map[any]uint32
	nextStack uint32
	nextFrame uint32

	unresolved uint64 // Python frames whose code object was gone
	strays     uint64 // addresses that ran in no mapping known by then
	scratch    recording.Stack
}

// frameWriter is the part of recording.Writer that the resolver needs.
type frameWriter interface {
	Frame(recording.Frame) error
	Stack(recording.Stack) error
	Symbols([]recording.Symbol) error
}

// stackKey identifies a stack by all of its frames: two independent hashes of
// the bytes the kernel programs wrote. generation sets processes apart that
// replaced their program.
type stackKey struct {
	pid        int32
	generation uint32
	hash       [2]uint64
}

// process is what the resolver knows of a process.
type process struct {
	pid        int32
	generation uint32
	interp     *pyframes.Interp  // nil: no usable interpreter
	python     *pyframes.Process // nil: as interp
	memory     *proc.Memory
	codes      map[pyframes.CodeKey]*pyframes.Code
	parent     *process // forked from: its code objects are ours, too
	// maps are the executable mappings, sorted; stale after a new one.
	maps     []proc.Mapping
	stale    bool
	mapsRead time.Time
	// fresh: the program started during the recording, so side-band records
	// told all of its mappings.
	fresh bool
	made  *image // the code it made at run time, nil if none was seen
}

// Keys of the frames map.
type (
	kernelFrame uint64 // start of the function, or the address
	nativeFrame struct {
		image *image
		vaddr uint64
	}
	strayFrame  uint64 // an address in no known mapping
	pythonFrame struct {
		code *pyframes.Code
		line int32
	}
	goneFrame pyframes.CodeKey
)

func newResolver(out frameWriter, kernel *unwind.KernelSymbols, embed bool) *resolver {
	return &resolver{
		out:    out,
		kernel: kernel,
		images: newImageCache(embed),
		procs:  map[int32]*process{},
		seeds:  [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()},
		stacks: map[stackKey]uint32{},
		frames: map[any]uint32{},
	}
}

// process returns what is known of pid, which may be nothing yet.
func (r *resolver) process(pid int32) *process {
	p := r.procs[pid]
	if p == nil {
		p = &process{pid: pid, stale: true, codes: map[pyframes.CodeKey]*pyframes.Code{}}
		r.procs[pid] = p
	}
	return p
}

// setPython tells which interpreter a process runs.
func (r *resolver) setPython(pid int32, in *pyframes.Interp) error {
	p := r.process(pid)
	memory, err := proc.OpenMemory(int(pid))
	if err != nil {
		return err
	}
	p.closeMemory()
	p.interp, p.memory = in, memory
	p.python = pyframes.OpenProcess(memory, in)
	return nil
}

// forked makes child a copy of parent.
func (r *resolver) forked(parent, child int32) {
	from := r.procs[parent]
	r.exited(child) // a number used again
	if from == nil {
		return
	}
	p := r.process(child)
	p.parent, p.fresh, p.maps, p.stale = from, from.fresh, slices.Clone(from.maps), from.stale
	if from.interp != nil {
		// The child may be gone already: its parent's code objects do then.
		if err := r.setPython(child, from.interp); err != nil {
			p.interp = from.interp
		}
	}
}

// executed forgets what a process' former program was.
func (r *resolver) executed(pid int32) {
	generation := uint32(1)
	if p := r.procs[pid]; p != nil {
		generation = p.generation + 1
		r.exited(pid)
	}
	p := r.process(pid)
	p.generation, p.fresh, p.stale = generation, true, false
}

// exited forgets a process. Others may have been forked from it: they hold it.
func (r *resolver) exited(pid int32) {
	if p := r.procs[pid]; p != nil {
		p.closeMemory()
		delete(r.procs, pid)
	}
}

// mapped adds an executable mapping that a side-band record told of.
func (r *resolver) mapped(pid int32, m proc.Mapping) {
	p := r.procs[pid]
	if p == nil || !p.fresh {
		if p != nil {
			p.stale = true
		}
		return
	}
	i, _ := slices.BinarySearchFunc(p.maps, m.Start, func(a proc.Mapping, start uint64) int {
		return compareUint(a.Start, start)
	})
	p.maps = slices.Insert(p.maps, i, m)
}

func (p *process) closeMemory() {
	if p.memory != nil {
		p.memory.Close()
		p.memory, p.python = nil, nil
	}
}

// stack writes a stack, unless it is known, and returns its number.
func (r *resolver) stack(pid int32, s *bpf.Stack) (uint32, error) {
	p := r.process(pid)
	key := stackKey{pid: pid, generation: p.generation}
	for i, seed := range r.seeds {
		key.hash[i] = maphash.Bytes(seed, s.Raw)
	}
	if id, ok := r.stacks[key]; ok {
		return id, nil
	}
	out := &r.scratch
	out.Kernel, out.Native, out.Python, out.Entry = out.Kernel[:0], out.Native[:0], out.Python[:0], out.Entry[:0]
	out.KernelStop, out.NativeStop, out.PythonStop = s.KernelStop, s.NativeStop, s.PythonStop
	unknown := r.unresolved + r.strays
	if err := r.addFrames(p, s, out); err != nil {
		return 0, err
	}
	r.nextStack++
	out.ID = r.nextStack
	if err := r.out.Stack(*out); err != nil {
		return 0, err
	}
	if len(r.stacks) >= maxStacks {
		clear(r.stacks)
	}
	if unknown == r.unresolved+r.strays { // else the next one of its kind may be known
		r.stacks[key] = out.ID
	}
	return out.ID, nil
}

// pythonStack writes a stack of Python frames alone.
func (r *resolver) pythonStack(pid int32, frames []pyframes.Frame) (uint32, error) {
	s := bpf.Stack{Python: frames, PythonStop: recording.StopComplete}
	out := recording.Stack{PythonStop: recording.StopComplete}
	if err := r.addFrames(r.process(pid), &s, &out); err != nil {
		return 0, err
	}
	r.nextStack++
	out.ID = r.nextStack
	return out.ID, r.out.Stack(out)
}

func (r *resolver) addFrames(p *process, s *bpf.Stack, out *recording.Stack) error {
	for _, addr := range s.Kernel {
		id, err := r.kernelFrame(addr)
		if err != nil {
			return err
		}
		out.Kernel = append(out.Kernel, id)
	}
	if err := r.nativeFrames(p, s, out); err != nil {
		return err
	}
	for _, f := range s.Python {
		code := p.code(f.Code)
		if code != nil && code.Hidden { // the interpreter's own, no function of the program
			if n := len(out.Entry); n > 0 && f.Entry {
				out.Entry[n-1] = true
			}
			continue
		}
		id, err := r.pythonFrame(code, f)
		if err != nil {
			return err
		}
		out.Python = append(out.Python, id)
		out.Entry = append(out.Entry, f.Entry)
	}
	return nil
}

// number returns a frame's number, writing it first if it is new.
func (r *resolver) number(key any, make func() recording.Frame) (uint32, error) {
	if id, ok := r.frames[key]; ok {
		return id, nil
	}
	f := make()
	r.nextFrame++
	f.ID = r.nextFrame
	r.frames[key] = f.ID
	return f.ID, r.out.Frame(f)
}

func (r *resolver) kernelFrame(addr uint64) (uint32, error) {
	f := recording.Frame{Kind: recording.FrameKernel, Address: addr}
	if r.kernel != nil {
		if s, ok := r.kernel.Lookup(addr); ok {
			f.Name, f.Address = s.Name, s.Start
		}
	}
	return r.number(kernelFrame(f.Address), func() recording.Frame { return f })
}

// kernelName returns the function at an address of the kernel, empty if unknown.
func (r *resolver) kernelName(addr uint64) string {
	if r.kernel == nil {
		return ""
	}
	s, _ := r.kernel.Lookup(addr)
	return s.Name
}

// pythonFrame writes a frame of a code object, nil if that is gone.
func (r *resolver) pythonFrame(code *pyframes.Code, f pyframes.Frame) (uint32, error) {
	if code == nil {
		r.unresolved++
		return r.number(goneFrame(f.Code), func() recording.Frame {
			return recording.Frame{Kind: recording.FramePython, Address: f.Code.Addr, FirstLine: int32(f.Code.FirstLine)}
		})
	}
	line := code.Lines.Line(f.Lasti)
	return r.number(pythonFrame{code, line}, func() recording.Frame {
		return recording.Frame{
			Kind: recording.FramePython, Name: code.Name, File: code.Filename,
			Line: line, FirstLine: code.FirstLine, Address: code.Key.Addr,
		}
	})
}

// code returns a code object, read from the process when it is first seen, or
// known from the process it was forked from; nil if it is gone.
func (p *process) code(key pyframes.CodeKey) *pyframes.Code {
	if c := p.codes[key]; c != nil {
		return c
	}
	if p.python != nil {
		if c, err := p.python.ReadCode(key); err == nil {
			p.codes[key] = c
			return c
		} else if errors.Is(err, os.ErrNotExist) {
			p.closeMemory()
		}
	}
	for from := p.parent; from != nil; from = from.parent {
		if c := from.codes[key]; c != nil {
			return c
		}
	}
	return nil
}
