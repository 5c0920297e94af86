// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"bytes"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// symbolText has a frame with inlined functions, one with a name alone, and one
// without.
const symbolText = `meta {"format":1}
frame 1 native "" "/lib/a.so" 0 0 0x10 aa eval
frame 2 native "" "/lib/a.so" 0 0 0x20 aa
frame 3 native "" "/lib/a.so" 0 0 0x30 aa
frame 4 python "f" "/app.py" 3 1 0x40
`

func symbolsOf() [][]Symbol {
	return [][]Symbol{
		{{1, "inner", "/src/a.h", 7, 5}, {1, "middle", "/src/a.h", 17, 15}, {1, "outer", "/src/a.c", 27, 20}},
		{{Frame: 2, Name: "plain"}},
	}
}

// Symbols come to their frames whatever the size of batches, and as text.
func TestSymbols(t *testing.T) {
	d, err := ParseText(strings.NewReader(symbolText))
	check(t, err)
	want := append([]Frame(nil), d.frames...)
	list := symbolsOf()
	want[1].Name, want[1].Source, want[1].Line, want[1].FirstLine = "outer", "/src/a.c", 27, 20
	want[1].Inlined = list[0][:2]
	want[2].Name = "plain"
	for _, rows := range []int{1, 2, 100} {
		t.Run(fmt.Sprint("batches of ", rows), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "x.pathprof")
			w, err := Create(dir, Meta{Format: FormatVersion}, Options{RowsPerBatch: rows})
			check(t, err)
			for _, f := range d.frames[1:] {
				check(t, w.Frame(f))
			}
			for _, s := range list {
				check(t, w.Symbols(s))
			}
			check(t, w.Close(Meta{Format: FormatVersion}))
			r := openDir(t, dir)
			got, err := r.Frames()
			check(t, err)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
			var text bytes.Buffer
			check(t, WriteText(&text, r))
			again, err := ParseText(&text)
			check(t, err)
			if !reflect.DeepEqual(again.frames, want) {
				t.Errorf("as text: got\n%+v\nwant\n%+v", again.frames, want)
			}
		})
	}
}

// Symbols of frames that are none, or not native, change nothing and are counted.
func TestStraySymbols(t *testing.T) {
	d, err := ParseText(strings.NewReader(symbolText))
	check(t, err)
	before := append([]Frame(nil), d.frames...)
	stray := []Symbol{{Frame: 0, Name: "zero"}, {Frame: 4, Name: "python"}, {Frame: 5, Name: "none"}, {Frame: 1 << 31, Name: "far"}}
	if n := AddSymbols(d.frames, stray); n != len(stray) || !reflect.DeepEqual(d.frames, before) {
		t.Errorf("got %d stray symbols and %+v", n, d.frames)
	}
	deep := make([]Symbol, 10*maxInlined)
	for i := range deep {
		deep[i] = Symbol{Frame: 1, Name: fmt.Sprint(i)}
	}
	AddSymbols(d.frames, deep)
	if f := &d.frames[1]; len(f.Inlined) != maxInlined || f.Name != fmt.Sprint(len(deep)-1) {
		t.Errorf("%d inlined functions in %q", len(f.Inlined), f.Name)
	}
	for _, line := range []string{"symbol 9 \"x\" \"\" 0 0", "symbol 1 x", "symbol one \"x\" \"\" 0 0", "symbol 1 \"x\" \"\" 0 1e3"} {
		if _, err := ParseText(strings.NewReader(symbolText + line)); err == nil {
			t.Errorf("%s: no error", line)
		}
	}
}
