// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

func open(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// elfFiles are files of this machine with all kinds of tables: stripped and
// not, static and shared, small and large.
func elfFiles(t testing.TB) []string {
	t.Helper()
	var files []string
	home, err := os.UserHomeDir()
	if err == nil {
		found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/3.*/lib/libpython3.*.so.1.0"))
		files = append(files, found...)
	}
	for _, lib := range []string{"libc.so.6", "libcrypto.so.3", "libstdc++.so.6", "ld-linux-x86-64.so.2", "libm.so.6"} {
		for _, dir := range []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"} {
			path := filepath.Join(dir, lib)
			if _, err := os.Stat(path); err == nil {
				files = append(files, path)
				break
			}
		}
	}
	for _, python := range perftest.Interpreters() {
		if head, err := os.ReadFile(python.Path); err == nil && bytes.HasPrefix(head, []byte(elf.ELFMAG)) {
			files = append(files, python.Path)
		}
	}
	if len(files) == 0 {
		t.Skip("needs ELF files of this machine")
	}
	return files
}

// symtabLine is a line of readelf -sW with a defined function.
type symtabLine struct {
	addr, size uint64
	kind, name string
}

func readelfSymbols(t testing.TB, path string) []symtabLine {
	t.Helper()
	perftest.Require(t, perftest.Tool("readelf"))
	out, err := exec.Command("readelf", "-sW", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	var lines []symtabLine
	for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
		f := strings.Fields(sc.Text())
		if len(f) < 8 || f[3] != "FUNC" && f[3] != "IFUNC" || f[6] == "UND" || f[6] == "ABS" {
			continue
		}
		addr, err1 := strconv.ParseUint(f[1], 16, 64)
		size, err2 := strconv.ParseUint(f[2], 0, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		name, _, _ := strings.Cut(f[7], "@")
		lines = append(lines, symtabLine{addr, size, f[3], name})
	}
	return lines
}

// Every function that readelf lists is found at its first and last byte: under
// one of the names readelf has for that address, or inside a nested function.
func TestSymbolsAgreeWithReadelf(t *testing.T) {
	for _, path := range elfFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, err := OpenSymbols(open(t, path))
			if err != nil {
				t.Fatal(err)
			}
			if s.Skipped != 0 {
				t.Errorf("skipped %d symbols", s.Skipped)
			}
			lines := readelfSymbols(t, path)
			names := make(map[uint64]map[string]bool)
			for _, l := range lines {
				if names[l.addr] == nil {
					names[l.addr] = make(map[string]bool)
				}
				names[l.addr][l.name] = true
			}
			for _, l := range lines {
				got, ok := s.Lookup(l.addr)
				if !ok || got.Start != l.addr || !names[l.addr][got.Linkage] {
					t.Errorf("at %#x: got %+v, want %s", l.addr, got, l.name)
				}
				if l.size == 0 {
					continue
				}
				got, ok = s.Lookup(l.addr + l.size - 1)
				if !ok || got.Start < l.addr || !names[got.Start][got.Linkage] {
					t.Errorf("end of %s: got %+v", l.name, got)
				}
			}
			t.Logf("%d symbols, %d bytes", s.Len(), s.bytesUsed())
		})
	}
}

// The stubs' names equal objdump's, which finds them by its own rules.
func TestPLTNames(t *testing.T) {
	perftest.Require(t, perftest.Tool("objdump"))
	for _, path := range elfFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			s, err := OpenSymbols(open(t, path))
			if err != nil {
				t.Fatal(err)
			}
			out, _ := exec.Command("objdump", "-d", "-j", ".plt", "-j", ".plt.got", "-j", ".plt.sec", path).Output()
			stubs := 0
			for sc := bufio.NewScanner(bytes.NewReader(out)); sc.Scan(); {
				at, rest, ok := strings.Cut(sc.Text(), " <")
				name, ok2 := strings.CutSuffix(rest, "@plt>:")
				if !ok || !ok2 || strings.HasPrefix(name, "*") {
					continue
				}
				name, _, _ = strings.Cut(name, "@")
				addr, err := strconv.ParseUint(at, 16, 64)
				if err != nil {
					t.Fatal(err)
				}
				stubs++
				if got, _ := s.Lookup(addr); got.Linkage != name+"@plt" || got.Start != addr {
					t.Errorf("stub at %#x: got %+v, want %s@plt", addr, got, name)
				}
			}
			t.Logf("%d stubs", stubs)
		})
	}
}

func TestVDSOSymbols(t *testing.T) {
	image := vdsoImage(t)
	if image == nil {
		t.Skip("needs a vdso")
	}
	s, err := OpenSymbols(bytes.NewReader(image))
	if err != nil {
		t.Fatal(err)
	}
	got, ok := s.Find("clock_gettime")
	if !ok {
		got, ok = s.Find("__kernel_clock_gettime") // arm64
	}
	if in, found := s.Lookup(got.Start + 1); !ok || !found || !strings.Contains(in.Name, "clock_gettime") {
		t.Errorf("got %+v, want clock_gettime", in)
	}
}

// vdsoImage is the vdso of this process, nil if it has none.
func vdsoImage(t testing.TB) []byte {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(line, "[vdso]\n") {
			continue
		}
		from, rest, _ := strings.Cut(line, "-")
		to, _, _ := strings.Cut(rest, " ")
		start, _ := strconv.ParseInt(from, 16, 64)
		end, _ := strconv.ParseInt(to, 16, 64)
		b := make([]byte, end-start)
		if _, err := open(t, "/proc/self/mem").ReadAt(b, start); err != nil {
			t.Fatal(err)
		}
		return b
	}
	return nil
}

func TestDemangle(t *testing.T) {
	tests := []struct{ linkage, want string }{
		{"main", "main"},
		{"_PyEval_EvalFrameDefault.cold", "_PyEval_EvalFrameDefault"},
		{"foo.part.0", "foo"},
		{"foo.constprop.0.isra.12", "foo"},
		{"foo.localalias", "foo"},
		{"x.llvm.12345678901234567890", "x"},
		{"a.b.c", "a.b.c"},
		{"runtime.main", "runtime.main"},
		{"v1.2", "v1.2"},
		{".cold", ".cold"},
		{"malloc@plt", "malloc@plt"},
		{"__GI___lll_lock_wake", "__lll_lock_wake"},
		{"_ZN3foo3barEi", "foo::bar"},
		{"_ZN3foo3barEi@plt", "foo::bar@plt"},
		{"_ZN3foo3barEi.cold", "foo::bar"},
		{"_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"},
		{"_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"},
		{"_RNvCs1234_7mycrate3foo", "mycrate::foo"},
		{"_Zbroken", "_Zbroken"},
		{"", ""},
	}
	for _, tt := range tests {
		if got := Demangle(tt.linkage); got != tt.want {
			t.Errorf("Demangle(%q) = %q, want %q", tt.linkage, got, tt.want)
		}
	}
}

func TestFileOffsetToVaddr(t *testing.T) {
	segments := []Segment{
		{Vaddr: 0x400000, Offset: 0, FileSize: 0x1234, MemSize: 0x1234},
		{Vaddr: 0x402100, Offset: 0x2100, FileSize: 0x500, MemSize: 0x500, Exec: true},
		{Vaddr: 0x504000, Offset: 0x3000, FileSize: 0x10, MemSize: 0x1000},
	}
	tests := []struct {
		off, want uint64
		ok        bool
	}{
		{0, 0x400000, true},
		{0x1233, 0x401233, true},
		{0x2000, 0x402000, true}, // the page the loader maps before the segment
		{0x2100, 0x402100, true},
		{0x3008, 0x504008, true},
		{0x9000, 0, false},
	}
	for _, tt := range tests {
		got, ok := FileOffsetToVaddr(segments, tt.off)
		if got != tt.want || ok != tt.ok {
			t.Errorf("offset %#x: got %#x %v, want %#x %v", tt.off, got, ok, tt.want, tt.ok)
		}
	}
}

func TestDebugFile(t *testing.T) {
	tests := []struct{ id, want string }{
		{"0123abcd", "/usr/lib/debug/.build-id/01/23abcd.debug"},
		{"", ""},
		{"../../etc", ""},
		{"01", ""},
	}
	for _, tt := range tests {
		if got := DebugFile("/usr/lib/debug/", tt.id); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.id, got, tt.want)
		}
	}
}

// A stripped program with its separate debug file has the names of the full one.
func TestSeparateDebugFile(t *testing.T) {
	perftest.Require(t, perftest.Tool("gcc"), perftest.Tool("objcopy"), perftest.Tool("strip"))
	dir := t.TempDir()
	run := func(name string, args ...string) {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	source := "static __attribute__((noinline)) int hidden(int x) { return x * 3; }\nint main(int c, char **v) { return hidden(c); }\n"
	if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	run("gcc", "-O1", "-Wl,--build-id", "-o", "a", "a.c")
	run("objcopy", "--only-keep-debug", "a", "a.debug")
	full, err := OpenSymbols(open(t, filepath.Join(dir, "a")))
	if err != nil {
		t.Fatal(err)
	}
	want, ok := full.Find("hidden")
	if !ok {
		t.Fatal("no symbol hidden in the full program")
	}
	run("strip", "a")
	stripped := open(t, filepath.Join(dir, "a"))
	if s, err := OpenSymbols(stripped); err == nil {
		if _, ok := s.Find("hidden"); ok {
			t.Fatal("strip left the symbol in place")
		}
	}
	s, err := OpenSymbolsWithDebug(stripped, open(t, filepath.Join(dir, "a.debug")))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := s.Lookup(want.Start + 1); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if _, err := OpenSymbolsWithDebug(stripped, open(t, "/proc/self/exe")); err == nil {
		t.Error("a debug file of another program was accepted")
	}
}

func TestNotELF(t *testing.T) {
	for _, b := range [][]byte{nil, []byte("#!/bin/sh\n"), []byte("\x7fELF"), bytes.Repeat([]byte("\x7fELF\x02\x01\x01"), 100)} {
		if _, err := OpenSymbols(bytes.NewReader(b)); err == nil {
			t.Errorf("%q was accepted", b)
		}
	}
	if _, err := OpenSymbols(bytes.NewReader(tinyELF(nil, nil))); !errors.Is(err, ErrNoSymbols) {
		t.Errorf("got %v, want %v", err, ErrNoSymbols)
	}
}

// Whatever the bytes are: no panic, and a symbol that is found contains the address.
func FuzzOpenSymbols(f *testing.F) {
	f.Add(tinyELF(nil, nil))
	f.Add(tinyELF([]byte{0, 0, 0, 0}, []byte{0xc3}))
	f.Add([]byte("\x7fELF\x02\x01\x01"))
	if image := vdsoImage(f); image != nil {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := OpenSymbols(bytes.NewReader(b))
		if err != nil {
			return
		}
		s.All(func(sym Symbol) bool {
			if got, ok := s.Lookup(sym.Start); ok && got.Start > sym.Start {
				t.Errorf("lookup of %#x: got a symbol at %#x", sym.Start, got.Start)
			}
			return true
		})
	})
}

func BenchmarkOpenSymbols(b *testing.B) {
	for _, path := range elfFiles(b) {
		b.Run(filepath.Base(path), func(b *testing.B) {
			f := open(b, path)
			for b.Loop() {
				if _, err := OpenSymbols(f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
