// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"slices"
	"testing"
)

// The stack pointer lies 8 or 16 bytes below the caller's, by what has run.
func TestTrampolineTable(t *testing.T) {
	padded := append(slices.Clone(trampolineCode), make([]byte, 5)...)
	for _, tt := range []struct {
		name string
		unit []byte
	}{{"3.12, back to back", trampolineCode}, {"3.13, aligned", padded}} {
		code := bytes.Repeat(tt.unit, 100)
		table, ok := TrampolineTable(code[:64], uint64(len(code)))
		if !ok || table.check() != nil || table.Functions != 100 {
			t.Fatalf("%s: got %+v, %v", tt.name, table, ok)
		}
		for _, unit := range []int{0, 1, 57, 99} {
			at := uint64(unit * len(tt.unit))
			// Before each instruction: sub, call, add, ret.
			for off, want := range map[uint64]int32{0: 8, 4: 16, 6: 16, 10: 8} {
				if r, ok := table.Find(at + off); !ok || r.CFAOff != want || r.RAOff != -8 || r.FP != PlaceSame {
					t.Errorf("%s: at %d of copy %d: got %+v, want %d", tt.name, off, unit, r, want)
				}
			}
		}
	}
	for _, code := range [][]byte{nil, trampolineCode[:10], make([]byte, 64)} {
		if _, ok := TrampolineTable(code, 4096); ok {
			t.Errorf("%x was taken for trampolines", code)
		}
	}
	if _, ok := TrampolineTable(trampolineCode, maxTrampolines+1); ok {
		t.Error("a mapping of any size was accepted")
	}
}
