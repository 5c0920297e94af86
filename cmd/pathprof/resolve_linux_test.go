// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
	"pathprof/unwind/proc"
)

// written keeps what a resolver writes.
type written struct {
	frames map[uint32]recording.Frame
	stacks map[uint32][]uint32 // native frames
}

func (w *written) Frame(f recording.Frame) error {
	w.frames[f.ID] = f
	return nil
}

func (w *written) Stack(s recording.Stack) error {
	w.stacks[s.ID] = append([]uint32(nil), s.Native...)
	return nil
}

func (w *written) Symbols([]recording.Symbol) error { return nil }

func (w *written) leaf(t *testing.T, r *resolver, pid int32, s *bpf.Stack) recording.Frame {
	t.Helper()
	id, err := r.stack(pid, s)
	if err != nil {
		t.Fatal(err)
	}
	return w.frames[w.stacks[id][0]]
}

func newWritten() (*written, *resolver) {
	w := &written{map[uint32]recording.Frame{}, map[uint32][]uint32{}}
	return w, newResolver(w, nil, false)
}

// stackAt is a stack of one address that ran.
func stackAt(pc uint64) *bpf.Stack {
	return &bpf.Stack{Raw: []byte("one"), Native: []uint64{pc | bpf.NativeExact}, NativeStop: recording.StopComplete}
}

// A library may run before the side band tells of its mapping: the samples of that
// time have its name, and those that came before are no reason to leave out the rest.
func TestCodeBeforeItsMapping(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := uint64(reflect.ValueOf(stackAt).Pointer())

	t.Run("read", func(t *testing.T) {
		w, r := newWritten()
		pid := int32(os.Getpid())
		r.executed(pid)
		if f := w.leaf(t, r, pid, stackAt(here)); filepath.Base(f.File) != filepath.Base(self) {
			t.Errorf("file %q of %#x, want %q", f.File, here, self)
		}
	})
	t.Run("told later", func(t *testing.T) {
		const gone = 1 << 30 // above the kernel's limit of pids
		w, r := newWritten()
		r.executed(gone)
		s := stackAt(0x5000_1000)
		if f := w.leaf(t, r, gone, s); f.File != "" {
			t.Errorf("without a mapping: file %q", f.File)
		}
		r.mapped(gone, proc.Mapping{Start: 0x5000_0000, End: 0x5000_2000, Exec: true, Path: "/lib/late.so"})
		if f := w.leaf(t, r, gone, s); f.File != "/lib/late.so" {
			t.Errorf("file %q, want that of the mapping", f.File)
		}
	})
	t.Run("another program", func(t *testing.T) {
		w, r := newWritten()
		pid := int32(os.Getpid())
		r.executed(pid)
		r.mapped(pid, proc.Mapping{Start: 0x1000, End: 0x2000, Exec: true, Path: "/bin/former"})
		if f := w.leaf(t, r, pid, stackAt(here)); f.File != "" {
			t.Errorf("file %q, which is of the program that came after", f.File)
		}
	})
}
