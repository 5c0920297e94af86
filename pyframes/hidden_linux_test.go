// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/binary"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// A walk that looks at code objects only, as the kernel's does, meets frames of
// the interpreter's own. They say so, and nothing else does.
func TestHiddenFrames(t *testing.T) {
	const source = `
import os
class A:
    def __init__(self, block=False):
        if block:
            print("ready", flush=True)
            os.read(0, 1)
def make(block):
    return A(block)
for i in range(1000):
    make(False)
make(True)
`
	perftest.Require(t, perftest.Python("3.13"))
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.13"), "hidden", source)
	waitBlocked(t, child.PID)
	p := openProcess(t, child.PID)
	states, err := p.ThreadStates()
	if err != nil || len(states) != 1 {
		t.Fatalf("got %d thread states, %v", len(states), err)
	}
	var got []string
	frame, err := readWord(p.mem, states[0].Addr+uint64(p.offsets.ThreadFrame))
	for err == nil && frame != 0 {
		raw := make([]byte, 80)
		if err = readFull(p.mem, raw, frame); err != nil {
			break
		}
		frame = binary.LittleEndian.Uint64(raw[p.offsets.FrameBack:])
		if uint32(raw[p.offsets.FrameOwner]) == p.offsets.OwnerShim {
			continue
		}
		f, complete, err := p.frame(raw)
		if err != nil {
			t.Fatal(err)
		}
		code, err := p.ReadCode(f.Code)
		if err != nil {
			t.Fatal(err)
		}
		if code.Hidden == complete {
			t.Errorf("%s: hidden is %v, complete %v", code.Name, code.Hidden, complete)
		}
		name := code.Name
		if code.Hidden {
			name = "hidden"
		}
		got = append(got, name)
	}
	if text := strings.Join(got, " "); err != nil || text != "A.__init__ hidden make <module>" {
		t.Errorf("got %s, %v", text, err)
	}
}
