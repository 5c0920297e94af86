// SPDX-License-Identifier: Apache-2.0

package join

import (
	"slices"
	"strings"
	"sync"

	"pathprof/perfevent/recording"
)

// missing says whether the top of a Python stack may be missing from a stack.
type missing uint8

const (
	missingNone missing = iota
	// missingThread: no thread state was found. Right for a thread that never
	// runs Python; one that does is not known as such at first.
	missingThread
	missingTop // the Python part could not be read, or there is no stack
)

// missingOf judges a stack without Python frames. A process without interpreter,
// or with one that is refused, is not in doubt: its native frames are the stack.
func missingOf(s *recording.Stack) missing {
	if len(s.Python) > 0 {
		return missingNone
	}
	switch s.PythonStop {
	case recording.StopFault, recording.StopBadFrame, recording.StopDepth, recording.StopThinned:
		return missingTop
	case recording.StopNoThread:
		return missingThread
	}
	if len(s.Kernel) == 0 && len(s.Native) == 0 {
		return missingTop
	}
	return missingNone
}

// stackSet merges stacks when they are first asked for. The same number gives
// the same *Stack. Safe for concurrent use.
type stackSet struct {
	stack  func(id uint32) *recording.Stack // nil if there is none
	frame  func(id uint32) *recording.Frame // nil if there is none
	frames FrameSet

	mu     sync.Mutex
	merged map[uint32]*Stack
	// blocked are those of waits; see waited.
	blocked map[uint32]*Stack
	pseudo  map[pseudoKey]*Stack
}

// pseudoKey is a frame that is no code, and the stack it stands on, 0 if none.
type pseudoKey struct {
	name string
	on   uint32
}

func newStackSet(stack func(uint32) *recording.Stack, frame func(uint32) *recording.Frame, frames FrameSet) *stackSet {
	return &stackSet{
		stack: stack, frame: frame, frames: frames,
		merged: make(map[uint32]*Stack), blocked: make(map[uint32]*Stack), pseudo: make(map[pseudoKey]*Stack),
	}
}

// get returns the stack of that number. One without any frame gets a frame that
// says why.
func (s *stackSet) get(id uint32) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st, ok := s.merged[id]; ok {
		return st
	}
	raw := s.stack(id)
	if raw == nil {
		// Reached by a damaged recording only; not kept, so that hostile
		// numbers do not fill the map.
		return s.named("[no stack: not recorded]", 0, missingTop)
	}
	st := Merge(raw, s.frame, s.frames)
	st.missing = missingOf(raw)
	st.takingGIL, st.importing = isTakingGIL(raw, s.frame), isImporting(raw, s.frame)
	if len(st.Frames) == 0 {
		st.Frames = []Frame{{Name: "[no stack: " + or(st.Reason, "empty") + "]", Kind: KindPathprof}}
		st.Verdict = NoStack
	}
	st.setTracing()
	s.merged[id] = &st
	return &st
}

// tracerFrames begin the names of what the kernel runs at a tracepoint, and for the
// records of perf: they lie inside of the function whose stack it is. 6.18 has
// __traceiter_X → __bpf_trace_X → bpf_trace_runN → bpf_prog_TAG_NAME.
var tracerFrames = []string{
	"bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "bpf_dispatcher_",
	"trace_call_bpf", "perf_trace_", "perf_call_bpf_enter", "bpf_get_stack", "____bpf_get_stack",
	"bpf_trampoline_", "__bpf_prog_", "perf_event_mmap", "perf_event_comm", "perf_event_fork", "perf_event_task",
}

// tracingFrame stands for them.
const tracingFrame = "[tracing]"

// maxTracerFrames is how deep they are looked for.
const maxTracerFrames = 8

// setTracing puts one frame in the place of those of tracing: what they do is the
// recorder's work, or another tracer's, and no function's below.
func (st *Stack) setTracing() {
	inner := 0
	for i := 0; i < min(len(st.Frames), maxTracerFrames) && st.Frames[i].Kind == KindKernel; i++ {
		name := st.Frames[i].Name
		if slices.ContainsFunc(tracerFrames, func(p string) bool { return strings.HasPrefix(name, p) }) {
			inner = i + 1
		}
	}
	if inner > 0 {
		st.tracing = true
		st.Frames = append([]Frame{{Name: tracingFrame, Kind: KindPathprof}}, st.Frames[inner:]...)
	}
}

// waited returns the stack of that number as it was when the program that took it
// at the switch began.
func (s *stackSet) waited(id uint32) *Stack {
	base := s.get(id)
	if !base.tracing || len(base.Frames) < 2 {
		return base
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st, ok := s.blocked[id]
	if !ok {
		cut := *base
		cut.Frames, cut.tracing = base.Frames[1:], false
		st = &cut
		s.blocked[id] = st
	}
	return st
}

// with returns a stack whose innermost frame says name, on top of the stack of a
// wait of that number; 0: alone.
func (s *stackSet) with(name string, on uint32) *Stack {
	var base *Stack
	if on != 0 {
		base = s.waited(on)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.named(name, on, missingNone)
	if base != nil && len(st.Frames) == 1 && base.Verdict != NoStack {
		st.Frames = append(st.Frames, base.Frames...)
		st.Verdict, st.Reason, st.missing = base.Verdict, base.Reason, base.missing
	}
	return st
}

// none is the stack of a sample or wait that has none.
func (s *stackSet) none(why string) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.named("[no stack: "+why+"]", 0, missingTop)
}

// named returns the pseudo stack of a name; s.mu is held.
func (s *stackSet) named(name string, on uint32, m missing) *Stack {
	key := pseudoKey{name, on}
	st, ok := s.pseudo[key]
	if !ok {
		st = &Stack{Frames: []Frame{{Name: name, Kind: KindPathprof}}, Verdict: NoStack, missing: m}
		s.pseudo[key] = st
	}
	return st
}
