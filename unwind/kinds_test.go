// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"pathprof/perfevent/perftest"
)

// walkSnapshots builds the program with a compiler and runs it.
func walkSnapshots(t *testing.T, compiler string, flags ...string) []snapshot {
	t.Helper()
	perftest.Require(t, perftest.Tool(compiler))
	program := filepath.Join(t.TempDir(), "walk")
	args := append([]string{"-O2", "-fomit-frame-pointer", "-pthread", "-o", program, "testdata/walk.c"}, flags...)
	if text, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, text)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	list := parseSnapshots(t, out)
	if len(list) != 8 {
		t.Fatalf("got %d snapshots, want 8", len(list))
	}
	return list
}

// Where a program has .debug_frame only, beside the C library's .eh_frame, the
// walk finds the whole chain by both.
func TestWalkByDebugFrame(t *testing.T) {
	flags := []string{"-g", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}
	for _, kind := range []string{"-pie", "-static"} {
		for _, s := range walkSnapshots(t, "gcc", append(flags, kind)...) {
			t.Run(kind+" "+s.name, func(t *testing.T) {
				s.backtrace = nil // the C library's own unwinder does not know it
				checkSnapshot(t, s, nil)
			})
		}
	}
}

// beginsChain tells whether names are the first of a chain in which * stands for
// any.
func beginsChain(names, chain []string) bool {
	switch {
	case len(names) == 0 || len(chain) == 0:
		return true // cut, or beyond main
	case chain[0] == "*":
		return beginsChain(names, chain[1:]) || beginsChain(names[1:], chain)
	}
	return names[0] == chain[0] && beginsChain(names[1:], chain[1:])
}

// musl describes few of its own functions. A walk to main needs none of them and
// is whole; one through them ends with a reason, at a frame that is right.
func TestWalkMusl(t *testing.T) {
	for _, kind := range []string{"-static", "-static-pie", "-pie", "-no-pie"} {
		if kind == "-static-pie" {
			continue // Debian's musl-gcc makes no such programs
		}
		whole, reasons := 0, map[StopReason]int{}
		for _, s := range walkSnapshots(t, "musl-gcc", "-DMUSL", kind) {
			t.Run(kind+" "+s.name, func(t *testing.T) {
				code := newSpace(t, s.maps)
				frames, stop := Walk(s.regs, s.memory, code.find, nil)
				var names []string
				for _, f := range frames {
					names = append(names, code.name(f.Lookup()))
				}
				if !beginsChain(names, s.chain) || len(names) < 2 {
					t.Errorf("got %v (%v), want %v", names, stop, s.chain)
				}
				switch {
				case stop == StopComplete && matchChain(names, s.chain):
					whole++
				case stop == StopComplete:
					t.Errorf("called complete: %v, want %v", names, s.chain)
				case stop == StopNoRule || stop == StopNoFramePtr:
					// At main at the latest, what called it is musl's.
					if !slices.Contains(names, "main") && s.name != "qsort" && s.name != "thread" {
						t.Errorf("ends too early: %v (%v)", names, stop)
					}
					reasons[stop]++
				default:
					t.Errorf("stopped: %v", stop)
				}
			})
		}
		t.Logf("%s: %d whole, %v", kind, whole, reasons)
	}
}
