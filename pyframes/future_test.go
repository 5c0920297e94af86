// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/binary"
	"errors"
	"testing"
)

// An unknown version is read by its own word where a process proves it: an image
// laid out unlike any known version, whose debug offsets say so.
func TestFutureVersion(t *testing.T) {
	for _, build := range []string{"", "d", "t", "td"} {
		newest := "3.15" + build
		moved := tables[newest]
		moved.ThreadFrame += 8
		moved.CodeFirstLine += 4
		moved.CodeFilename, moved.CodeName = moved.CodeName, moved.CodeFilename
		moved.FrameBack, moved.FrameInstr = moved.FrameInstr, moved.FrameBack
		raw := debugOffsetsOf(moved, maxMinor+1)
		got, err := futureOffsets(raw, maxMinor+1, build)
		if err != nil {
			t.Fatalf("%q: %v", build, err)
		}
		tables["future"] = moved
		m := image("future", "f", 1)
		delete(tables, "future")
		m.half(tableAt+uint64(moved.BytesData), 0x00ef) // 8 units without columns, the first line
		if err := prove(m, runtimeAt, &got); err != nil {
			t.Errorf("%q: %v", build, err)
		}
		frames, err := newProcess(m, runtimeAt, &got).Frames(42, 0, nil)
		if err != nil || len(frames) != 1 || frames[0].Code != imageKey || frames[0].Lasti != 6 {
			t.Errorf("%q: got %+v, %v", build, frames, err)
		}
		// The same memory does not prove the offsets of another layout.
		old := tables[newest]
		if err := prove(m, runtimeAt, &old); err == nil {
			t.Errorf("%q: offsets of another layout were believed", build)
		}
		m.word(stateAt+uint64(moved.ThreadFrame), 0)
		if err := prove(m, runtimeAt, &got); !errors.Is(err, errUnproven) {
			t.Errorf("%q without a frame: got %v, want %v", build, err, errUnproven)
		}
	}
}

// Offsets beyond their structure, or not aligned, are not believed.
func TestFutureOffsetsDamaged(t *testing.T) {
	good := tables["3.15"]
	for _, f := range debugFields {
		if *f.get(&good) == NoField {
			continue
		}
		for _, bad := range []uint64{1 << 40, 1<<64 - 1, 1 << 30} {
			raw := debugOffsetsOf(good, maxMinor+1)
			binary.LittleEndian.PutUint64(raw[8*debugLayouts[maxMinor][f.name]:], bad)
			if _, err := futureOffsets(raw, maxMinor+1, ""); err == nil {
				t.Errorf("%s of %#x was believed", f.name, bad)
			}
		}
	}
	if _, err := futureOffsets(debugOffsetsOf(good, maxMinor+1), maxMinor+1, "t"); err == nil {
		t.Error("a build with the GIL was taken for a free-threaded one")
	}
	if _, err := futureOffsets(debugOffsetsOf(good, maxMinor+1), maxMinor+2, ""); err == nil {
		t.Error("another version's were believed")
	}
}
