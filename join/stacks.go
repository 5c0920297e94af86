// SPDX-License-Identifier: Apache-2.0

package join

import (
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
	pseudo map[pseudoKey]*Stack
}

// pseudoKey is a frame that is no code, and the stack it stands on, 0 if none.
type pseudoKey struct {
	name string
	on   uint32
}

func newStackSet(stack func(uint32) *recording.Stack, frame func(uint32) *recording.Frame, frames FrameSet) *stackSet {
	return &stackSet{
		stack: stack, frame: frame, frames: frames,
		merged: make(map[uint32]*Stack), pseudo: make(map[pseudoKey]*Stack),
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
	if len(st.Frames) == 0 {
		st.Frames = []Frame{{Name: "[no stack: " + or(st.Reason, "empty") + "]", Kind: KindPathprof}}
		st.Verdict = NoStack
	}
	s.merged[id] = &st
	return &st
}

// with returns a stack whose innermost frame says name, on top of the stack of
// that number; 0: alone.
func (s *stackSet) with(name string, on uint32) *Stack {
	var base *Stack
	if on != 0 {
		base = s.get(on)
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
