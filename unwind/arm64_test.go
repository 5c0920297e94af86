// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"
)

// cieARM64 is what compilers emit: code alignment 4, return address x30, CFA = sp.
func cieARM64(aug string) cie {
	b := append([]byte{1}, aug...)
	return append(b, 0, 4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0)
}

func TestCompileARM64(t *testing.T) {
	lr := Rule{CFA: CFARegister, RA: PlaceInReg, RAReg: RegOther + 30}
	saved := Rule{CFA: CFARegister, CFAOff: 32, FP: PlaceCFA, FPOff: -32, RA: PlaceCFA, RAOff: -24}
	// stp x29, x30, [sp, -32]!; mov x29, sp; …; ldp; ret, with signed addresses.
	code := []byte{0x2d, 0x41, 0x0e, 32, 0x9d, 4, 0x9e, 3, 0x41, 0x0d, 29, 0x45, 0x0c, 31, 0, 0xdd, 0xde, 0x2d}
	byFP := saved
	byFP.CFAReg = RegFP
	for _, aug := range []string{"zR", "zRB", "zRG"} {
		t.Run(aug, func(t *testing.T) {
			frame := ehFrame(cieARM64(aug), fdeBytes{tinyAddr, 64, code}, fdeBytes{tinyAddr + 64, 16, []byte{0x07, 30}})
			table, err := BuildTable(bytes.NewReader(tinyELFFor(elf.EM_AARCH64, ".eh_frame", frame, nil)))
			if err != nil {
				t.Fatal(err)
			}
			for pc, want := range map[uint64]Rule{
				0: lr, 3: lr, 4: saved, 7: saved, 8: byFP, 27: byFP, 28: lr, 63: lr,
				64: {CFA: CFARegister, RA: PlaceUndefined}, 80: {},
			} {
				if got, _ := table.Find(tinyAddr + pc); got != want {
					t.Errorf("at %d: got %+v, want %+v", pc, got, want)
				}
			}
		})
	}
}

// A walk from a leaf function, whose caller is in x30, with signed addresses.
func TestWalkARM64(t *testing.T) {
	table := &Table{Machine: elf.EM_AARCH64, Rules: []Rule{
		{},
		{CFA: CFARegister, RA: PlaceInReg, RAReg: RegOther + 30},
		{CFA: CFARegister, CFAOff: 32, FP: PlaceCFA, FPOff: -32, RA: PlaceCFA, RAOff: -24},
		{CFA: CFARegister, RA: PlaceUndefined},
	}, Rows: []Row{{0x1000, 1}, {0x1100, 2}, {0x1200, 3}, {0x1300, 0}}}
	find := func(pc uint64) (*Table, uint64, bool) { return table, 0, pc < 0x2000 }
	regs := Regs{PC: 0x1010, SP: 0x10000, FP: 0x10000, Known: 1 << 30}
	regs.Other[30] = 0x002a_0000_0000_1110
	stack := words{0x10000, []uint64{0x10020, 0x0071_0000_0000_1210, 0, 0}}
	frames, stop := Walk(regs, stack, find, nil)
	want := []Frame{{PC: 0x1010, SP: 0x10000, Exact: true}, {PC: 0x1110, SP: 0x10000}, {PC: 0x1210, SP: 0x10020}}
	if stop != StopComplete || len(frames) != len(want) {
		t.Fatalf("got %+v, %v", frames, stop)
	}
	for i, f := range frames {
		if f != want[i] {
			t.Errorf("frame %d: got %+v, want %+v", i, f, want[i])
		}
	}
}

// crossTool skips without a tool for another processor, also where everything
// installable is demanded: this machine's own tests do not depend on it.
func crossTool(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s", name)
		}
	}
}

// A whole program with its C library, compiled for arm64: the rows equal
// readelf's, and stacks from an emulator are walked to their ends.
func TestARM64Program(t *testing.T) {
	crossTool(t, "aarch64-linux-gnu-gcc", "readelf", "qemu-aarch64")
	for _, flags := range []string{"-fomit-frame-pointer", "-mbranch-protection=standard"} {
		t.Run(flags, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "walk")
			text, err := exec.Command("aarch64-linux-gnu-gcc", "-O2", flags, "-static", "-pthread", "-o", program, "testdata/walk.c").CombinedOutput()
			if err != nil {
				t.Skipf("needs a C library for arm64: %v\n%s", err, text)
			}
			table, err := BuildTable(open(t, program))
			if err != nil {
				t.Fatal(err)
			}
			dump, err := exec.Command("readelf", "--debug-dump=frames-interp", program).Output()
			if err != nil {
				t.Fatal(err)
			}
			rows, _, unsupported := compareInterp(t, table, interp(t, program, bytes.NewReader(dump)), true)
			if rows == 0 || unsupported > 0 || table.Skipped > 0 {
				t.Errorf("%d rows, %d unsupported, %d skipped", rows, unsupported, table.Skipped)
			}
			t.Logf("%d ends of rows equal", rows)

			out, err := exec.Command("qemu-aarch64", program).Output()
			if err != nil {
				t.Fatal(err)
			}
			// The emulator has the signal return in an unnamed mapping, a real
			// kernel in the vdso.
			page := &module{table: &Table{Machine: elf.EM_AARCH64, Rules: []Rule{{}, signalRuleARM64}, Rows: []Row{{0, 1}}}}
			page.symbols = &Symbols{loads: []Segment{{FileSize: 4096, MemSize: 4096, Exec: true}}}
			snapshots := parseSnapshots(t, out)
			if len(snapshots) != 8 {
				t.Fatalf("got %d snapshots, want 8", len(snapshots))
			}
			for _, s := range snapshots {
				t.Run(s.name, func(t *testing.T) { checkSnapshot(t, s, page) })
			}
		})
	}
}
