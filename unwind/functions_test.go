// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"

	"pathprof/perfevent/perftest"
)

// The functions of a stripped program begin where its symbols said.
func TestFunctionsOfStripped(t *testing.T) {
	perftest.Require(t, perftest.Tool("strip"))
	file := buildC(t, map[string]string{"a.c": inlineSource, "a.h": inlineHeader}, "-O2")
	symbols, err := OpenSymbols(open(t, file))
	if err != nil {
		t.Fatal(err)
	}
	runIn(t, filepath.Dir(file), "strip", "-o", "b", "a")
	functions, err := OpenFunctions(open(t, filepath.Join(filepath.Dir(file), "b")))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"main", "outer", "complain"} {
		s, ok := symbols.Find(name)
		if !ok {
			t.Fatalf("no symbol %s", name)
		}
		for _, at := range []uint64{s.Start, s.Start + 1, s.Start + s.Size - 1} {
			if got, ok := functions.Start(at); !ok || got != s.Start {
				t.Errorf("%s at %#x: got %#x, %v", name, at, got, ok)
			}
		}
	}
	if got, ok := functions.Start(1); ok {
		t.Errorf("outside of all code: got %#x", got)
	}
	if _, err := OpenFunctions(bytes.NewReader(tinyELF(nil, nil))); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v, want %v", err, ErrNoTable)
	}
}
