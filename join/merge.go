// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"slices"
	"strings"

	"pathprof/perfevent/recording"
)

// Words of [Frame].Kind and [Function].Kind.
const (
	KindPython   = "python"
	KindNative   = "native"
	KindKernel   = "kernel"
	KindPathprof = "pathprof" // no code: [unsampled] and the like
)

// FrameSet says which frames a merged stack keeps.
type FrameSet uint8

// The sets of frames.
const (
	// FramesPython keeps Python frames, the native frames the innermost of them
	// called, extension code between them, and the kernel. The interpreter's own
	// frames between Python frames are folded, and so are its ways of calling a
	// function, and what started it.
	FramesPython FrameSet = iota
	// FramesNative keeps native and kernel frames only, as a debugger shows them.
	FramesNative
	// FramesAll keeps everything; an evaluation frame stands outside of the
	// Python frames it runs.
	FramesAll
)

// frameSetWords are the words of [ParseFrameSet].
var frameSetWords = [...]string{FramesPython: "python", FramesNative: "native", FramesAll: "all"}

// String returns the set's word.
func (s FrameSet) String() string {
	if int(s) < len(frameSetWords) {
		return frameSetWords[s]
	}
	return fmt.Sprintf("FrameSet(%d)", uint8(s))
}

// ParseFrameSet reads python, native or all.
func ParseFrameSet(word string) (FrameSet, error) {
	for i, w := range frameSetWords {
		if w == word {
			return FrameSet(i), nil
		}
	}
	return 0, fmt.Errorf("frames %q: want %s", word, strings.Join(frameSetWords[:], ", "))
}

// stopWords says why a part of a stack ended, in words.
var stopWords = [...]string{
	recording.StopNone:        "not asked for",
	recording.StopComplete:    "complete",
	recording.StopDepth:       "deeper than the walk goes",
	recording.StopFault:       "memory not readable at that moment",
	recording.StopBadFrame:    "implausible frame",
	recording.StopNoInterp:    "no interpreter known in the process",
	recording.StopNoThread:    "no thread state",
	recording.StopNoFramePtr:  "frame pointers end outside code",
	recording.StopThinned:     "left out, the thread blocks too often",
	recording.StopUnsupported: "not supported",
	recording.StopNoRule:      "code without call frame information",
	recording.StopNoTable:     "unwind table not loaded",
}

// StopWords returns a stop reason in words, as they stand in [Stack].Reason.
func StopWords(r recording.StopReason) string {
	if int(r) < len(stopWords) {
		return stopWords[r]
	}
	return fmt.Sprintf("stop reason %d", uint8(r))
}

// mismatch is the reason of a stack whose parts cannot be put in order.
const mismatch = "merge: evaluation frames and Python entries differ"

// merger is a stack on its way to a merged one. All lists are innermost first.
type merger struct {
	keep         FrameSet
	kernel       []Frame
	native       []Frame
	eval         []bool // per native frame: inside the evaluation function
	evals        int
	unlinked     int             // evaluation frames, from the inside, without Python frames
	interpreter  map[string]bool // files with evaluation frames
	runs         [][]Frame       // of Python frames, each what one evaluation frame runs
	pyStop, stop recording.StopReason
}

// Merge puts the parts of a recorded stack in one order. frame returns a frame
// by its number, nil if there is none.
//
// A native frame inside CPython's evaluation function stands for a run of Python
// frames, up to and including one that entered the interpreter from C: every
// Python frame up to 3.10, the innermost after each C-to-Python call since 3.11.
// So the runs and the evaluation frames of one stack pair up, innermost first.
// That is taken as proven in three cases only:
//
//   - both parts have as many of them: [Merged];
//   - there is one evaluation frame more, and both parts are complete: [Merged],
//     too. A frame is linked after the evaluation function was entered, and
//     taken off before it is left; meanwhile it has no Python frame. One that
//     called others has: only the innermost can be without, see unlinkedInside;
//   - one part was cut on its outer side, by a limit, a fault, or for want of a
//     rule. Pairs are counted from the inside, which that leaves whole: [Cut].
//
// A chain of frame pointers that ends outside code proves nothing: a function
// without a frame pointer hides its caller, so evaluation frames may be missing
// in the middle. Then, and where the numbers differ, the native frames that lie
// inside the first evaluation frame come first, then all Python frames:
// [Stacked]. For the usual stack of a stock interpreter, one native leaf and a
// complete Python part, that order is right, too.
func Merge(s *recording.Stack, frame func(id uint32) *recording.Frame, keep FrameSet) Stack {
	m := merger{keep: keep, pyStop: s.PythonStop, stop: s.NativeStop}
	for _, id := range s.Kernel {
		m.kernel = append(m.kernel, kernelFrame(frame(id)))
	}
	m.takeNative(s.Native, frame)
	m.takePython(s, frame)
	v, zip, reason := m.judge()
	if w := cutWords("kernel", s.KernelStop); w != "" {
		reason = joinReasons(reason, w)
	}
	out := Stack{Frames: m.kernel, Verdict: v, Reason: reason}
	switch {
	case keep == FramesNative:
		out.Frames = append(out.Frames, m.native...)
	case zip:
		out.Frames = m.zipped(out.Frames)
	default:
		out.Frames = m.stacked(out.Frames)
	}
	return out
}

// takeNative keeps native frames up to the first address that lies in no
// mapping: a garbage return address must not look like a function, and whatever
// follows it is garbage, too. The innermost address is the program counter and
// always true, so without a mapping it is generated code.
func (m *merger) takeNative(ids []uint32, frame func(uint32) *recording.Frame) {
	for i, id := range ids {
		f := frame(id)
		if f == nil || f.Name == "" && f.File == "" {
			if i == 0 {
				m.native = append(m.native, Frame{Name: "[unmapped code]", Kind: KindNative})
				m.eval = append(m.eval, false)
				continue
			}
			if m.stop == recording.StopComplete {
				m.stop = recording.StopNoFramePtr
			}
			return
		}
		for j := range f.Inlined {
			m.native = append(m.native, inlinedFrame(f, &f.Inlined[j]))
			m.eval = append(m.eval, false)
		}
		m.native = append(m.native, nativeFrame(f))
		m.eval = append(m.eval, f.Eval)
		if outermost[f.Name] {
			m.stop = recording.StopComplete
			return
		}
		if !f.Eval {
			continue
		}
		m.evals++
		if m.interpreter == nil {
			m.interpreter = make(map[string]bool)
		}
		m.interpreter[f.File] = true
	}
}

// takePython cuts the Python frames into runs.
func (m *merger) takePython(s *recording.Stack, frame func(uint32) *recording.Frame) {
	start := 0
	frames := make([]Frame, 0, len(s.Python))
	for i, id := range s.Python {
		frames = append(frames, pythonFrame(frame(id)))
		if i < len(s.Entry) && s.Entry[i] {
			m.runs = append(m.runs, frames[start:i+1])
			start = i + 1
		}
	}
	if start < len(frames) {
		m.runs = append(m.runs, frames[start:])
	}
}

// judge says what is known of the order, whether the parts can be zipped, and
// what is missing.
func (m *merger) judge() (v Verdict, zip bool, reason string) {
	python, native := cutWords("python", m.pyStop), cutWords("native", m.stop)
	reason = joinReasons(python, native)
	countable := m.stop != recording.StopNoFramePtr
	switch {
	case len(m.runs) == 0 && len(m.native) == 0 && len(m.kernel) == 0:
		return NoStack, false, reason
	case len(m.runs) == 0:
		// A kernel thread, a program without Python, or a Python part that
		// could not be read at all: reason tells which.
		if m.evals > 1 && python == "" {
			reason = joinReasons(mismatch, reason)
		}
		return NativeOnly, false, reason
	case python != "":
		zip = m.evals >= len(m.runs) && countable
		return Cut, zip, reason
	case len(m.native) == 0:
		return PythonOnly, false, reason
	case m.evals == len(m.runs):
		return Merged, true, reason
	case m.evals == len(m.runs)+1 && countable && m.unlinkedInside():
		m.unlinked = 1
		return Merged, true, reason
	case m.evals > 0 && m.evals < len(m.runs) && native != "" && countable:
		return Cut, true, reason
	case m.evals > 0:
		return Stacked, false, joinReasons(mismatch, reason)
	}
	return Stacked, false, joinReasons("merge: no evaluation frame seen", reason)
}

// unlinkedInside says whether the evaluation frame without Python frames must be
// the innermost. It need not be where the end of a Python frame runs destructors
// (3.12 and later): then an outer one may have none either.
func (m *merger) unlinkedInside() bool {
	for i := slices.Index(m.eval, true) + 1; i < len(m.native); i++ {
		if m.eval[i] && clearing(m.native[i-1].Name) {
			return false
		}
	}
	return true
}

// zipped appends native and Python frames in their proven order.
func (m *merger) zipped(out []Frame) []Frame {
	next, unlinked := 0, m.unlinked
	for i, f := range m.native {
		switch {
		case m.eval[i] && unlinked > 0:
			unlinked--
		case m.eval[i] && next < len(m.runs):
			out = append(out, m.runs[next]...)
			next++
		}
		switch {
		case m.keep == FramesAll:
			out = append(out, f)
		case m.folded(i): // stands for Python frames, or for the way to them
		case next == 0: // called by the innermost Python frame
			out = append(out, f)
		case next < len(m.runs) && !m.interpreter[f.Mapping]:
			out = append(out, f)
		}
	}
	for ; next < len(m.runs); next++ {
		out = append(out, m.runs[next]...)
	}
	return out
}

// folded tells whether a native frame says no more than that Python code runs.
// What the interpreter's own functions have inlined is no news either.
func (m *merger) folded(i int) bool {
	f := &m.native[i]
	return m.eval[i] || m.interpreter[f.Mapping] && (f.Inlined || isPlumbing(f.Name)) || isTrampoline(f.Name)
}

// stacked appends native frames, then Python frames.
func (m *merger) stacked(out []Frame) []Frame {
	for i, f := range m.native {
		// What lies outside an evaluation frame may lie outside Python frames,
		// too; there is no place for it.
		if m.keep == FramesPython && len(m.runs) > 0 {
			if m.eval[i] {
				break
			}
			if m.folded(i) {
				continue
			}
		}
		out = append(out, f)
	}
	for _, run := range m.runs {
		out = append(out, run...)
	}
	return out
}

// cutWords says what is missing of a part; empty if nothing is.
func cutWords(part string, r recording.StopReason) string {
	if r == recording.StopNone || r == recording.StopComplete {
		return ""
	}
	return part + ": " + StopWords(r)
}

func joinReasons(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

func kernelFrame(f *recording.Frame) Frame {
	if f == nil {
		return Frame{Name: "[kernel]", Kind: KindKernel}
	}
	// Without a name (kptr_restrict) an address tells less than one group.
	return Frame{Name: or(f.Name, "[kernel]"), Kind: KindKernel, Address: f.Address}
}

func nativeFrame(f *recording.Frame) Frame {
	return Frame{
		Name: or(f.Name, fmt.Sprintf("[%s+%#x]", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Address)),
		File: f.Source, Line: f.Line, FirstLine: f.FirstLine,
		Kind: KindNative, Address: f.Address, Mapping: f.File, BuildID: f.BuildID,
	}
}

// inlinedFrame is a function without code of its own, at the address of the one
// that has it.
func inlinedFrame(f *recording.Frame, s *recording.Symbol) Frame {
	return Frame{
		Name: or(s.Name, "[inlined]"), File: s.File, Line: s.Line, FirstLine: s.FirstLine,
		Kind: KindNative, Address: f.Address, Mapping: f.File, BuildID: f.BuildID, Inlined: true,
	}
}

func pythonFrame(f *recording.Frame) Frame {
	if f == nil {
		return Frame{Name: "[unknown Python function]", Kind: KindPython}
	}
	return Frame{
		Name: or(f.Name, fmt.Sprintf("[%#x]", f.Address)), File: f.File,
		Line: f.Line, FirstLine: f.FirstLine, Kind: KindPython, Address: f.Address,
	}
}

// or returns s, or other if s is empty.
func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}
