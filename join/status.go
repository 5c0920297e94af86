// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"slices"
	"strings"

	"pathprof/perfevent/recording"
)

// Status says what a thread and its interpreter did at a sample. The zero value
// is not known: no Python thread, or a build without a GIL.
type Status string

// The states. A thread that has the GIL runs Python or C code, collects garbage
// or imports; one without it waits for it or runs code that released it.
const (
	StatusUnknown    Status = ""
	StatusGIL        Status = "gil"        // has the GIL
	StatusCollecting Status = "collecting" // has the GIL and collects garbage
	StatusImporting  Status = "importing"  // has the GIL and imports a module
	StatusWaiting    Status = "waiting"    // on its way to the GIL
	StatusReleased   Status = "released"   // runs without the GIL
)

// Words says the state for people.
func (s Status) Words() string {
	switch s {
	case StatusGIL:
		return "with the GIL"
	case StatusCollecting:
		return "garbage collection"
	case StatusImporting:
		return "import"
	case StatusWaiting:
		return "taking the GIL"
	case StatusReleased:
		return "native code without the GIL"
	}
	return "not known"
}

// StatusShare is what a state has of a class' samples and of its time.
type StatusShare struct {
	Status  Status `json:"status"`
	Samples int64  `json:"samples"`
	Ns      int64  `json:"ns"`
}

// takers are functions of CPython that return with the GIL (Python/ceval_gil.h up
// to 3.11, ceval_gil.c after, pystate.c). Stripped interpreters have no name for
// the first, but for the others, which libraries call.
var takers = []string{"take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyGILState_Ensure"}

// handOvers are functions that give the GIL to a thread that asked for it, and take
// it again; up to 3.8 the evaluation function does so itself.
var handOvers = []string{"_Py_HandlePending", "eval_frame_handle_pending"}

// isTakingGIL tells from the native frames whether a thread without the GIL is on
// its way to it, or gives it away to take it again. What Python code called is
// its own matter: the search ends at an evaluation frame.
func isTakingGIL(s *recording.Stack, frame func(uint32) *recording.Frame) bool {
	inside, file := "", "" // the function inside, and its file
	plain := true          // nothing inside but what hands over
	for _, id := range s.Native {
		f := frame(id)
		if f == nil {
			return false
		}
		name, _, _ := strings.Cut(f.Name, ".") // compilers name parts so
		switch {
		case slices.Contains(takers, name) || slices.ContainsFunc(f.Inlined, func(s recording.Symbol) bool { return s.Name == takers[0] }):
			return true
		case slices.Contains(handOvers, name):
			return plain && (file == f.File || inside == "")
		case f.Eval:
			return inside == "drop_gil"
		}
		plain = plain && (name == "" || name[0] == '[' || name == "drop_gil" || isLibc(f.File))
		inside, file = name, f.File
	}
	return false
}

// isLibc tells whether a mapped file is glibc, its threads' library before 2.34, or
// musl.
func isLibc(path string) bool {
	name := path[strings.LastIndexByte(path, '/')+1:]
	return strings.HasPrefix(name, "libc.") || strings.HasPrefix(name, "libc-") || strings.HasPrefix(name, "libpthread") || strings.HasPrefix(name, "ld-musl")
}

// isImporting tells whether the import system has a frame on the stack: its
// bootstrap is frozen into the interpreter.
func isImporting(s *recording.Stack, frame func(uint32) *recording.Frame) bool {
	return slices.ContainsFunc(s.Python, func(id uint32) bool {
		f := frame(id)
		return f != nil && strings.HasPrefix(f.File, "<frozen importlib._bootstrap")
	})
}

// statusOf is the state of a sample on its stack.
func statusOf(s *recording.Sample, st *Stack) Status {
	switch {
	case s.GIL == recording.GILOwn && s.Collecting:
		return StatusCollecting
	case s.GIL == recording.GILOwn && st.importing:
		return StatusImporting
	case s.GIL == recording.GILOwn:
		return StatusGIL
	case s.GIL == recording.GILUnknown:
		return StatusUnknown
	case st.takingGIL:
		return StatusWaiting
	}
	return StatusReleased
}

// addStatus adds samples to the share of their state.
func addStatus(list []StatusShare, s Status, v Values) []StatusShare {
	i := slices.IndexFunc(list, func(have StatusShare) bool { return have.Status == s })
	if i < 0 {
		i = len(list)
		list = append(list, StatusShare{Status: s})
	}
	list[i].Samples += v.Samples
	list[i].Ns += v.PathNs
	return list
}

// sortStatus puts shares in order, most time first.
func sortStatus(list []StatusShare) {
	slices.SortFunc(list, func(a, b StatusShare) int {
		return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Status, b.Status))
	})
}
