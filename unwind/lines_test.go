// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// inlineSource has functions inlined in each other, from two files, and a cold
// part.
const inlineSource = `#include "a.h"
static __attribute__((noinline)) int outer(int x)
{
	int sum = 0;
	for (int i = 0; i < x; i++)
		sum += middle(i) * inner(x);
	if (__builtin_expect(sum == 12345, 0))
		complain(sum);
	return sum;
}
int main(int c, char **v) { return outer(c) + middle(c + 1); }
`

const inlineHeader = `#include <stdio.h>
#include <stdlib.h>
static __attribute__((cold, noinline)) void complain(int x) { printf("%d\n", x); exit(1); }
static inline __attribute__((always_inline)) int inner(int x)
{
	volatile int y = x;
	return y * 3 + x;
}
static inline __attribute__((always_inline)) int middle(int x)
{
	int a = inner(x);
	return a * inner(a + 1);
}
`

// buildC compiles a.c beside files of the test.
func buildC(t testing.TB, files map[string]string, args ...string) string {
	t.Helper()
	perftest.Require(t, perftest.Tool("gcc"))
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	runIn(t, dir, "gcc", append(args, "-o", "a", "a.c")...)
	return filepath.Join(dir, "a")
}

func runIn(t testing.TB, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	return string(out)
}

// addr2line asks LLVM for the functions and lines at addresses.
func addr2line(t testing.TB, file string, addrs []uint64) map[uint64]string {
	t.Helper()
	cmd := exec.Command("llvm-symbolizer", "--output-style=GNU", "-a", "-i", "-f", "-e", file)
	var in strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd.Stdin = strings.NewReader(in.String())
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[uint64]string{}
	var addr uint64
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := 0; i < len(lines); {
		if _, err := fmt.Sscanf(lines[i], "0x%x", &addr); err == nil && strings.HasPrefix(lines[i], "0x") {
			i++
			continue
		}
		place, _, _ := strings.Cut(lines[i+1], " (discriminator")
		name := strings.Trim(foldSuffix(lines[i]), "?")
		found[addr] += name + " " + filepath.Base(place) + "\n"
		i += 2
	}
	return found
}

func linesText(lines []SourceLine) string {
	var b strings.Builder
	for _, l := range lines {
		line := fmt.Sprint(l.Line)
		if l.Line == 0 {
			line = "?"
		}
		fmt.Fprintf(&b, "%s %s:%s\n", l.Function, filepath.Base(l.File), line)
	}
	return b.String()
}

// withoutLastName takes the outermost function's name off.
func withoutLastName(text string) string {
	text = strings.TrimSuffix(text, "\n")
	at := strings.LastIndexByte(text, '\n') + 1
	_, place, _ := strings.Cut(text[at:], " ")
	return text[:at] + place
}

// compareLines compares all code of a file, or every nth byte of it.
func compareLines(t *testing.T, file string, step uint64, most int) {
	t.Helper()
	l, err := OpenLines(open(t, file))
	if err != nil {
		t.Fatal(err)
	}
	var addrs []uint64
	for _, s := range l.spans {
		for a := s.low; a < s.high && len(addrs) < most; a += step {
			addrs = append(addrs, a)
		}
	}
	want := addr2line(t, file, addrs)
	differ, inlined := 0, 0
	for _, a := range addrs {
		got := linesText(l.At(a))
		if step > 1 { // compilers fold functions of equal code: either name is right
			got, want[a] = withoutLastName(got), withoutLastName(want[a])
		}
		if strings.Count(got, "\n") > 1 {
			inlined++
		}
		if got != want[a] {
			if differ++; differ <= 5 {
				t.Logf("%#x: got\n%swant\n%s", a, got, want[a])
			}
		}
	}
	t.Logf("%d addresses, %d with inlined functions, %d differ", len(addrs), inlined, differ)
	if differ > 0 || inlined == 0 && len(addrs) > 1 {
		t.Errorf("%d of %d addresses differ, %d have inlined functions", differ, len(addrs), inlined)
	}
}

// Lines and inlined functions are those that LLVM finds, in all forms of
// DWARF that compilers write.
func TestLinesAgreeWithLLVM(t *testing.T) {
	perftest.Require(t, perftest.Tool("llvm-symbolizer"))
	files := map[string]string{"a.c": inlineSource, "a.h": inlineHeader}
	for _, flags := range []string{"-gdwarf-5", "-gdwarf-4", "-gdwarf-3 -gstrict-dwarf", "-g -gz=zlib", "-g -ffunction-sections -Wl,--gc-sections"} {
		t.Run(flags, func(t *testing.T) {
			compareLines(t, buildC(t, files, append(strings.Fields(flags), "-O2")...), 1, 1<<20)
		})
	}
	for _, file := range elfFiles(t) {
		if _, err := OpenLines(open(t, file)); errors.Is(err, ErrNoLines) || testing.Short() {
			continue
		}
		t.Run(filepath.Base(file), func(t *testing.T) { compareLines(t, file, 997, 3000) })
	}
}

// FirstLine is where a function begins, of inlined ones, too.
func TestFirstLines(t *testing.T) {
	file := buildC(t, map[string]string{"a.c": inlineSource, "a.h": inlineHeader}, "-g", "-O2")
	l, err := OpenLines(open(t, file))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int32{"outer": 2, "main": 11, "complain": 3, "inner": 4, "middle": 9}
	seen := map[string]bool{}
	for _, s := range l.spans {
		for a := s.low; a < s.high; a++ {
			for _, line := range l.At(a) {
				if seen[line.Function] = true; want[line.Function] != line.FirstLine {
					t.Fatalf("%#x: %s begins at %d, want %d", a, line.Function, line.FirstLine, want[line.Function])
				}
			}
		}
	}
	if len(seen) != len(want) {
		t.Errorf("got functions %v, want those of %v", seen, want)
	}
	if got := l.At(1); got != nil {
		t.Errorf("outside of all code: got %v", got)
	}
}

func TestNoLines(t *testing.T) {
	if _, err := OpenLines(bytes.NewReader(tinyELF(nil, nil))); !errors.Is(err, ErrNoLines) {
		t.Errorf("got %v, want %v", err, ErrNoLines)
	}
}

// Whatever the bytes are: no panic, and what is found is of bounded depth.
func FuzzLines(f *testing.F) {
	f.Add(tinyELF(nil, nil), uint64(tinyAddr))
	if _, err := exec.LookPath("gcc"); err == nil {
		for _, flags := range []string{"-gdwarf-5", "-gdwarf-4"} {
			file := buildC(f, map[string]string{"a.c": inlineSource, "a.h": inlineHeader}, flags, "-O2", "-nostdlib", "-r")
			if b, err := os.ReadFile(file); err == nil {
				f.Add(b, uint64(16))
			}
			file = buildC(f, map[string]string{"a.c": inlineSource, "a.h": inlineHeader}, flags, "-O2")
			if b, err := os.ReadFile(file); err == nil {
				f.Add(b, uint64(0x1060))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, addr uint64) {
		l, err := OpenLines(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, line := range l.At(addr) {
			if line.Line < 0 || line.FirstLine < 0 || len(line.Function) > maxMangled {
				t.Errorf("got %+v", line)
			}
		}
		for i := range min(len(l.spans), 4) {
			l.At(l.spans[i].low)
		}
	})
}
