// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"errors"
	"os"
	"testing"

	"pathprof/perfevent/perftest"
)

// A program that is linked with libpython is no Python before it has mapped it,
// but it will be.
func TestNotYet(t *testing.T) {
	eachBuild(t, func(t *testing.T, i perftest.Interpreter) {
		if runtimeFile(t, i.Path) == i.Path {
			t.Skip("the program holds the runtime itself")
		}
		f, err := os.Open(i.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var c cached
		if err := c.load(f, i.Path); err != ErrNotYet || !errors.Is(err, ErrNotPython) {
			t.Errorf("got %v, want ErrNotYet, which is an ErrNotPython", err)
		}
	})
}
