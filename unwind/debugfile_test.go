// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pathprof/perfevent/perftest"
)

const hiddenSource = `static __attribute__((noinline)) int hidden(int x) { volatile int y = x; return y * 3; }
int main(int c, char **v) { return hidden(c); }
`

// The link in a stripped file names its debug file, and fits that one alone.
func TestDebugLink(t *testing.T) {
	perftest.Require(t, perftest.Tool("objcopy"))
	file := buildC(t, map[string]string{"a.c": hiddenSource}, "-g", "-O1")
	dir := filepath.Dir(file)
	runIn(t, dir, "objcopy", "--only-keep-debug", "a", "a.debug")
	runIn(t, dir, "objcopy", "--strip-all", "--add-gnu-debuglink=a.debug", "a", "b")
	if _, ok, err := ReadDebugLink(open(t, file)); ok || err != nil {
		t.Errorf("a file without a link: got %v, %v", ok, err)
	}
	link, ok, err := ReadDebugLink(open(t, filepath.Join(dir, "b")))
	if !ok || err != nil || link.Name != "a.debug" {
		t.Fatalf("got %+v, %v, %v", link, ok, err)
	}
	for name, want := range map[string]bool{"a.debug": true, "a": false} {
		if got, err := link.Fits(open(t, filepath.Join(dir, name))); got != want || err != nil {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
	want := []string{"/opt/lib/a.debug", "/opt/lib/.debug/a.debug", "/usr/lib/debug/opt/lib/a.debug"}
	if got := link.Paths("/opt/lib/b.so"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	l, err := OpenLines(open(t, filepath.Join(dir, "a.debug")))
	if err != nil || len(l.spans) == 0 {
		t.Errorf("lines of the debug file: %v", err)
	}
}

// Names come from MiniDebugInfo, made as the distributions make it (GDB manual,
// "MiniDebugInfo").
func TestMiniDebugInfo(t *testing.T) {
	perftest.Require(t, perftest.Tool("objcopy"), perftest.Tool("strip"), perftest.Tool("xz"))
	file := buildC(t, map[string]string{"a.c": hiddenSource}, "-O1")
	dir := filepath.Dir(file)
	full, err := OpenSymbols(open(t, file))
	if err != nil {
		t.Fatal(err)
	}
	want, ok := full.Find("hidden")
	if !ok {
		t.Fatal("no symbol hidden in the full program")
	}
	runIn(t, dir, "objcopy", "--only-keep-debug", "a", "mini")
	runIn(t, dir, "strip", "-o", "stripped", "a")
	for _, flag := range []string{"-6", "-9", "-0", "--check=sha256"} {
		runIn(t, dir, "xz", "-kf", flag, "mini")
		runIn(t, dir, "objcopy", "--add-section", ".gnu_debugdata=mini.xz", "stripped", "b")
		s, err := OpenSymbols(open(t, filepath.Join(dir, "b")))
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := s.Lookup(want.Start + 1); got != want || s.Skipped > 0 {
			t.Errorf("%s: got %+v (%d skipped), want %+v", flag, got, s.Skipped, want)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "mini.xz"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mini.xz"), b[:len(b)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "objcopy", "--add-section", ".gnu_debugdata=mini.xz", "stripped", "b")
	if s, err := OpenSymbols(open(t, filepath.Join(dir, "b"))); err != nil || s.Skipped != 1 {
		t.Errorf("half of it: got %+v, %v", s, err)
	}
}

// xzFile packs text with the tool.
func xzFile(t testing.TB, text string, flags ...string) []byte {
	t.Helper()
	perftest.Require(t, perftest.Tool("xz"))
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, dir, "xz", append(flags, "x")...)
	b, err := os.ReadFile(filepath.Join(dir, "x.xz"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A file that asks for more memory than its contents need is refused.
func TestUnpackXZ(t *testing.T) {
	text := string(bytes.Repeat([]byte("text "), 1000))
	good := xzFile(t, text)
	if got, err := unpackXZ(good); err != nil || string(got) != text {
		t.Fatalf("got %d bytes, %v", len(got), err)
	}
	large := slices.Clone(good)
	dict := bytes.Index(large[12:], []byte{0x21, 1}) + 14
	large[dict] = 40 // 4 GiB
	if _, err := unpackXZ(large); err == nil {
		t.Error("a dictionary of 4 GiB was accepted")
	}
	for _, b := range [][]byte{nil, good[:20], good[:len(good)-1], xzFile(t, text, "--block-size=1000"), append(slices.Clone(good), good...)[:len(good)+12]} {
		if _, err := unpackXZ(b); err == nil {
			t.Errorf("%d bytes were accepted", len(b))
		}
	}
	index := slices.Clone(good)
	binary.LittleEndian.PutUint32(index[len(index)-8:], 1<<31)
	if _, err := unpackXZ(index); err == nil {
		t.Error("an index larger than the file was accepted")
	}
}

func FuzzUnpackXZ(f *testing.F) {
	f.Add([]byte("\xfd7zXZ\x00"))
	f.Add(xzFile(f, "text text text"))
	f.Add(xzFile(f, "text text text", "--block-size=5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unpackXZ(b); err == nil && len(out) > maxMiniDebug {
			t.Errorf("%d bytes", len(out))
		}
	})
}
