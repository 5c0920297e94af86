// SPDX-License-Identifier: Apache-2.0

package recording

import "pathprof/join/sched"

// FrameKind says whose code a [Frame] is.
type FrameKind uint8

// The kinds of frames.
const (
	FrameInvalid FrameKind = iota
	FramePython
	FrameNative
	FrameKernel
)

// Frame is one place in code, as it was resolved while recording. Frames are
// numbered from 1; 0 is no frame.
type Frame struct {
	ID   uint32
	Kind FrameKind
	// Name is the function: qualified for Python (Class.method), demangled for
	// native code; empty where no name was found. The stream of frames has none
	// for native code: see [Symbol].
	Name string
	// File is the absolute source file (Python), or the mapped file (native).
	File string
	// Source is the source file of a native frame, empty if unknown. Inlined are
	// the functions that the compiler put into this one at this place, innermost
	// first. Both come from [Symbol].
	Source  string
	Inlined []Symbol
	// Line is the executing line, 0 if unknown; FirstLine the function's first.
	Line, FirstLine int32
	// Address is the code address: of the code object (Python), the file's own
	// virtual address (native), or the kernel address.
	Address uint64
	// BuildID of the mapped file, hex; empty if none.
	BuildID string
	// Eval: a native frame inside CPython's evaluation function.
	Eval bool
}

// Symbol names the function of a native frame, which is found out later than
// the frame itself: when recording ends, or on analysis. A frame whose code was
// inlined has several, innermost first; the last is the function that has the
// code.
type Symbol struct {
	Frame uint32 // its number
	Name  string // demangled
	// File is the source file, as the compiler was given it; Line the line there
	// and FirstLine the function's first. Empty and 0 if unknown.
	File            string
	Line, FirstLine int32
}

// StopReason says why a walk of a stack ended.
type StopReason uint8

// The stop reasons, for each of the three parts of a stack.
const (
	StopNone        StopReason = iota // this part was not asked for
	StopComplete                      // the walk reached the outermost frame
	StopDepth                         // deeper than the walk goes
	StopFault                         // memory could not be read at that moment
	StopBadFrame                      // a frame was not plausible
	StopNoInterp                      // (Python) no interpreter is known in the process
	StopNoThread                      // (Python) the thread has no thread state
	StopNoFramePtr                    // (native) frame pointer chain ended outside code
	StopThinned                       // left out: this thread blocks too often
	StopUnsupported                   // the interpreter or processor is not supported
	StopNoRule                        // (native) code without call frame information
	StopNoTable                       // (native) the unwind table was not loaded yet, or had no room
)

// Stack is what one walk found. Frame numbers are innermost first.
type Stack struct {
	ID     uint32 // numbered from 1
	Kernel []uint32
	Native []uint32
	Python []uint32
	// Entry tells for each Python frame whether it entered the interpreter from
	// C: native frames of the evaluation function stand for the Python frames
	// up to and including such a one.
	Entry []bool
	// Why each part ended.
	KernelStop, NativeStop, PythonStop StopReason
}

// Sample is one counter overflow.
type Sample struct {
	Time     int64 // CLOCK_MONOTONIC, ns
	CPU      int32
	PID, TID int32
	Stack    uint32 // 0: no stack
	// Value is the counted amount the sample stands for: events, or ns for
	// clock events (the period, with a fixed period).
	Value int64
	// Counter is the CPU's counter itself at that moment, since recording began,
	// in the same unit, while it had the hardware ([Meta].CountedShare): what lies
	// between two samples was really counted. 0: not known, as in older recordings.
	Counter int64
	// Kernel: the CPU was in kernel mode. Ctx: in interrupt context or not.
	Kernel bool
	Ctx    sched.Context
	// GIL and Collecting tell what the interpreter did; see [GIL].
	GIL        GIL
	Collecting bool // garbage, in the thread that has the GIL
}

// GIL says who had the GIL of a thread's interpreter, read in the thread itself.
type GIL uint8

// Who had it. Unknown are threads without Python, thread states that were not
// found, and builds that have no GIL.
const (
	GILUnknown GIL = iota
	GILOwn         // the thread
	GILOther       // another thread
	GILFree        // nobody
)

// Loss counts what a recording could not keep.
type Loss struct {
	// Events and Samples that found no place in a CPU's ring.
	Events, Samples uint64
	// ThinnedStacks: blocked stacks left out on purpose, see StopThinned.
	ThinnedStacks uint64
	// Throttled: times the kernel stopped a counter for a while.
	Throttled uint64
	// Unresolved: Python frames whose code object was gone when it was read.
	Unresolved uint64
	// IdleSkipped: overflows on an idle CPU, which are no samples.
	IdleSkipped uint64
	// SideBand: perf side-band records lost (mmap, comm, …).
	SideBand uint64
	// StolenNs is what the host of a virtual machine took from all its CPUs while
	// tasks wanted to run, in steps of 10 ms.
	StolenNs int64 `json:",omitempty"`
}
