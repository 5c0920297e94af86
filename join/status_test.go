// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"

	"pathprof/perfevent/recording"
)

// Who takes the GIL, or hands it over, is told from who released it, also where the
// interpreter is stripped.
func TestTakingGIL(t *testing.T) {
	const python, libc, other = "/usr/bin/python3.12", "/lib/libc.so.6", "/lib/_ssl.so"
	native := func(file, name string) recording.Frame {
		return recording.Frame{Kind: recording.FrameNative, File: file, Name: name}
	}
	eval := recording.Frame{Kind: recording.FrameNative, File: python, Name: "_PyEval_EvalFrameDefault", Eval: true}
	for _, c := range []struct {
		name   string
		frames []recording.Frame // innermost first
		want   bool
	}{
		{"takes", []recording.Frame{native(libc, "pthread_cond_timedwait"), native(python, "take_gil.isra.0"), native(python, "_Py_HandlePending"), eval}, true},
		{"takes, inlined", []recording.Frame{{File: python, Name: "acquire", Inlined: []recording.Symbol{{Name: "take_gil"}}}, eval}, true},
		{"takes, stripped", []recording.Frame{native(libc, ""), native(python, ""), native(python, "PyEval_RestoreThread"), native(other, "read"), eval}, true},
		{"hands over", []recording.Frame{native(libc, "futex"), native(python, "drop_gil"), native(python, "_Py_HandlePending"), eval}, true},
		{"hands over, stripped", []recording.Frame{native(libc, ""), native(python, "[python3.12+0x10]"), native(python, "_Py_HandlePending"), eval}, true},
		{"hands over in the evaluation function", []recording.Frame{native(python, "drop_gil"), eval}, true},
		{"releases", []recording.Frame{native(python, "drop_gil"), native(python, "PyEval_SaveThread"), native(other, "read"), eval}, false},
		{"reads", []recording.Frame{native(libc, "read"), native(other, "read"), eval}, false},
		{"a destructor reads", []recording.Frame{native(libc, "read"), native(other, "dealloc"), native(python, "_Py_RunGC"), native(python, "_Py_HandlePending"), eval}, false},
		{"a signal's handler reads", []recording.Frame{native(libc, "read"), eval, native(python, ""), native(python, "_Py_HandlePending"), eval}, false},
		{"computes", []recording.Frame{eval, native(python, "PyGILState_Ensure")}, false},
		{"nothing known", nil, false},
	} {
		stack := &recording.Stack{}
		for i := range c.frames {
			stack.Native = append(stack.Native, uint32(i))
		}
		got := isTakingGIL(stack, func(id uint32) *recording.Frame { return &c.frames[id] })
		if got != c.want {
			t.Errorf("%s: got %v", c.name, got)
		}
	}
}
