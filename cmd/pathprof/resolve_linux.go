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
	scratch    recording.Stack
}

// frameWriter is the part of recording.Writer that the resolver needs.
type frameWriter interface {
	Frame(recording.Frame) error
	Stack(recording.Stack) error
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

func newResolver(out frameWriter, kernel *unwind.KernelSymbols) *resolver {
	return &resolver{
		out:    out,
		kernel: kernel,
		images: newImageCache(),
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
	gone := r.unresolved
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
	if gone == r.unresolved { // else the next one of its kind may be readable
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

// outermost names functions that nothing calls: where one of them ends a walk,
// the stack is complete. From glibc and musl.
var outermost = map[string]bool{
	"_start": true, "__libc_start_main": true, "__libc_start_call_main": true, "__libc_start_main_impl": true,
	"start_thread": true, "clone": true, "clone3": true, "__clone": true, "__clone3": true,
}

// nativeFrames resolves the native part. By frame pointers alone a walk through
// code compiled without them yields addresses that are none: the stack is cut
// at the first that lies in no executable mapping, and complete if it ended in
// a function that nothing calls.
func (r *resolver) nativeFrames(p *process, s *bpf.Stack, out *recording.Stack) error {
	for i, word := range s.Native {
		pc := word &^ bpf.NativeExact
		lookup := pc
		if word&bpf.NativeExact == 0 {
			lookup-- // a return address may be the next function's first
		}
		m, ok := r.mappingOf(p, lookup)
		if !ok {
			if i == 0 {
				id, err := r.number(strayFrame(pc), func() recording.Frame {
					return recording.Frame{Kind: recording.FrameNative, Address: pc}
				})
				if err != nil {
					return err
				}
				out.Native = append(out.Native, id)
			}
			if out.NativeStop == recording.StopComplete {
				out.NativeStop = recording.StopBadFrame
			}
			return nil
		}
		id, name, err := r.nativeFrame(p, m, lookup)
		if err != nil {
			return err
		}
		out.Native = append(out.Native, id)
		if outermost[name] {
			out.NativeStop = recording.StopComplete
			return nil
		}
	}
	return nil
}

func (r *resolver) nativeFrame(p *process, m *proc.Mapping, pc uint64) (id uint32, name string, err error) {
	im := r.images.of(p.pid, m)
	vaddr := im.vaddr(pc - m.Start + m.Offset)
	name = im.function(vaddr)
	id, err = r.number(nativeFrame{im, vaddr}, func() recording.Frame {
		return recording.Frame{
			Kind: recording.FrameNative, Name: name, File: m.Path, Address: vaddr,
			BuildID: im.buildID, Eval: p.interp != nil && inRanges(p.interp.EvalRanges, pc),
		}
	})
	return id, name, err
}

func inRanges(ranges [][2]uint64, pc uint64) bool {
	return slices.ContainsFunc(ranges, func(r [2]uint64) bool { return r[0] <= pc && pc < r[1] })
}

// rereadMaps is how often mappings are read again for an address in none.
const rereadMaps = time.Second

// mappingOf finds the executable mapping of an address.
func (r *resolver) mappingOf(p *process, addr uint64) (*proc.Mapping, bool) {
	if m, ok := findMapping(p.maps, addr); ok && !p.stale {
		return m, true
	}
	// An address outside all code is more often a bad guess than a new mapping.
	if p.stale || !p.fresh && time.Since(p.mapsRead) > rereadMaps {
		p.mapsRead = time.Now()
		maps, err := proc.Maps(int(p.pid))
		if err == nil {
			p.maps = slices.DeleteFunc(maps, func(m proc.Mapping) bool { return !m.Exec })
		}
		p.stale = false
	}
	return findMapping(p.maps, addr)
}

func findMapping(maps []proc.Mapping, addr uint64) (*proc.Mapping, bool) {
	i, found := slices.BinarySearchFunc(maps, addr, func(m proc.Mapping, addr uint64) int {
		return compareUint(m.Start, addr)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= maps[i].End {
		return nil, false
	}
	return &maps[i], true
}

func compareUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
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
