// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

const kallsymsText = `0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t __pfx_start
ffffffff81000050 T __x64_sys_read
ffffffff81000050 T sys_read_alias
ffffffff81000080 W weak_one
ffffffff81000100 D some_data
ffffffff81000200 T after_data
ffffffffc0201000 t mod_b	[beta]
ffffffffc0201080 d mod_data	[beta]
ffffffffc0101000 t mod_a	[alpha]
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_x	[bpf]
not a line
`

func TestKernelSymbols(t *testing.T) {
	k, err := ParseKallsyms(strings.NewReader(kallsymsText))
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		addr uint64
		name string // empty: none
		size uint64
	}{
		{0xffffffff80ffffff, "", 0},
		{0xffffffff81000000, "_stext", 0x40},
		{0xffffffff81000051, "sys_read_alias", 0x30},
		{0xffffffff810000ff, "weak_one", 0x80},
		{0xffffffff81000100, "", 0},
		{0xffffffff81000200, "after_data", 0xffffffff}, // the next is in a module far away
		{0xffffffffc0101010, "mod_a [alpha]", 0x100000},
		{0xffffffffc0201000, "mod_b [beta]", 0x80},
		{0xffffffffc0201080, "", 0},
		{0xffffffffc0300fff, "bpf_prog_6deef7357e7b4530_x [bpf]", lastKernelSize},
		{0xffffffffc0301000, "", 0},
	}
	for _, tt := range tests {
		got, ok := k.Lookup(tt.addr)
		if got.Name != tt.name || ok != (tt.name != "") {
			t.Errorf("%#x: got %+v, want %q", tt.addr, got, tt.name)
		}
		if ok && tt.size != 0xffffffff && got.Size != tt.size {
			t.Errorf("%#x: got size %#x, want %#x", tt.addr, got.Size, tt.size)
		}
	}
	if k.Bad != 1 {
		t.Errorf("bad lines: got %d, want 1", k.Bad)
	}
}

func TestKallsymsHidden(t *testing.T) {
	_, err := ParseKallsyms(strings.NewReader("0000000000000000 T _text\n0000000000000000 t foo\n"))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "kernel.kptr_restrict") {
		t.Errorf("got %v", err)
	}
	if _, err := ParseKallsyms(strings.NewReader("")); !errors.Is(err, ErrNoSymbols) {
		t.Errorf("empty: got %v", err)
	}
}

// Each text line of the running kernel is found again by its address.
func TestKallsymsOfThisKernel(t *testing.T) {
	perftest.Require(t, perftest.Root)
	b, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	k, err := ParseKallsyms(bytes.NewReader(b))
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[uint64][]string)
	for line := range strings.Lines(string(b)) {
		var addr uint64
		var kind, name string
		fmt.Sscanf(line, "%x %s %s", &addr, &kind, &name)
		if strings.Contains("tTwW", kind) && addr != 0 {
			names[addr] = append(names[addr], name)
		}
	}
	for addr, want := range names {
		got, ok := k.Lookup(addr)
		found := false
		for _, n := range want {
			found = found || n == got.Linkage
		}
		if !ok || !found || got.Start != addr {
			t.Fatalf("%#x: got %+v, want one of %v", addr, got, want)
		}
	}
	t.Logf("%d functions, %d bytes of names", k.Len(), len(k.names))
}

func FuzzParseKallsyms(f *testing.F) {
	f.Add([]byte(kallsymsText))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParseKallsyms(bytes.NewReader(b))
		if err != nil {
			return
		}
		for _, s := range k.syms {
			if got, ok := k.Lookup(s.start); !ok || got.Start != s.start {
				t.Fatalf("%#x: got %+v %v", s.start, got, ok)
			}
		}
	})
}

func BenchmarkParseKallsyms(b *testing.B) {
	var text bytes.Buffer
	for i := range 200_000 {
		fmt.Fprintf(&text, "%016x t some_kernel_function_%d\n", 0xffffffff81000000+uint64(i)*64, i)
	}
	for b.Loop() {
		if _, err := ParseKallsyms(bytes.NewReader(text.Bytes())); err != nil {
			b.Fatal(err)
		}
	}
}
