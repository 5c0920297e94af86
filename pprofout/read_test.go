// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"pathprof/join"
)

// packed is the example in the file format.
func packed(t testing.TB) []byte {
	t.Helper()
	p, err := Build(example())
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// What is read back has the same classes, in words, with the same sums, and the
// same stacks. Written again it is the same profile.
func TestRead(t *testing.T) {
	want := example()
	got, err := Read(bytes.NewReader(packed(t)))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Aggregated || got.Samples != 7 || got.Event != "cpu-clock" || got.EndNs != 1000 || len(got.Paths) != 2 {
		t.Fatalf("%+v", got)
	}
	for i := range want.Paths {
		w, g := &want.Paths[i], &got.Paths[i]
		if g.Thread.String() != w.Thread.String() || g.Thread.ID.TID != w.Thread.ID.TID || g.Path.End != w.Path.End-w.Path.Begin {
			t.Errorf("path %d: %+v", i, g.Thread)
		}
		type sums struct{ ns, samples int64 }
		classes, functions := make(map[string]sums), make(map[string]sums)
		for _, c := range w.Classes {
			classes[c.Key.String()] = sums{c.Ns, c.Samples}
		}
		for _, e := range w.Entries {
			words := w.Classes[w.ClassOf[e.Segment]].Key.String() + ": " + words(e.Stack)
			s := functions[words]
			functions[words] = sums{s.ns + e.Values.PathNs, s.samples + e.Values.Samples}
		}
		for _, c := range g.Classes {
			if s := classes[c.Key.String()]; s != (sums{c.Ns, c.Samples}) {
				t.Errorf("class %q: %d ns, %d samples, want %+v", c.Key, c.Ns, c.Samples, s)
			}
		}
		for _, e := range g.Entries {
			words := g.Classes[g.ClassOf[e.Segment]].Key.String() + ": " + words(e.Stack)
			if s := functions[words]; s != (sums{e.Values.PathNs, e.Values.Samples}) {
				t.Errorf("%s: %+v, want %+v", words, e.Values, s)
			}
			delete(functions, words)
		}
		if len(functions) > 0 || len(classes) != len(g.Classes) {
			t.Errorf("path %d: not read: %v", i, functions)
		}
	}
}

// words are a stack's frames with their kinds and lines.
func words(s *join.Stack) string {
	var b strings.Builder
	for _, f := range s.Frames {
		b.WriteString(f.Kind + " " + f.Name + " " + place(f) + "; ")
	}
	return b.String()
}

func place(f join.Frame) string {
	if f.Kind == join.KindNative {
		return f.Mapping + f.BuildID
	}
	return f.File + ":" + string(rune('0'+f.Line)) + string(rune('0'+f.FirstLine))
}

func TestReadOthers(t *testing.T) {
	other := &profile.Profile{SampleType: []*profile.ValueType{{Type: "cpu", Unit: "nanoseconds"}}}
	var b bytes.Buffer
	if err := other.Write(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(&b); err == nil || !strings.Contains(err.Error(), "path/nanoseconds") {
		t.Errorf("another tool's: %v", err)
	}
	if _, err := Read(strings.NewReader("no profile")); err == nil {
		t.Error("no profile: no error")
	}
	if _, err := ReadDir(t.TempDir()); !os.IsNotExist(unwrap(err)) {
		t.Errorf("no file: %v", err)
	}
}

// unwrap returns the innermost error.
func unwrap(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}

// FuzzRead: whatever the file says, the answer is an error or a profile whose
// times add up, and which can be compared.
func FuzzRead(f *testing.F) {
	f.Add(packed(f))
	p, err := profile.ParseData(packed(f))
	if err != nil {
		f.Fatal(err)
	}
	p.Sample[0].Value[0] = -1
	p.Sample[1].Label["state"] = []string{"asleep"}
	var b bytes.Buffer
	if err := p.WriteUncompressed(&b); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		for i := range p.Paths {
			var ns int64
			for _, e := range p.Paths[i].Entries {
				ns += e.Values.PathNs
			}
			if ns != p.Paths[i].Path.End {
				t.Errorf("entries hold %d ns of %d", ns, p.Paths[i].Path.End)
			}
		}
		join.Compare(p, p, join.CompareOptions{})
	})
}
