// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"pathprof/perfevent/perftest"
)

// coldSource has functions that leave what seldom runs to a part elsewhere, from
// where they come back, and that end by jumping to another function.
const coldSource = `
#include <stdlib.h>
volatile int sink;
__attribute__((cold, noinline)) void complain(int i) { sink = i; }
__attribute__((noinline)) int last(int s) { sink += s; return sink * 3; }
__attribute__((noinline)) int loop(int n, int *v)
{
	int s = 0;
	for (int i = 0; i < n; i++) {
		sink = v[i];
		if (v[i] < 0) {
			complain(i);
			v[i] = sink / 7;
			complain(v[i]);
		}
		s += v[i] * sink;
	}
	return last(s);
}
__attribute__((noinline)) int plain(int n) { return last(n + sink); }
int main(int argc, char **argv)
{
	int v[] = {argc, -argc, 3};
	return loop(3, v) + plain(argc);
}
`

// The part that a stripped program's function has elsewhere is the one that its
// symbols named, and another function is none.
func TestPartsOfStripped(t *testing.T) {
	perftest.Require(t, perftest.Tool("strip"))
	for _, option := range []string{"-O2", "-O3"} {
		file := buildC(t, map[string]string{"a.c": coldSource}, option, "-freorder-blocks-and-partition", "-fno-omit-frame-pointer")
		symbols, err := OpenSymbols(open(t, file))
		if err != nil {
			t.Fatal(err)
		}
		runIn(t, filepath.Dir(file), "strip", "-o", "b", "a")
		stripped := open(t, filepath.Join(filepath.Dir(file), "b"))
		for _, name := range []string{"loop", "plain", "last", "main"} {
			s, ok := symbols.Find(name)
			if !ok {
				t.Fatalf("no symbol %s", name)
			}
			var want [][2]uint64
			if cold, ok := symbols.Find(name + ".cold"); ok {
				want = append(want, [2]uint64{cold.Start, cold.Start + cold.Size})
			} else if name == "loop" {
				t.Fatalf("%s: the compiler has split nothing", option)
			}
			got, err := Parts(stripped, s.Start, s.Start+s.Size)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s %s: got %x, %v, want %x", option, name, got, err, want)
			}
		}
	}
	if _, err := Parts(bytes.NewReader(tinyELF(nil, nil)), tinyAddr, tinyAddr+16); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v, want %v", err, ErrNoTable)
	}
}

// Direct jumps of both processors lead where assemblers say.
func TestJumps(t *testing.T) {
	const at = 0x10000
	arm := func(words ...uint32) (code []byte) {
		for _, w := range words {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		return code
	}
	for _, c := range []struct {
		name    string
		machine elf.Machine
		code    []byte
		want    []uint64
	}{
		{"jmp", elf.EM_X86_64, []byte{0x90, 0xe9, 0x10, 0, 0, 0}, []uint64{at + 0x16}},
		{"ja back", elf.EM_X86_64, []byte{0x0f, 0x87, 0xfa, 0xff, 0xff, 0xff}, []uint64{at}},
		{"call, jmp cut off", elf.EM_X86_64, []byte{0xe8, 0, 0, 0, 0, 0xe9, 0, 0, 0}, nil},
		{"b", elf.EM_AARCH64, arm(0xd503201f, 0x14000004), []uint64{at + 0x14}},
		{"b back", elf.EM_AARCH64, arm(0xd503201f, 0x17ffffff), []uint64{at}},
		{"b.ne", elf.EM_AARCH64, arm(0x54000081), []uint64{at + 0x10}},
		{"cbz, cbnz", elf.EM_AARCH64, arm(0xb4000080, 0x3500006a), []uint64{at + 0x10, at + 0x10}},
		{"tbz, tbnz back", elf.EM_AARCH64, arm(0x36000080, 0x3707ffe0), []uint64{at + 0x10, at}},
		{"bl, ret", elf.EM_AARCH64, arm(0x94000004, 0xd65f03c0), nil},
	} {
		if got := slices.Collect(jumps(c.machine, c.code, at)); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %x, want %x", c.name, got, c.want)
		}
	}
}
