// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pathprof/join/sched"
)

// describe lists the columns of a table as doc.go does.
func describe[T any](t *testing.T, table *table[T]) []string {
	form, err := table.form()
	check(t, err)
	return strings.Split(form.columns, ", ")
}

// The package comment has every column with its type.
func TestDocumentedColumns(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	check(t, err)
	var got []string
	for line := range strings.Lines(string(doc)) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == "//" && f[1] == "|" {
			got = append(got, f[2]+" "+f[3])
		}
	}
	want := slices.Concat(describe(t, eventTable), describe(t, sampleTable), describe(t, stackTable),
		describe(t, frameTable), describe(t, symbolTable), describe(t, indexTable))
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Every word of an enumeration stands for its number.
func TestWords(t *testing.T) {
	for i, w := range kindWords {
		if got := sched.Kind(i).String(); got != w {
			t.Errorf("kind %d: got %q, want %q", i, got, w)
		}
	}
	for i, w := range contextWords {
		if got := sched.Context(i).String(); got != w {
			t.Errorf("context %d: got %q, want %q", i, got, w)
		}
	}
	for i, w := range lockWords {
		if got := sched.LockKind(i).String(); got != w {
			t.Errorf("lock %d: got %q, want %q", i, got, w)
		}
	}
	if len(kindWords) != int(sched.KindThrottle)+1 || len(lockWords) != int(sched.LockCondition)+1 {
		t.Errorf("%d kinds of events, %d of locks have words", len(kindWords), len(lockWords))
	}
	if len(stopWords) != int(StopNoTable)+1 || len(frameWords) != int(FrameKernel)+1 || len(gilWords) != int(GILFree)+1 {
		t.Errorf("%d stop reasons, %d kinds of frames have words", len(stopWords), len(frameWords))
	}
}

// readAll prints what Arrow's own implementation finds in a recording.
const readAll = `
import json, os, sys
import pyarrow.ipc
out = {}
for name in sorted(os.listdir(sys.argv[1])):
    if name.endswith(".arrow"):
        with pyarrow.ipc.open_stream(os.path.join(sys.argv[1], name)) as r:
            table = r.read_all()
            table.validate(full=True)
            out[name] = table.to_pydict()
json.dump(out, sys.stdout)
`

// Another implementation of Arrow reads the same.
func TestPyarrow(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err == nil {
		err = exec.Command(python, "-c", "import pyarrow").Run()
	}
	if err != nil {
		t.Skipf("pyarrow cannot be imported: %v", err)
	}
	dir, w := finished(t, "x", 64, 300)
	text, err := exec.Command(python, "-c", readAll, dir).Output()
	check(t, err)
	var got map[string]map[string][]any
	check(t, json.Unmarshal(text, &got))
	samples := got["samples.arrow"]
	for i, s := range w.samples {
		if fmt.Sprint(samples["tid"][i], samples["kernel_mode"][i]) != fmt.Sprint(s.TID, s.Kernel) {
			t.Fatalf("sample %d differs", i)
		}
	}
	for i, s := range w.stacks {
		python, entry := []any{}, []any{}
		for j := range s.Python {
			python, entry = append(python, float64(s.Python[j])), append(entry, s.Entry[j])
		}
		if !reflect.DeepEqual(got["stacks.arrow"]["python"][i], any(python)) ||
			!reflect.DeepEqual(got["stacks.arrow"]["python_entry"][i], any(entry)) {
			t.Fatalf("stack %d differs: %v", i, got["stacks.arrow"]["python"][i])
		}
	}
	for i, f := range w.frames {
		if got["frames.arrow"]["name"][i] != f.Name || got["frames.arrow"]["eval"][i] != f.Eval {
			t.Fatalf("frame %d differs", i)
		}
	}
	rows := 0
	for name, columns := range got {
		if strings.HasPrefix(name, "events-") {
			rows += len(columns["time_ns"])
		}
		check(t, os.Remove(filepath.Join(dir, name)))
	}
	if rows != len(w.events) {
		t.Errorf("got %d events of %d", rows, len(w.events))
	}
}

func FuzzMessage(f *testing.F) {
	for _, table := range []interface{ encoded(testing.TB) []byte }{
		encodedTable[sched.Event]{eventTable}, encodedTable[Stack]{stackTable}, encodedTable[Frame]{frameTable},
	} {
		text := table.encoded(f)
		m, err := parseMessage(text)
		check(f, err)
		f.Add(text)
		f.Add(text[m.size:])
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := parseMessage(text)
		if err != nil {
			return
		}
		if m.size < 8 || m.size > int64(len(text)) || m.body < 0 {
			t.Errorf("got size %d, body %d of %d bytes", m.size, m.body, len(text))
		}
		if shape, err := m.batch(); err == nil && (shape.rows < 0 || shape.rows > maxBatchRows) {
			t.Errorf("got %d rows", shape.rows)
		}
		if m.kind == headerSchema {
			m.columns()
		}
	})
}

// encodedTable encodes a batch of one row.
type encodedTable[T any] struct{ table *table[T] }

func (e encodedTable[T]) encoded(t testing.TB) []byte {
	enc := newEncoder(e.table)
	check(t, enc.write(make([]T, 1)))
	return enc.out.Bytes()
}
