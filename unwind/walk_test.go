// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pathprof/perfevent/perftest"
)

// buildWalkProgram compiles testdata/walk.c.
func buildWalkProgram(t testing.TB, flags ...string) string {
	t.Helper()
	perftest.Require(t, perftest.Tool("gcc"))
	out := filepath.Join(t.TempDir(), "walk")
	args := append([]string{"-O2", "-fomit-frame-pointer", "-pthread", "-o", out, "testdata/walk.c"}, flags...)
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, text)
	}
	return out
}

// blocks is memory in pieces.
type blocks map[uint64][]byte

func (m blocks) ReadAt(b []byte, off int64) (int, error) {
	for start, piece := range m {
		if at := uint64(off) - start; at < uint64(len(piece)) {
			if n := copy(b, piece[at:]); n == len(b) {
				return n, nil
			}
		}
	}
	return 0, io.EOF
}

// mapping is an executable line of /proc/PID/maps.
type mapping struct {
	start, end, offset uint64
	path               string
}

func parseTestMaps(t testing.TB, text string) []mapping {
	t.Helper()
	var maps []mapping
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 || !strings.Contains(f[1], "x") {
			continue
		}
		from, to, _ := strings.Cut(f[0], "-")
		m := mapping{path: strings.Join(f[5:], " ")}
		m.start, _ = strconv.ParseUint(from, 16, 64)
		m.end, _ = strconv.ParseUint(to, 16, 64)
		m.offset, _ = strconv.ParseUint(f[2], 16, 64)
		maps = append(maps, m)
	}
	return maps
}

// module is a file with its tables.
type module struct {
	table   *Table
	symbols *Symbols
}

// space is the code of a process.
type space struct {
	t       testing.TB
	maps    []mapping
	modules map[string]*module
	vdso    io.ReaderAt // nil: not readable
	unnamed *module     // what unnamed mappings hold
}

func newSpace(t testing.TB, maps string) *space {
	return &space{t: t, maps: parseTestMaps(t, maps), modules: make(map[string]*module)}
}

func (s *space) module(m mapping) *module {
	if mod := s.modules[m.path]; mod != nil {
		return mod
	}
	mod := &module{}
	s.modules[m.path] = mod
	var r io.ReaderAt
	switch {
	case strings.HasPrefix(m.path, "/"):
		r = open(s.t, m.path)
	case m.path == "" && s.unnamed != nil:
		return s.unnamed
	case m.path == "[vdso]" && s.vdso != nil:
		r = io.NewSectionReader(s.vdso, int64(m.start), int64(m.end-m.start))
	default:
		return mod
	}
	var err error
	if mod.table, err = BuildTable(r); err != nil {
		s.t.Logf("%s: %v", m.path, err)
	}
	if mod.symbols, err = OpenSymbols(r); err != nil {
		s.t.Logf("%s: %v", m.path, err)
	}
	return mod
}

func (s *space) at(pc uint64) (mod *module, bias uint64, ok bool) {
	i, found := slices.BinarySearchFunc(s.maps, pc, func(m mapping, pc uint64) int { return cmp.Compare(m.start, pc) })
	if !found {
		i--
	}
	if i < 0 || pc >= s.maps[i].end {
		return nil, 0, false
	}
	m := s.maps[i]
	mod = s.module(m)
	if mod.symbols != nil {
		vaddr, _ := mod.symbols.FileOffsetToVaddr(m.offset)
		bias = m.start - vaddr
	}
	return mod, bias, true
}

func (s *space) find(pc uint64) (*Table, uint64, bool) {
	mod, bias, ok := s.at(pc)
	if !ok {
		return nil, 0, false
	}
	return mod.table, bias, true
}

func (s *space) name(pc uint64) string {
	if mod, bias, ok := s.at(pc); ok && mod.symbols != nil {
		if sym, ok := mod.symbols.Lookup(pc - bias); ok {
			return sym.Name
		}
	}
	return "?"
}

// snapshot is one CAPTURE of testdata/walk.c.
type snapshot struct {
	name      string
	regs      Regs
	memory    blocks
	backtrace []uint64
	chain     []string
	maps      string
}

func parseSnapshots(t testing.TB, out []byte) []snapshot {
	t.Helper()
	number := func(s string) uint64 {
		v, err := strconv.ParseUint(s, 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	var all []snapshot
	var s *snapshot
	sc := bufio.NewScanner(bytes.NewReader(out))
	sc.Buffer(nil, 1<<22)
	for sc.Scan() {
		f := strings.Fields(sc.Text())
		switch f[0] {
		case "CAPTURE":
			all = append(all, snapshot{name: f[1], memory: blocks{}})
			s = &all[len(all)-1]
		case "REGS":
			s.regs = Regs{PC: number(f[1]), SP: number(f[2]), FP: number(f[3])}
		case "STACK":
			b, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			s.memory[number(f[1])] = b
		case "BACKTRACE":
			for _, pc := range f[1:] {
				s.backtrace = append(s.backtrace, number(pc))
			}
		case "CHAIN":
			s.chain = f[1:]
		case "MAPS", "END":
		default:
			s.maps += sc.Text() + "\n"
		}
	}
	return all
}

// matchChain compares names with a chain in which * stands for any frames.
func matchChain(names, chain []string) bool {
	if len(chain) == 0 {
		return true // what is behind main is the C library's
	}
	if chain[0] == "*" {
		for i := range len(names) + 1 {
			if matchChain(names[i:], chain[1:]) {
				return true
			}
		}
		return false
	}
	return len(names) > 0 && names[0] == chain[0] && matchChain(names[1:], chain[1:])
}

// Real stacks of a program without frame pointers, through big, variable and
// realigned frames, the C library, signal handlers on two stacks and a thread:
// the walk finds the chain known from the source, to the outermost frame, and
// the very addresses that glibc's unwinder finds.
func TestWalkOfKnownChains(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags []string
	}{{"pie", nil}, {"static", []string{"-static"}}, {"static-pie", []string{"-static-pie"}}, {"branch-protection", []string{"-fcf-protection", "-Wl,-z,lazy"}}, {"frame-pointers", []string{"-fno-omit-frame-pointer"}}} {
		t.Run(tt.name, func(t *testing.T) {
			program := buildWalkProgram(t, tt.flags...)
			out, err := exec.Command(program).Output()
			if err != nil {
				t.Fatal(err)
			}
			snapshots := parseSnapshots(t, out)
			if len(snapshots) != 8 {
				t.Fatalf("got %d snapshots, want 8", len(snapshots))
			}
			for _, s := range snapshots {
				t.Run(s.name, func(t *testing.T) { checkSnapshot(t, s, nil) })
			}
		})
	}
}

func checkSnapshot(t *testing.T, s snapshot, unnamed *module) {
	code := newSpace(t, s.maps)
	if code.unnamed = unnamed; unnamed != nil {
		// Its first instruction is returned to, and looked up a byte less.
		for i := range code.maps {
			if code.maps[i].path == "" {
				code.maps[i].start -= 8
			}
		}
	}
	frames, stop := Walk(s.regs, s.memory, code.find, nil)
	var names []string
	var pcs []uint64
	for _, f := range frames {
		names = append(names, code.name(f.Lookup()))
		pcs = append(pcs, f.PC)
	}
	if stop != StopComplete {
		t.Errorf("stopped: %v", stop)
	}
	if !matchChain(names, s.chain) {
		t.Errorf("got %v, want %v", names, s.chain)
	}
	// The innermost frame is the same function, at another call.
	if len(pcs) == 0 || s.backtrace != nil && !slices.Equal(pcs[1:], s.backtrace[1:]) {
		t.Errorf("addresses: got %x, want %x", pcs, s.backtrace)
	}
}

// Without any table the chain of frame pointers is walked.
func TestWalkByFramePointer(t *testing.T) {
	program := buildWalkProgram(t, "-fno-omit-frame-pointer", "-static")
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range parseSnapshots(t, out) {
		if s.name != "plain" && s.name != "recursion" && s.name != "variable" {
			continue
		}
		code := newSpace(t, s.maps)
		none := func(pc uint64) (*Table, uint64, bool) { _, _, ok := code.find(pc); return nil, 0, ok }
		frames, stop := Walk(s.regs, s.memory, none, nil)
		var names []string
		for i, f := range frames {
			names = append(names, code.name(f.Lookup()))
			if f.ByFramePointer != (i > 0) {
				t.Errorf("frame %d: by frame pointer: %v", i, f.ByFramePointer)
			}
		}
		if !matchChain(names, s.chain) {
			t.Errorf("%s: got %v, want %v (%v)", s.name, names, s.chain, stop)
		}
	}
}

// words is memory of 8-byte words from an address on.
type words struct {
	start uint64
	w     []uint64
}

func (m words) ReadAt(b []byte, off int64) (int, error) {
	i := (uint64(off) - m.start) / 8
	if i >= uint64(len(m.w)) || len(b) != 8 {
		return 0, io.EOF
	}
	binary.LittleEndian.PutUint64(b, m.w[i])
	return 8, nil
}

func TestWalkStops(t *testing.T) {
	call := Rule{CFA: CFARegister, CFAOff: 8, RA: PlaceCFA, RAOff: -8}
	framed := Rule{CFA: CFARegister, CFAReg: RegFP, CFAOff: 16, FP: PlaceCFA, FPOff: -16, RA: PlaceCFA, RAOff: -8}
	table := &Table{Base: 0, Rules: []Rule{
		{}, call, framed,
		{CFA: CFARegister, CFAOff: 8, RA: PlaceUndefined},
		{CFA: CFAUnsupported, RA: PlaceCFA},
		{CFA: CFARegister, CFAReg: RegOther + 10, RA: PlaceCFA, RAOff: -8},
		{CFA: CFARegister, CFAOff: 8, FP: PlaceUndefined, RA: PlaceCFA, RAOff: -8},
	}}
	for i := range table.Rules {
		table.Rows = append(table.Rows, Row{uint32(0x1000 + 0x100*i), uint32(i)})
	}
	table.Rows = append(table.Rows, Row{0x2000, 0})
	find := func(pc uint64) (*Table, uint64, bool) {
		if pc >= 0x8000 && pc < 0x9000 {
			return nil, 0, true
		}
		return table, 0, pc < 0x3000
	}
	deep := make([]uint64, 300)
	for i := range deep {
		deep[i] = 0x1150
	}
	tests := []struct {
		name   string
		regs   Regs
		stack  []uint64
		frames int
		want   StopReason
	}{
		{"outermost", Regs{PC: 0x1100, SP: 0x10000}, []uint64{0x1350}, 2, StopComplete},
		{"gap", Regs{PC: 0x1000, SP: 0x10000}, nil, 1, StopNoRule},
		{"before all", Regs{PC: 0x10, SP: 0x10000}, nil, 1, StopNoRule},
		{"unmapped", Regs{PC: 0x5000, SP: 0x10000}, nil, 1, StopBadFrame},
		{"return to nowhere", Regs{PC: 0x1100, SP: 0x10000}, []uint64{0x5000}, 1, StopBadFrame},
		{"no memory", Regs{PC: 0x1100, SP: 0x10000}, nil, 1, StopFault},
		{"high stack", Regs{PC: 0x1100, SP: 1<<64 - 16}, nil, 1, StopFault},
		{"unsupported", Regs{PC: 0x1400, SP: 0x10000}, nil, 1, StopUnsupported},
		{"other register, innermost", Regs{PC: 0x1500, SP: 0x10000, Known: 1 << 10, Other: [64]uint64{10: 0x10010}}, []uint64{0, 0x1350}, 2, StopComplete},
		{"other register, outer", Regs{PC: 0x1100, SP: 0x10000, Known: 1 << 10}, []uint64{0x1550}, 2, StopUnsupported},
		{"other register, not known", Regs{PC: 0x1500, SP: 0x10000}, []uint64{0x1350}, 1, StopUnsupported},
		{"zero return address", Regs{PC: 0x1100, SP: 0x10000, FP: 5}, []uint64{0}, 1, StopBadFrame},
		{"zero return address and frame pointer", Regs{PC: 0x1100, SP: 0x10000}, []uint64{0}, 1, StopComplete},
		{"downward", Regs{PC: 0x1200, SP: 0x10010, FP: 0x10000 - 16}, []uint64{1, 2}, 1, StopBadFrame},
		{"not aligned", Regs{PC: 0x1200, SP: 0x10000, FP: 0x10001}, []uint64{1, 2}, 1, StopBadFrame},
		{"lost frame pointer", Regs{PC: 0x1600, SP: 0x10000, FP: 0x10008}, []uint64{0x1250}, 2, StopUnsupported},
		{"depth", Regs{PC: 0x1100, SP: 0x10000}, deep, MaxFrames, StopDepth},
		{"frame pointer", Regs{PC: 0x8000, SP: 0x10000, FP: 0x10000}, []uint64{0, 0x1350}, 2, StopComplete},
		{"frame pointer end", Regs{PC: 0x8000, SP: 0x10000}, nil, 1, StopComplete},
		{"frame pointer below", Regs{PC: 0x8000, SP: 0x10000, FP: 0x9000}, nil, 1, StopNoFramePtr},
		{"frame pointer unreadable", Regs{PC: 0x8000, SP: 0x10000, FP: 0x90000}, nil, 1, StopFault},
		{"frame pointer loop", Regs{PC: 0x8000, SP: 0x10000, FP: 0x10000}, []uint64{0x10000, 0x8010}, 2, StopNoFramePtr},
		{"lost frame pointer, then none", Regs{PC: 0x1600, SP: 0x10000, FP: 0x10008}, []uint64{0x8010}, 2, StopNoFramePtr},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			frames, stop := Walk(tt.regs, words{0x10000, tt.stack}, find, nil)
			if len(frames) != tt.frames || stop != tt.want {
				t.Errorf("got %d frames, %v; want %d, %v", len(frames), stop, tt.frames, tt.want)
			}
		})
	}
}

func TestStopReasonTexts(t *testing.T) {
	seen := make(map[string]bool)
	for r := StopNone; r <= StopNoFramePtr; r++ {
		if text := r.String(); text == "" || text == "unknown" || seen[text] {
			t.Errorf("reason %d: text %q", r, text)
		}
		seen[r.String()] = true
	}
	if got := StopReason(200).String(); got != "unknown" {
		t.Errorf("got %q", got)
	}
}

// The table of the vdso of this process has a rule for its functions.
func TestVDSOTable(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip("needs /proc: ", err)
	}
	s := newSpace(t, string(maps))
	s.vdso = open(t, "/proc/self/mem")
	for _, m := range s.maps {
		if m.path != "[vdso]" {
			continue
		}
		mod := s.module(m)
		if mod.table == nil || mod.symbols == nil {
			t.Fatal("no table or no symbols")
		}
		mod.symbols.All(func(sym Symbol) bool {
			if r, ok := mod.table.Find(sym.Start); !ok || r.CFA != CFARegister || r.CFAOff != 8 {
				t.Errorf("%s: got %+v %v", sym.Name, r, ok)
			}
			return true
		})
		return
	}
	t.Skip("needs a vdso")
}
