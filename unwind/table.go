// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
)

// ErrNoTable says that a file has no call frame information. Its frames can
// only be walked by frame pointers, if it was compiled with them.
var ErrNoTable = errors.New("no call frame information")

// Row says which rule holds from one address to the next row. It is laid out as
// the BPF program reads it:
//
//	struct unwind_row { u32 pc; u32 rule; };
//
// Rows are sorted by PC without doubles, and no two neighbours have the same
// rule. The last row of a table, and each end of a function that no other
// function follows at once, has rule 0.
type Row struct {
	// PC is the address in the file minus Table.Base.
	PC uint32
	// Rule is an index into Table.Rules. To put many tables into one map, add
	// the place of the table's first rule to each.
	Rule uint32
}

// Rule tells how to get from a frame to its caller. The canonical frame address
// (CFA) is the caller's stack pointer. There are a few hundred different rules
// in a file, so they stand apart from the rows. The layout for BPF is
//
//	struct unwind_rule {
//		s32 cfa_off, cfa_add, fp_off, ra_off;
//		u8 cfa, cfa_reg, fp, fp_reg, ra, ra_reg, flags, reserved;
//	};
type Rule struct {
	CFAOff int32 // see CFAKind
	CFAAdd int32
	FPOff  int32 // see Place
	RAOff  int32
	CFA    CFAKind
	CFAReg Reg
	FP     Place // where the caller's frame pointer is
	FPReg  Reg
	RA     Place // where the return address is; PlaceUndefined: outermost frame
	RAReg  Reg
	Flags  RuleFlags
	_      uint8
}

// CFAKind says how the CFA is computed.
type CFAKind uint8

// The kinds of CFA.
const (
	CFANone        CFAKind = iota // no code is known here: stop
	CFAUnsupported                // described in a way that is not understood: stop
	CFARegister                   // CFAReg + CFAOff
	CFADeref                      // *(CFAReg + CFAOff) + CFAAdd
	CFAPLT                        // CFAReg + CFAOff + (pc%16 >= CFAAdd ? 8 : 0)
)

// Place says where the value of a register in the caller is.
type Place uint8

// The places.
const (
	PlaceSame        Place = iota // not changed by this frame
	PlaceUndefined                // lost; for the return address: there is no caller
	PlaceCFA                      // *(CFA + off)
	PlaceMem                      // *(reg + off)
	PlaceInReg                    // reg + off
	PlaceUnsupported              // described in a way that is not understood
)

// Reg is a register of the frame itself.
type Reg uint8

// The registers a walk carries from frame to frame. Others are only known in
// the innermost frame: RegOther plus the processor's DWARF number.
const (
	RegSP Reg = iota
	RegFP
	RegOther
)

// RuleFlags are properties of a frame.
type RuleFlags uint8

// FlagSignal marks the frame between a signal handler and what it interrupted:
// the caller's address is the interrupted instruction, not a return address,
// and the stacks of the two need not be the same.
const FlagSignal RuleFlags = 1

// Table holds the rows of one ELF file. It is safe for concurrent use.
type Table struct {
	Machine elf.Machine
	// Base is the lowest address of the file's segments.
	Base  uint64
	Rows  []Row
	Rules []Rule // Rules[0] is the zero Rule: CFANone
	// Functions is how many ranges of code are described, Skipped how many
	// descriptions were dropped as damaged, too far away or not understood, and
	// Unsupported how many rules name something that is not understood.
	Functions, Skipped, Unsupported int
}

// Find returns the rule for an address in the file. ok is false outside of all
// described code. For a return address, look up one byte less.
func (t *Table) Find(pc uint64) (Rule, bool) {
	if pc < t.Base || pc-t.Base > maxTablePC {
		return Rule{}, false
	}
	i, exact := slices.BinarySearchFunc(t.Rows, uint32(pc-t.Base), func(r Row, pc uint32) int { return cmp.Compare(r.PC, pc) })
	if !exact {
		i--
	}
	if i < 0 || t.Rows[i].Rule == 0 {
		return Rule{}, false
	}
	return t.Rules[t.Rows[i].Rule], true
}

// maxTablePC is the last address, relative to Table.Base, that a row can have.
const maxTablePC = 1<<32 - 1

// check says what makes a table unfit for the kernel; tables come back from
// files that anyone may have changed.
func (t *Table) check() error {
	if len(t.Rules) == 0 || t.Rules[0] != (Rule{}) {
		return errors.New("first rule is not the empty one")
	}
	for i, r := range t.Rows {
		if int64(r.Rule) >= int64(len(t.Rules)) {
			return fmt.Errorf("row %d: rule %d of %d", i, r.Rule, len(t.Rules))
		}
		if i > 0 && r.PC <= t.Rows[i-1].PC {
			return fmt.Errorf("row %d: address %#x after %#x", i, r.PC, t.Rows[i-1].PC)
		}
	}
	if n := len(t.Rows); n > 0 && t.Rows[n-1].Rule != 0 {
		return errors.New("last row has a rule")
	}
	return nil
}

// rowWriter appends rows in order of addresses and gives numbers to rules.
type rowWriter struct {
	table *Table
	index map[Rule]uint32
	last  Rule   // most rules follow upon a like one
	lastN uint32 // its number
	floor uint64 // rows below are covered by what was written before
	full  bool   // a row found no room
}

// maxRows is ten times what the largest libraries have.
const maxRows = 32 << 20

func newRowWriter(t *Table) *rowWriter {
	t.Rules = append(t.Rules[:0], Rule{})
	return &rowWriter{table: t, index: map[Rule]uint32{{}: 0}}
}

// add says that rule holds from pc, relative to the table's base.
func (w *rowWriter) add(pc uint64, rule Rule) {
	pc = max(pc, w.floor)
	if pc > maxTablePC {
		return
	}
	n := w.number(rule)
	rows := w.table.Rows
	if k := len(rows); k > 0 && rows[k-1].PC == uint32(pc) {
		rows = rows[:k-1]
	}
	if k := len(rows); k > 0 && rows[k-1].Rule == n || k == 0 && n == 0 {
		w.table.Rows = rows
		return
	}
	if len(rows) == maxRows {
		w.full = true
		return
	}
	w.table.Rows = append(rows, Row{uint32(pc), n})
}

func (w *rowWriter) number(rule Rule) uint32 {
	if rule == w.last {
		return w.lastN
	}
	n, ok := w.index[rule]
	if !ok {
		n = uint32(len(w.table.Rules))
		w.index[rule] = n
		w.table.Rules = append(w.table.Rules, rule)
		if rule.CFA == CFAUnsupported || rule.FP == PlaceUnsupported || rule.RA == PlaceUnsupported {
			w.table.Unsupported++
		}
	}
	w.last, w.lastN = rule, n
	return n
}
