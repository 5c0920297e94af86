// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"pathprof/perfevent/perftest"
)

// An assembler for .eh_frame at tinyFrameAddr: CIEs as bytes, FDEs by the
// address they describe. Every FDE belongs to the last CIE before it.
type (
	cie      []byte
	fdeBytes struct {
		begin, size uint64
		code        []byte
	}
)

// cieBytes makes a CIE with code alignment 1, data alignment -8 and return
// address 16. aug is "", or starts with z and has augmentation data.
func cieBytes(aug string, data byte, code ...byte) cie {
	b := append([]byte{1}, aug...)
	b = append(b, 0, 1, 0x78, 16)
	if aug != "" {
		b = append(b, 1, data)
	}
	return append(b, code...)
}

func ehFrame(entries ...any) []byte {
	le := binary.LittleEndian
	var b []byte
	last := 0
	for _, e := range entries {
		at := len(b)
		b = append(b, 0, 0, 0, 0)
		switch e := e.(type) {
		case cie:
			last = at
			b = append(append(b, 0, 0, 0, 0), e...)
		case fdeBytes:
			b = le.AppendUint32(b, uint32(at+4-last))
			b = le.AppendUint32(b, uint32(e.begin-(tinyFrameAddr+uint64(len(b)))))
			b = le.AppendUint32(b, uint32(e.size))
			b = append(append(b, 0), e.code...)
		case []byte:
			b = append(b, e...)
		}
		for len(b)%4 != 0 {
			b = append(b, 0) // DW_CFA_nop
		}
		le.PutUint32(b[at:], uint32(len(b)-at-4))
	}
	return append(b, 0, 0, 0, 0)
}

// What a compiler emits at the start of every function: CFA = rsp+8, RA at CFA-8.
var callCFA = []byte{0x0c, 7, 8, 0x90, 1}

// lookups says what rule holds at addresses relative to tinyAddr.
type lookups map[uint64]Rule

var (
	ruleCall = Rule{CFA: CFARegister, CFAOff: 8, RA: PlaceCFA, RAOff: -8}
	rulePush = Rule{CFA: CFARegister, CFAOff: 16, RA: PlaceCFA, RAOff: -8, FP: PlaceCFA, FPOff: -16}
	ruleFP   = Rule{CFA: CFARegister, CFAReg: RegFP, CFAOff: 16, RA: PlaceCFA, RAOff: -8, FP: PlaceCFA, FPOff: -16}
)

func TestCompile(t *testing.T) {
	call := cieBytes("zR", 0x1b, callCFA...)
	one := func(code ...byte) []byte { return ehFrame(call, fdeBytes{tinyAddr + 16, 64, code}) }
	tests := []struct {
		name    string
		frame   []byte
		want    lookups
		skipped int
	}{
		{"prologue", one(0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6), lookups{15: {}, 16: ruleCall, 17: rulePush, 19: rulePush, 20: ruleFP, 79: ruleFP, 80: {}}, 0},
		{"epilogue and more", one(0x41, 0x0e, 16, 0x86, 2, 0x42, 0x0a, 0xc6, 0x0e, 8, 0x42, 0x0b), lookups{17: rulePush, 19: ruleCall, 21: rulePush}, 0},
		{"far advance", one(0x02, 40, 0x0e, 16, 0x86, 2, 0x04, 0xff, 0xff, 0xff, 0xff, 0x0e, 24), lookups{55: ruleCall, 56: rulePush, 79: rulePush, 80: {}}, 0},
		{"unknown instruction", one(0x41, 0x0e, 16, 0x86, 2, 0x42, 0x1d), lookups{16: ruleCall, 17: rulePush, 19: {CFA: CFAUnsupported}, 79: {CFA: CFAUnsupported}, 80: {}}, 1},
		{"restore without remember", one(0x41, 0x0b), lookups{16: ruleCall, 17: {CFA: CFAUnsupported}, 80: {}}, 1},
		{"cut instruction", one(0x41, 0x0e, 16, 0x86, 2, 0x42, 0x10, 6, 0x7f), lookups{17: rulePush, 19: {CFA: CFAUnsupported}}, 1},
		{"undefined return address", one(0x07, 16), lookups{16: {CFA: CFARegister, CFAOff: 8, RA: PlaceUndefined}, 80: {}}, 0},
		{"realigned", one(0x0f, 3, 0x76, 0x78, 0x06, 0x10, 6, 2, 0x76, 0), lookups{
			16: {CFA: CFADeref, CFAReg: RegFP, CFAOff: -8, FP: PlaceMem, FPReg: RegFP, RA: PlaceCFA, RAOff: -8}}, 0},
		{"deref and add", one(0x0f, 5, 0x77, 0x98, 0x04, 0x06, 0x23, 8), lookups{16: {CFA: CFAUnsupported}}, 0},
		{"deref and add, right length", one(0x0f, 6, 0x77, 0x98, 0x04, 0x06, 0x23, 8), lookups{
			16: {CFA: CFADeref, CFAReg: RegSP, CFAOff: 536, CFAAdd: 8, RA: PlaceCFA, RAOff: -8}}, 0},
		{"PLT", one(0x0f, 11, 0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22), lookups{
			16: {CFA: CFAPLT, CFAOff: 8, CFAAdd: 11, RA: PlaceCFA, RAOff: -8}}, 0},
		{"stack pointer elsewhere", one(0x09, 7, 8), lookups{16: {CFA: CFAUnsupported}}, 0},
		{"in a register", one(0x09, 16, 2, 0x09, 6, 9), lookups{
			16: {CFA: CFARegister, CFAOff: 8, FP: PlaceInReg, FPReg: RegOther + 9, RA: PlaceInReg, RAReg: RegOther + 2}}, 0},
		{"neighbours", ehFrame(call, fdeBytes{tinyAddr + 16, 16, nil}, fdeBytes{tinyAddr + 32, 16, nil}, fdeBytes{tinyAddr + 64, 16, nil}),
			lookups{31: ruleCall, 32: ruleCall, 47: ruleCall, 48: {}, 63: {}, 64: ruleCall, 80: {}}, 0},
		{"not sorted, overlapping", ehFrame(call, fdeBytes{tinyAddr + 40, 24, []byte{0x0e, 16, 0x86, 2}}, fdeBytes{tinyAddr + 16, 32, nil}, fdeBytes{tinyAddr + 16, 8, []byte{0x0e, 24}}),
			lookups{16: ruleCall, 47: ruleCall, 48: rulePush, 63: rulePush, 64: {}}, 0},
		{"unknown augmentation", ehFrame(cieBytes("zX", 0x1b, callCFA...), fdeBytes{tinyAddr + 16, 16, nil}, call, fdeBytes{tinyAddr + 64, 16, nil}),
			lookups{16: {}, 64: ruleCall}, 1},
		{"damaged tail", append(ehFrame(call, fdeBytes{tinyAddr + 16, 16, nil})[:44], 0xff, 0xff, 0xff, 0xff, 1), lookups{16: ruleCall, 32: {}}, 1},
		{"description of no code", ehFrame(call, fdeBytes{tinyAddr + 16, 0, nil}, fdeBytes{tinyAddr + 64, 16, nil}), lookups{16: {}, 64: ruleCall}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table, err := BuildTable(bytes.NewReader(tinyELF(tt.frame, nil)))
			if err != nil {
				t.Fatal(err)
			}
			if err := table.check(); err != nil {
				t.Error(err)
			}
			for pc, want := range tt.want {
				got, ok := table.Find(tinyAddr + pc)
				if got != want || ok != (want != Rule{}) {
					t.Errorf("at %d: got %+v, want %+v", pc, got, want)
				}
			}
			if table.Skipped != tt.skipped {
				t.Errorf("skipped: got %d, want %d", table.Skipped, tt.skipped)
			}
		})
	}
}

// A file whose section headers were removed still has its frame header segment.
func TestTableWithoutSectionHeaders(t *testing.T) {
	for _, path := range elfFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			want, err := BuildTable(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			clear(b[0x28:0x30]) // e_shoff
			clear(b[0x3c:0x40]) // e_shnum, e_shstrndx
			got, err := BuildTable(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got %d rows, want %d", len(got.Rows), len(want.Rows))
			}
		})
	}
}

// The rules of a program are the same whether they come from .eh_frame or from
// .debug_frame, of both versions of its form.
func TestDebugFrame(t *testing.T) {
	perftest.Require(t, perftest.Tool("gcc"), perftest.Tool("objcopy"))
	dir := t.TempDir()
	for _, tt := range []struct{ compiler, version string }{{"gcc", "-gdwarf-3"}, {"gcc", "-gdwarf-5"}, {"clang", "-gdwarf-5"}} {
		t.Run(tt.compiler+tt.version, func(t *testing.T) {
			perftest.Require(t, perftest.Tool(tt.compiler))
			build := func(name string, args ...string) *Symbols {
				out := filepath.Join(dir, name)
				args = append(args, "-O2", "-w", "-fno-pie", "-no-pie", "-pthread", "-o", out, "testdata/walk.c")
				if text, err := exec.Command(tt.compiler, args...).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, text)
				}
				s, err := OpenSymbols(open(t, out))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			eh := build("eh", "-fasynchronous-unwind-tables")
			debug := build("debug", tt.version, "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-Wa,--compress-debug-sections=none")
			// The start files bring an .eh_frame of their own.
			stripped := filepath.Join(dir, "stripped")
			if text, err := exec.Command("objcopy", "-R", ".eh_frame", "-R", ".eh_frame_hdr", filepath.Join(dir, "debug"), stripped).CombinedOutput(); err != nil {
				t.Fatalf("objcopy: %v\n%s", err, text)
			}
			want, err := BuildTable(open(t, filepath.Join(dir, "eh")))
			if err != nil {
				t.Fatal(err)
			}
			got, err := BuildTable(open(t, stripped))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"big", "many", "variable", "realigned", "recurse", "main"} {
				a, ok1 := eh.Find(name)
				b, ok2 := debug.Find(name)
				if !ok1 || !ok2 || a.Size != b.Size {
					t.Fatalf("%s: %+v, %+v", name, a, b)
				}
				for i := range a.Size {
					w, _ := want.Find(a.Start + i)
					g, _ := got.Find(b.Start + i)
					if g != w || g.CFA == CFANone {
						t.Fatalf("%s+%d: got %+v, want %+v", name, i, g, w)
					}
				}
			}
		})
	}
}

func TestBuildTableErrors(t *testing.T) {
	empty := tinyELFFor(elf.EM_X86_64, ".other", nil, nil)
	if _, err := BuildTable(bytes.NewReader(empty)); !errors.Is(err, ErrNoTable) {
		t.Errorf("got %v, want %v", err, ErrNoTable)
	}
	if _, err := BuildTable(bytes.NewReader(tinyELFFor(elf.EM_MIPS, ".eh_frame", nil, nil))); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("got %v, want %v", err, errors.ErrUnsupported)
	}
}

// musl returns from signal handlers through code without a description.
func TestSignalReturnWithoutDescription(t *testing.T) {
	text := make([]byte, 256)
	copy(text[100:], sigreturnAMD64)
	frame := ehFrame(cieBytes("zR", 0x1b, callCFA...), fdeBytes{tinyAddr, 64, nil}, fdeBytes{tinyAddr + 200, 8, nil})
	table, err := BuildTable(bytes.NewReader(tinyELF(frame, text)))
	if err != nil {
		t.Fatal(err)
	}
	for pc, want := range map[uint64]Rule{63: ruleCall, 64: {}, 98: {}, 99: signalRuleAMD64, 108: signalRuleAMD64, 109: {}, 200: ruleCall} {
		if got, _ := table.Find(tinyAddr + pc); got != want {
			t.Errorf("at %d: got %+v, want %+v", pc, got, want)
		}
	}
}

// glibc describes its own signal return; both descriptions say the same.
func TestSignalReturnOfLibc(t *testing.T) {
	found := false
	for _, path := range elfFiles(t) {
		f, err := openELF(open(t, path))
		if err != nil {
			t.Fatal(err)
		}
		table, err := BuildTable(f.r)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range f.signalReturns(table.Base) {
			got, ok := table.Find(table.Base + at)
			if found = true; !ok || got != signalRuleAMD64 {
				t.Errorf("%s: at %#x: got %+v, want %+v", path, at, got, signalRuleAMD64)
			}
		}
	}
	if !found {
		t.Skip("needs a C library with a signal return")
	}
}

// Whatever the bytes are: the table is fit for the kernel, and walks over it end.
func FuzzBuildTable(f *testing.F) {
	call := cieBytes("zR", 0x1b, callCFA...)
	f.Add(ehFrame(call, fdeBytes{tinyAddr + 16, 64, []byte{0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x0b}}), true)
	f.Add(ehFrame(call, fdeBytes{tinyAddr, 200, []byte{0x0f, 3, 0x76, 0x78, 0x06, 0x41, 0x10, 6, 2, 0x76, 0, 0x42, 0x16, 6, 2, 0x77, 8}}), true)
	f.Add(ehFrame(cieBytes("zPLRS", 0x1b, callCFA...), fdeBytes{tinyAddr + 16, 64, []byte{0x2e, 1, 0x09, 16, 2}}), true)
	f.Add([]byte("\x0c\x00\x00\x00\xff\xff\xff\xff\x04\x00\x08\x00\x01\x78\x10\x0c"), false)
	f.Fuzz(func(t *testing.T, frame []byte, eh bool) {
		section := ".eh_frame"
		if !eh {
			section = ".debug_frame"
		}
		table, err := BuildTable(bytes.NewReader(tinyELFFor(elf.EM_X86_64, section, frame, nil)))
		if err != nil {
			return
		}
		if err := table.check(); err != nil {
			t.Fatal(err)
		}
		stack := make([]uint64, 64)
		for i := range stack {
			stack[i] = uint64(tinyAddr + i*4)
		}
		find := func(pc uint64) (*Table, uint64, bool) { return table, 0, pc-tinyAddr < 1024 }
		for pc := uint64(tinyAddr); pc < tinyAddr+256; pc += 16 {
			frames, stop := Walk(Regs{PC: pc, SP: 0x10000, FP: 0x10040, Known: 1<<16 - 1}, words{0x10000, stack}, find, nil)
			if len(frames) == 0 || len(frames) > MaxFrames || stop == StopNone {
				t.Fatalf("got %d frames, %v", len(frames), stop)
			}
		}
	})
}

// Whole files as well: headers, notes, segments.
func FuzzBuildTableELF(f *testing.F) {
	f.Add(callTable(f))
	if image := vdsoImage(f); image != nil {
		f.Add(image)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		table, err := BuildTable(bytes.NewReader(b))
		if err != nil {
			return
		}
		from := table.Base + uint64(table.Rows[0].PC)
		if parts, err := Parts(bytes.NewReader(b), from, from+64); err == nil && slices.ContainsFunc(parts, func(p [2]uint64) bool { return p[0] < from+64 && from < p[1] }) {
			t.Errorf("parts %x of a function at %#x", parts, from)
		}
		if err := table.check(); err != nil {
			t.Fatal(err)
		}
		if !slices.IsSortedFunc(table.Rows, func(a, b Row) int { return int(int64(a.PC) - int64(b.PC)) }) {
			t.Error("rows out of order")
		}
	})
}
