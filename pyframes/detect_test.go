// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// runtimeFile returns the ELF file with the runtime of an interpreter: its
// library if it has one.
func runtimeFile(t testing.TB, python string) string {
	t.Helper()
	libs, err := filepath.Glob(filepath.Join(filepath.Dir(python), "..", "lib", "libpython3.*.so.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	if len(libs) > 0 {
		return libs[0]
	}
	return python
}

func TestDetect(t *testing.T) {
	perftest.Pythons(t)
	for _, i := range perftest.Interpreters() {
		if !slices.Contains(perftest.Supported, i.Minor()) {
			continue
		}
		path := runtimeFile(t, i.Path)
		t.Run(path, func(t *testing.T) {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			// The file's name is no source that can be relied on.
			rt, err := Detect(f, "/some/name")
			if err != nil {
				t.Fatal(err)
			}
			if rt.Version != i.Version {
				t.Errorf("version: got %s, want %s", rt.Version, i.Version)
			}
			if want := tables["3."+strconv.Itoa(minorOf(t, i.Minor()))+rt.Build]; rt.Offsets != want && i.Minor() != "3.6" || rt.Build == "d" != i.Debug {
				t.Errorf("offsets: got %+v", rt.Offsets)
			}
			compareSymbols(t, path, rt)
		})
	}
}

// compareSymbols compares addresses with those debug/elf finds in all symbols.
func compareSymbols(t *testing.T, path string, rt *Runtime) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	if more, err := f.Symbols(); err == nil {
		all = append(all, more...)
	}
	for _, s := range all {
		r := [2]uint64{s.Value, s.Value + s.Size}
		switch s.Name {
		case "_PyRuntime":
			if rt.RuntimeVaddr != s.Value {
				t.Errorf("runtime: got %#x, want %#x", rt.RuntimeVaddr, s.Value)
			}
		case "_PyEval_EvalFrameDefault", "_PyEval_EvalFrameDefault.cold":
			if !slices.Contains(rt.EvalRanges, r) {
				t.Errorf("%s: %#x lack %#x", s.Name, rt.EvalRanges, r)
			}
		}
	}
}

// Each field of _Py_DebugOffsets that is used is compared: changing it is
// noticed, and the error names it.
func TestDebugOffsetsDisagree(t *testing.T) {
	want := tables["3.13"]
	good := debugOffsetsOf(want, 13)
	if err := compareDebugOffsets(good, 13, &want); err != nil {
		t.Fatalf("a table made from the headers: %v", err)
	}
	for _, f := range debugFields {
		word, ok := debugLayouts[13][f.name]
		if !ok || *f.get(&want) == NoField {
			continue
		}
		for _, add := range []uint64{1, 8, 1 << 32, 1 << 63} {
			bad := slices.Clone(good)
			value := binary.LittleEndian.Uint64(bad[8*word:]) + add
			binary.LittleEndian.PutUint64(bad[8*word:], value)
			if err := compareDebugOffsets(bad, 13, &want); err == nil || !strings.Contains(err.Error(), f.name) {
				t.Errorf("%s + %#x: got %v, want an error that names it", f.name, add, err)
			}
		}
	}
	for name, change := range map[string]func([]byte) []byte{
		"cookie":        func(b []byte) []byte { b[0] = 'X'; return b },
		"version":       func(b []byte) []byte { b[8+2]++; return b },
		"free-threaded": func(b []byte) []byte { b[16] = 1; return b },
		"cut":           func(b []byte) []byte { return b[:len(b)-1] },
		"empty":         func([]byte) []byte { return nil },
	} {
		if err := compareDebugOffsets(change(slices.Clone(good)), 13, &want); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

// debugOffsetsOf writes the structure that a build of these offsets has.
func debugOffsetsOf(o Offsets, minor int) []byte {
	raw := make([]byte, debugSize(debugLayouts[min(minor, maxMinor)]))
	set := func(name string, value uint64) {
		if word, ok := debugLayouts[min(minor, maxMinor)][name]; ok {
			binary.LittleEndian.PutUint64(raw[8*word:], value)
		}
	}
	copy(raw, debugCookie)
	binary.LittleEndian.PutUint64(raw[8*wordVersion:], 0x030000f0|uint64(minor)<<16)
	for _, f := range debugFields {
		if v := *f.get(&o); v != NoField {
			set(f.name, uint64(v))
		}
		set(f.size, 1<<16)
	}
	if o.InterpGIL == NoField {
		set("free_threaded", 1)
	}
	set("interpreter_state.gc", uint64(o.InterpCollecting)-8)
	set("gc.collecting", 8)
	return raw
}

func FuzzDebugOffsets(f *testing.F) {
	f.Add(debugOffsetsOf(tables["3.13"], 13))
	f.Add([]byte(debugCookie))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := futureOffsets(raw, maxMinor+1, ""); err == nil && !bytes.HasPrefix(raw, []byte(debugCookie)) {
			t.Error("no cookie was accepted")
		}
		o := tables["3.13"]
		if compareDebugOffsets(raw, 13, &o) != nil {
			return
		}
		d := debugOffsets{raw, debugLayouts[13]}
		for _, field := range debugFields {
			got, ok := d.of(field.name)
			if want := *field.get(&o); ok && want != NoField && got != uint64(want) {
				t.Errorf("%s: %d was accepted", field.name, got)
			}
		}
	})
}

// Damaged files yield errors, not panics; what is no ELF file is no Python.
func FuzzDetect(f *testing.F) {
	f.Add([]byte("no ELF file"), "x")
	f.Add([]byte("\x7fELF\x02\x01\x01"), "python3.11")
	if exe, err := os.Executable(); err == nil {
		if head, err := readHead(exe, 4096); err == nil {
			f.Add(head, "libpython3.8.so")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, path string) {
		rt, err := Detect(bytes.NewReader(data), path)
		if (rt == nil) != (err != nil) && err == nil {
			t.Error("neither a runtime nor an error")
		}
	})
}

func readHead(path string, n int) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	head := make([]byte, n)
	_, err = f.Read(head)
	return head, err
}

func TestFindTag(t *testing.T) {
	for _, c := range []struct {
		data  string
		minor int
		flags string
	}{
		{"\x00.cpython-310-x86_64-linux-gnu.so\x00", 10, ""},
		{"\x00.cpython-38d-x86_64-linux-gnu.so\x00", 8, "d"},
		{"xcpython-313t-aarch64-linux-musl.so\x00", 13, "t"},
		{"cpython-313td-x86_64-linux-gnu", 13, "td"},
		{"cpython-38\x00cpython-38-x86_64-linux-gnu", 8, ""},
		{"cpython-39", -1, ""},
		{"cpython-3-x", -1, ""},
		{"cpython-3x9-a", -1, ""},
		{"", -1, ""},
	} {
		got, ok := findTag([]byte(c.data))
		if ok != (c.minor >= 0) || ok && got != (buildTag{c.minor, c.flags}) {
			t.Errorf("%q: got %+v, %v", c.data, got, ok)
		}
	}
}

func TestFindVersion(t *testing.T) {
	for _, c := range []struct{ data, want string }{
		{"\x003.9.18\x00", "3.9.18"},
		{"/versions/3.9.17\x00\x003.9.18\x00", "3.9.18"},
		{"/versions/3.9.18\x00python3.9\x00", "3.9.18"},
		{"\x003.9.0rc2+\x00", "3.9.0rc2+"},
		{"\x0013.9.18\x00\x001.3.9.1\x00", ""},
		{"\x003.9.18 (main)\x00", ""},
		{"\x003.9.\x003.9.x\x00", ""},
		{"3.9.18", ""},
		{"", ""},
	} {
		if got := findVersion([]byte(c.data), "3.9."); got != c.want {
			t.Errorf("%q: got %q, want %q", c.data, got, c.want)
		}
	}
}

func TestHexVersion(t *testing.T) {
	for hex, want := range map[uint32]string{0x030b07f0: "3.11.7", 0x030d00a6: "3.13.0a6", 0x030c00c2: "3.12.0rc2"} {
		if got := hexVersion(hex); got != want {
			t.Errorf("%#x: got %s, want %s", hex, got, want)
		}
	}
}

// What tells the kind of a build.
func TestBuild(t *testing.T) {
	for _, c := range []struct{ name, path, data, want, refused string }{
		{"release", "libpython3.13.so.1.0", "cpython-313-x", "", ""},
		{"debug by tag", "x", "cpython-313d-x", "d", ""},
		{"debug by name", "libpython3.13d.so.1.0", "", "d", ""},
		{"free-threaded by tag", "x", "cpython-313t-x", "t", ""},
		{"free-threaded by name", "python3.13t", "", "t", ""},
		{"both", "libpython3.13td.so.1.0", "cpython-313td-x", "td", ""},
		{"another version's", "x", "cpython-312-x", "", "3.12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := &detector{file: &elf.File{}, path: "/bin/" + c.path, strings: []byte(c.data)}
			got, err := d.build("3.13.0", 13)
			if got != c.want || (err != nil) != (c.refused != "") {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			var refused *UnsupportedError
			if c.refused != "" && (!errors.As(err, &refused) || !strings.Contains(refused.Why, c.refused)) {
				t.Errorf("got %v, want one that names %s", err, c.refused)
			}
		})
	}
}

func BenchmarkDetect(b *testing.B) {
	for version, python := range perftest.Pythons(b) {
		b.Run(version, func(b *testing.B) {
			f, err := os.Open(runtimeFile(b, python))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			for b.Loop() {
				if _, err := Detect(f, f.Name()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
