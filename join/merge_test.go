// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"
	"testing"

	"pathprof/perfevent/recording"
)

// parseStack reads blank-separated frames, innermost first: k:NAME kernel,
// n:NAME@FILE native (*NAME: evaluation function, ? an address in no mapping),
// p:NAME Python (NAME!: entry).
func parseStack(t *testing.T, text string) (*recording.Stack, func(uint32) *recording.Frame) {
	t.Helper()
	s := &recording.Stack{
		KernelStop: recording.StopComplete,
		NativeStop: recording.StopComplete,
		PythonStop: recording.StopComplete,
	}
	frames := []*recording.Frame{nil}
	for _, w := range strings.Fields(text) {
		kind, name, ok := strings.Cut(w, ":")
		if !ok {
			t.Fatalf("frame %q: want KIND:NAME", w)
		}
		id := uint32(len(frames))
		f := &recording.Frame{ID: id, Address: uint64(id) << 8}
		switch kind {
		case "k":
			f.Kind, f.Name = recording.FrameKernel, name
			s.Kernel = append(s.Kernel, id)
		case "n":
			f.Kind = recording.FrameNative
			f.Name = name
			if at := strings.LastIndexByte(name, '@'); at >= 0 { // foo@plt@FILE
				f.Name, f.File = name[:at], name[at+1:]
			}
			if f.Name == "?" {
				f.Name, f.File = "", ""
			}
			f.Name, f.Eval = strings.CutPrefix(f.Name, "*")
			s.Native = append(s.Native, id)
		case "p":
			f.Kind = recording.FramePython
			var entry bool
			f.Name, entry = strings.CutSuffix(name, "!")
			s.Python = append(s.Python, id)
			s.Entry = append(s.Entry, entry)
		default:
			t.Fatalf("frame %q: unknown kind", w)
		}
		frames = append(frames, f)
	}
	return s, func(id uint32) *recording.Frame {
		if int(id) >= len(frames) {
			return nil
		}
		return frames[id]
	}
}

func frameNames(s Stack) string {
	var b []string
	for _, f := range s.Frames {
		b = append(b, f.Name)
	}
	return strings.Join(b, " ")
}

// stop replaces a stop reason that a test case gives.
func stop(r *recording.StopReason, want recording.StopReason) {
	switch want {
	case recording.StopNone:
	case notAsked:
		*r = recording.StopNone
	default:
		*r = want
	}
}

// notAsked is StopNone in a table whose zero means complete.
const notAsked recording.StopReason = 255

func TestMerge(t *testing.T) {
	const (
		// Python 3.11+: main calls work (one evaluation frame), work calls sorted
		// in C, sorted calls key (second evaluation frame), key hashes.
		two = "n:sha256@libcrypto n:update@_hashlib.so n:*eval@libpython n:call@libpython n:*eval@libpython n:Py_Main@libpython n:_start@python " +
			"p:key! p:work p:main!"
		// The same through an extension instead of the interpreter itself.
		extension = "n:*eval@libpython n:apply@ext.so n:vectorcall@libpython n:*eval@libpython n:_start@python p:key! p:work p:main!"
	)
	type stops struct{ kernel, native, python recording.StopReason }
	tests := []struct {
		name    string
		in      string
		keep    FrameSet
		stops   stops
		want    string
		verdict Verdict
		reason  string
	}{
		{name: "merged", in: two, want: "sha256 update key work main", verdict: Merged},
		{name: "merged all", in: two, keep: FramesAll,
			want: "sha256 update key eval call work main eval Py_Main _start", verdict: Merged},
		{name: "merged native", in: two, keep: FramesNative,
			want: "sha256 update eval call eval Py_Main _start", verdict: Merged},
		{name: "extension between is kept", in: extension, want: "key apply work main", verdict: Merged},
		{name: "3.10, every frame enters", in: "n:*eval@python n:*eval@python n:main@python p:f! p:g!",
			want: "f g", verdict: Merged},
		{name: "outermost frame without a mark", in: "n:*eval@python n:main@python p:f p:g", want: "f g", verdict: Merged},
		{name: "kernel on top", in: "k:futex k:syscall n:wait@libc n:*eval@python p:f!",
			want: "futex syscall wait f", verdict: Merged},
		{name: "leaf only, chain lost", in: "n:dict_lookup@python n:? n:garbage@libc p:f! p:g!",
			want: "dict_lookup f g", verdict: Stacked,
			reason: "merge: no evaluation frame seen; native: frame pointers end outside code"},
		{name: "leaf in the evaluation function", in: "n:*eval@python n:? p:f p:g!", want: "f g", verdict: Merged,
			reason: "native: frame pointers end outside code"},
		{name: "generated code at the leaf", in: "n:? n:*eval@python p:f!", want: "[unmapped code] f", verdict: Merged},
		{name: "numbers differ", in: "n:leaf@libm n:*eval@python n:*eval@python n:*eval@python p:f p:g!", want: "leaf f g",
			verdict: Stacked, reason: mismatch},
		{name: "on its way into a function", in: "n:*eval@python n:_PyEval_Vector@python n:sort@ext n:*eval@python n:main@python p:f p:g!",
			want: "sort f g", verdict: Merged},
		{name: "all frames on the way", in: "n:*eval@python n:_PyEval_Vector@python n:sort@ext n:*eval@python n:main@python p:f p:g!",
			keep: FramesAll, want: "eval _PyEval_Vector sort f g eval main", verdict: Merged},
		{name: "on its way out", in: "n:_Py_CheckFunctionResult@python n:*eval@python n:gen_send_ex@python n:*eval@python n:*eval@python p:f p:g! p:h!",
			want: "f g h", verdict: Merged},
		{name: "out of a function that destroys an object",
			in:   "n:_PyFrame_ClearExceptCode@python n:_PyEval_FrameClearAndPop@python n:*eval@python n:*eval@python p:f!",
			want: "f", verdict: Merged},
		{name: "a destructor's way in", verdict: Stacked, reason: mismatch, want: "f g",
			in: "n:*eval@python n:_PyEval_FrameClearAndPop@python n:*eval@python n:*eval@python p:f! p:g!"},
		{name: "frame pointers prove no way in", in: "n:*eval@python n:*eval@python n:? p:f!", want: "f",
			verdict: Stacked, reason: mismatch + "; native: frame pointers end outside code"},
		{name: "ways to call are folded", want: "update sha256_new f",
			in:      "n:_PyObject_Call@python n:update@ssl n:cfunction_vectorcall_O@python n:sha256_new@python n:PyObject_Vectorcall@plt@python n:*eval@python p:f!",
			verdict: Merged},
		{name: "an extension's own names stay", in: "n:call_function@ext n:*eval@python p:f!", want: "call_function f", verdict: Merged},
		{name: "perf's trampolines are folded", in: "n:py::f:/app.py@anon n:*eval@python n:py::f:/app.py@anon n:*eval@python p:f! p:f!",
			want: "f f", verdict: Merged},
		{name: "nothing calls the start of a thread", in: "n:work@ext n:start_thread@libc n:garbage@libm",
			stops: stops{native: recording.StopNoFramePtr, python: recording.StopNoInterp},
			want:  "work start_thread", verdict: NativeOnly, reason: "python: no interpreter known in the process"},
		{name: "frame pointers prove no order", in: "n:leaf@libm n:*eval@python n:? p:f! p:g! p:h!", want: "leaf f g h",
			verdict: Stacked, reason: mismatch + "; native: frame pointers end outside code"},
		{name: "native too deep", in: "n:leaf@libm n:*eval@python n:ext@ext.so n:*eval@python p:f! p:g! p:h!",
			stops: stops{native: recording.StopDepth}, want: "leaf f ext g h",
			verdict: Cut, reason: "native: deeper than the walk goes"},
		{name: "native without a table further out", in: "n:*eval@python n:ext@ext.so p:f! p:g!",
			stops: stops{native: recording.StopNoTable}, want: "f ext g",
			verdict: Cut, reason: "native: unwind table not loaded"},
		{name: "native complete, evaluation frames missing", in: "n:*eval@python n:main@python p:f! p:g!", want: "f g",
			verdict: Stacked, reason: mismatch},
		{name: "python too deep", in: "n:leaf@libm n:*eval@python n:ext@ext.so n:*eval@python n:*eval@python p:f! p:g p:h",
			stops: stops{python: recording.StopDepth}, want: "leaf f ext g h",
			verdict: Cut, reason: "python: deeper than the walk goes"},
		{name: "both cut, more Python", in: "n:leaf@libm n:*eval@python p:f! p:g!",
			stops: stops{native: recording.StopFault, python: recording.StopFault}, want: "leaf f g",
			verdict: Cut, reason: "python: memory not readable at that moment; native: memory not readable at that moment"},
		{name: "python only", in: "p:f p:g!", stops: stops{native: notAsked}, want: "f g", verdict: PythonOnly},
		{name: "native only", in: "n:deflate@libz n:main@gzip", stops: stops{python: recording.StopNoInterp},
			want: "deflate main", verdict: NativeOnly, reason: "python: no interpreter known in the process"},
		{name: "python part not readable", in: "n:*eval@python n:main@python",
			stops: stops{python: recording.StopFault}, want: "eval main", verdict: NativeOnly,
			reason: "python: memory not readable at that moment"},
		{name: "python part empty", in: "n:*eval@python n:sort@ext n:*eval@python n:main@python",
			want: "eval sort eval main", verdict: NativeOnly, reason: mismatch},
		{name: "on its way into the first function", in: "n:*eval@python n:main@python",
			want: "eval main", verdict: NativeOnly},
		{name: "kernel thread", in: "k:kworker", stops: stops{native: notAsked, python: notAsked},
			want: "kworker", verdict: NativeOnly},
		{name: "kernel cut", in: "k:a p:f!", stops: stops{kernel: recording.StopDepth, native: notAsked},
			want: "a f", verdict: PythonOnly, reason: "kernel: deeper than the walk goes"},
		{name: "nothing", stops: stops{native: recording.StopFault, python: recording.StopThinned}, verdict: NoStack,
			reason: "python: left out, the thread blocks too often; native: memory not readable at that moment"},
		{name: "no names", in: "k: n:@/usr/lib/libfoo.so.1 p:!", want: "[kernel] [libfoo.so.1+0x200] [0x300]",
			verdict: Stacked, reason: "merge: no evaluation frame seen"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, frame := parseStack(t, tt.in)
			stop(&s.KernelStop, tt.stops.kernel)
			stop(&s.NativeStop, tt.stops.native)
			stop(&s.PythonStop, tt.stops.python)
			got := Merge(s, frame, tt.keep)
			if frameNames(got) != tt.want || got.Verdict != tt.verdict || got.Reason != tt.reason {
				t.Errorf("got  %s: %s (%s)\nwant %s: %s (%s)",
					got.Verdict, frameNames(got), got.Reason, tt.verdict, tt.want, tt.reason)
			}
		})
	}
}

// Each stop reason has words of its own.
func TestStopWords(t *testing.T) {
	seen := make(map[string]recording.StopReason)
	for r := recording.StopNone; int(r) < len(stopWords); r++ {
		w := StopWords(r)
		if w == "" || strings.HasPrefix(w, "stop reason") {
			t.Errorf("stop reason %d has no words", r)
		}
		if other, ok := seen[w]; ok {
			t.Errorf("stop reasons %d and %d are both %q", other, r, w)
		}
		seen[w] = r
	}
	if len(stopWords) != int(recording.StopNoTable)+1 {
		t.Errorf("words for %d stop reasons, want %d", len(stopWords), recording.StopNoTable+1)
	}
	if w := StopWords(recording.StopReason(len(stopWords))); !strings.HasPrefix(w, "stop reason") {
		t.Errorf("an unknown stop reason is %q", w)
	}
}

func TestFrameSetWords(t *testing.T) {
	for s := FramesPython; s <= FramesAll; s++ {
		if got, err := ParseFrameSet(s.String()); err != nil || got != s {
			t.Errorf("ParseFrameSet(%q) = %v, %v", s, got, err)
		}
	}
	if _, err := ParseFrameSet("some"); err == nil {
		t.Error("ParseFrameSet(some): no error")
	}
}

// FuzzMerge: no frame is invented, none appears twice, the Python frames keep
// their order and are all there, whatever the parts claim.
func FuzzMerge(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8}, uint8(1), uint8(1), uint8(0))
	f.Add([]byte{3, 3, 6, 6, 4}, uint8(2), uint8(7), uint8(2))
	f.Add([]byte{}, uint8(99), uint8(0), uint8(1))
	f.Fuzz(func(t *testing.T, parts []byte, native, python, keep uint8) {
		if len(parts) > 1000 {
			parts = parts[:1000]
		}
		var text []string
		var want []string
		for _, p := range parts {
			text = append(text, [...]string{"k:k", "n:n@ext", "n:n@lib", "n:*e@lib", "n:?", "p:p", "p:p!", "p:q!"}[p%8])
			if p%8 >= 5 {
				want = append(want, text[len(text)-1][2:3])
			}
		}
		s, frame := parseStack(t, strings.Join(text, " "))
		s.NativeStop, s.PythonStop = recording.StopReason(native), recording.StopReason(python)
		got := Merge(s, frame, FrameSet(keep%3))
		var have []string
		seen := make(map[uint64]bool)
		for _, f := range got.Frames {
			if f.Name == "" || f.Kind == "" {
				t.Fatalf("frame without name or kind: %+v", f)
			}
			if f.Address != 0 && seen[f.Address] {
				t.Fatalf("frame twice: %+v", f)
			}
			seen[f.Address] = true
			if f.Kind == KindPython {
				have = append(have, f.Name)
			}
		}
		if FrameSet(keep%3) == FramesNative {
			want = nil
		}
		if strings.Join(have, "") != strings.Join(want, "") {
			t.Fatalf("Python frames %v, want %v", have, want)
		}
	})
}
