// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/frame"
)

// maxRemembered bounds DW_CFA_remember_state; compilers nest it once.
const maxRemembered = 64

// DWARF numbers of the registers a walk carries (System V ABI supplements).
const (
	amd64FP, amd64SP, amd64RA = 6, 7, 16
	arm64FP, arm64RA, arm64SP = 29, 30, 31
)

// codePatch is code whose rule is known without a description. It counts only
// where no function covers its beginning.
type codePatch struct {
	begin, end uint64 // relative to the table's base
	rule       Rule
}

// maxEntry bounds the code at a file's entry point, which ends where a
// described function begins. glibc's dynamic linker needs 70 bytes.
const maxEntry = 128

// patches finds such code, in order of addresses.
func (f *elfFile) patches(base uint64) []codePatch {
	var found []codePatch
	if f.Entry > base && f.Entry-base < maxTablePC-maxEntry {
		// Who called the entry point is not on the stack. Few C libraries
		// describe it.
		at := f.Entry - base
		found = append(found, codePatch{at, at + maxEntry, Rule{CFA: CFARegister, RA: PlaceUndefined}})
	}
	pattern, rule := signalReturn(f.Machine)
	for _, at := range f.signalReturns(base) {
		// A byte early: a handler's return address is looked up one byte less.
		found = append(found, codePatch{max(at, 1) - 1, at + uint64(len(pattern)), rule})
	}
	slices.SortFunc(found, func(a, b codePatch) int { return cmp.Compare(a.begin, b.begin) })
	return found
}

// compile writes the rows of all functions.
func compile(table *Table, fdes frame.FrameDescriptionEntries, patches []codePatch) (err error) {
	defer guard("run call frame instructions", &err)
	w := newRowWriter(table)
	cies := make(map[*frame.CommonInformationEntry]*program)
	for i, fde := range fdes {
		p := cies[fde.CIE]
		if p == nil {
			p = newProgram(table.Machine, fde)
			cies[fde.CIE] = p
		}
		begin, end := fde.Begin()-table.Base, fde.End()-table.Base
		patches = addPatches(w, patches, begin)
		if end <= w.floor {
			continue // another description of the same code
		}
		if !p.run(w, begin, end, fde.Instructions) {
			table.Skipped++
			delete(cies, fde.CIE) // its state is no longer known
		}
		table.Functions++
		w.floor = end
		if i+1 == len(fdes) || fdes[i+1].Begin()-table.Base > end {
			w.add(end, Rule{})
		}
	}
	addPatches(w, patches, math.MaxUint64)
	if w.full {
		return fmt.Errorf("more than %d rows", maxRows)
	}
	return nil
}

// addPatches writes those that begin before the next function, and returns the
// rest.
func addPatches(w *rowWriter, patches []codePatch, next uint64) []codePatch {
	for len(patches) > 0 && patches[0].begin < next {
		p := patches[0]
		patches = patches[1:]
		p.end = min(p.end, next)
		// The byte before a signal return may be another function's last.
		if p.end <= w.floor || p.begin+1 < w.floor {
			continue
		}
		w.add(p.begin, p.rule)
		w.floor = p.end
		w.add(p.end, Rule{})
	}
	return patches
}

// What the kernel leaves where the stack pointer is when a handler has returned.
//
// x86-64 (arch/x86/include/asm/sigframe.h): a ucontext, whose uc_mcontext lies
// at 40, in it bp at 80, sp at 120 and ip at 128. glibc describes the same.
//
// arm64 (arch/arm64/kernel/signal.c): a siginfo of 128 bytes, then a ucontext
// with uc_mcontext at 176, in it x0 at 8, x29 at 240, sp at 256 and pc at 264.
var (
	signalRuleAMD64 = signalRule(120, 160, 168)
	signalRuleARM64 = signalRule(128+176+240, 128+176+256, 128+176+264)
)

func signalRule(fp, sp, pc int32) Rule {
	return Rule{
		CFA: CFADeref, CFAReg: RegSP, CFAOff: sp,
		FP: PlaceMem, FPReg: RegSP, FPOff: fp,
		RA: PlaceMem, RAReg: RegSP, RAOff: pc,
		Flags: FlagSignal,
	}
}

// program runs the instructions of the functions that share a CIE, each
// function once: it walks over the instructions, hands those that define rules
// to the parser's own interpreter one by one, and does the rest (locations,
// saved states) itself. Rules of registers that no walk needs are passed over.
type program struct {
	fp, sp, ra uint64
	arm64      bool
	codeAlign  uint64
	signal     bool

	ctx         *frame.FrameContext
	initialCFA  frame.DWRule
	initialRegs map[uint64]frame.DWRule
	remembered  []savedState
}

type savedState struct {
	cfa  frame.DWRule
	regs map[uint64]frame.DWRule
}

func newProgram(machine elf.Machine, fde *frame.FrameDescriptionEntry) *program {
	p := &program{fp: amd64FP, sp: amd64SP, ra: amd64RA}
	if machine == elf.EM_AARCH64 {
		p.fp, p.sp, p.ra, p.arm64 = arm64FP, arm64SP, arm64RA, true
	}
	p.codeAlign = fde.CIE.CodeAlignmentFactor
	p.signal = strings.Contains(fde.CIE.Augmentation, "S")
	// An empty function at the last address: the context is the CIE's state,
	// and executes whatever it is given from then on.
	cie := *fde.CIE
	initial := cie.InitialInstructions
	cie.InitialInstructions = nil
	empty := *fde
	empty.CIE, empty.Instructions = &cie, nil
	ctx, err := empty.EstablishFrame(math.MaxUint64)
	if err != nil {
		return p
	}
	p.ctx = ctx
	if !p.each(initial, func(uint64) bool { return true }) {
		p.ctx = nil
		return p
	}
	p.initialCFA, p.initialRegs = ctx.CFA, maps.Clone(ctx.Regs)
	return p
}

// run writes the rows of one function. After an instruction that it does not
// know the rest of the function has an unsupported rule, and run returns false.
func (p *program) run(w *rowWriter, begin, end uint64, instructions []byte) bool {
	if p.ctx == nil {
		w.add(begin, Rule{CFA: CFAUnsupported})
		return false
	}
	p.ctx.CFA = p.initialCFA
	clear(p.ctx.Regs)
	maps.Copy(p.ctx.Regs, p.initialRegs)
	p.remembered = p.remembered[:0]
	loc := begin
	ok := p.each(instructions, func(delta uint64) bool {
		w.add(loc, p.rule())
		if delta > end-loc {
			loc = end
			return false
		}
		loc += delta
		return true
	})
	if loc >= end {
		return ok || loc == end
	}
	if !ok {
		w.add(loc, Rule{CFA: CFAUnsupported})
		return false
	}
	w.add(loc, p.rule())
	return true
}

// each runs instructions and calls advance at each step of the location, in
// bytes. It stops when advance returns false or an instruction is unknown.
func (p *program) each(code []byte, advance func(uint64) bool) bool {
	for len(code) > 0 {
		op, n, ok := decodeCFA(code)
		if !ok {
			return false
		}
		this := code[:n]
		code = code[n:]
		switch op.kind {
		case cfaAdvance:
			if !advance(op.operand * p.codeAlign) {
				return false
			}
		case cfaRestore:
			if rule, ok := p.initialRegs[op.operand]; ok {
				p.ctx.Regs[op.operand] = rule
			} else {
				delete(p.ctx.Regs, op.operand)
			}
		case cfaRemember:
			if len(p.remembered) == maxRemembered {
				return false
			}
			p.remembered = append(p.remembered, savedState{p.ctx.CFA, maps.Clone(p.ctx.Regs)})
		case cfaRestoreState:
			last := len(p.remembered) - 1
			if last < 0 {
				return false
			}
			p.ctx.CFA, p.ctx.Regs = p.remembered[last].cfa, p.remembered[last].regs
			p.remembered = p.remembered[:last]
		case cfaRegister:
			if op.operand != p.fp && op.operand != p.sp && op.operand != p.ra {
				continue
			}
			fallthrough
		case cfaDefine:
			if !p.execute(this, op.operand) {
				return false
			}
		}
	}
	return true
}

// execute hands one instruction to the interpreter. It leaves expressions in a
// buffer that the next instruction overwrites, so they are copied.
func (p *program) execute(instruction []byte, reg uint64) bool {
	if p.ctx.ExecuteUntilPC(instruction) != nil {
		return false
	}
	switch instruction[0] {
	case frame.DW_CFA_def_cfa_expression:
		p.ctx.CFA.Expression = slices.Clone(p.ctx.CFA.Expression)
	case frame.DW_CFA_expression, frame.DW_CFA_val_expression:
		rule := p.ctx.Regs[reg]
		rule.Expression = slices.Clone(rule.Expression)
		p.ctx.Regs[reg] = rule
	}
	return true
}

// rule translates the state of the interpreter.
func (p *program) rule() Rule {
	r := Rule{}
	p.cfa(&r)
	r.FP, r.FPReg, r.FPOff = p.place(p.fp)
	if rule, ok := p.ctx.Regs[p.ra]; !ok && p.arm64 {
		r.RA, r.RAReg = PlaceInReg, RegOther+arm64RA
	} else if !ok || rule.Rule == frame.RuleUndefined {
		// The psABI: an undefined return address ends the stack.
		r.RA = PlaceUndefined
	} else if r.RA, r.RAReg, r.RAOff = p.place(p.ra); r.RA == PlaceSame {
		r.RA, r.RAReg = PlaceInReg, RegOther+Reg(p.ra)
	}
	if p.signal {
		r.Flags = FlagSignal
	}
	if r.RA != PlaceUndefined && (r.CFA == CFAUnsupported || !p.spIsCFA(r)) {
		return Rule{CFA: CFAUnsupported}
	}
	return r
}

func (p *program) cfa(r *Rule) {
	cfa := p.ctx.CFA
	r.CFA = CFAUnsupported
	switch cfa.Rule {
	case frame.RuleCFA:
		if reg, off, err := p.regOff(cfa.Reg, cfa.Offset); err == nil {
			r.CFA, r.CFAReg, r.CFAOff = CFARegister, reg, off
		}
	case frame.RuleExpression:
		e, ok := parseExpression(cfa.Expression)
		reg, off, err := p.regOff(e.reg, e.off)
		if !ok || err != nil || e.add != int64(int32(e.add)) {
			return
		}
		r.CFAReg, r.CFAOff, r.CFAAdd = reg, off, int32(e.add)
		switch e.kind {
		case exprAddress:
			r.CFA = CFARegister
		case exprDeref:
			r.CFA = CFADeref
		case exprPLT:
			r.CFA = CFAPLT
		}
	}
}

// spIsCFA tells whether the caller's stack pointer is the CFA, as it is unless
// there is a rule of its own: longjmp has one near its end, and signal frames,
// where it says the same as the CFA's.
func (p *program) spIsCFA(r Rule) bool {
	rule, ok := p.ctx.Regs[p.sp]
	if !ok || rule.Rule == frame.RuleValOffset && rule.Offset == 0 {
		return true
	}
	place, reg, off := p.place(p.sp)
	return place == PlaceMem && r.CFA == CFADeref && r.CFAReg == reg && r.CFAOff == off && r.CFAAdd == 0
}

var errRange = errors.New("out of range")

// regOff brings a register and an offset to the numbers of a Rule.
func (p *program) regOff(reg uint64, off int64) (Reg, int32, error) {
	if off != int64(int32(off)) {
		return 0, 0, errRange
	}
	switch {
	case reg == p.sp:
		return RegSP, int32(off), nil
	case reg == p.fp:
		return RegFP, int32(off), nil
	case reg < 64:
		return RegOther + Reg(reg), int32(off), nil
	}
	return 0, 0, errRange
}

// place translates the rule of one register.
func (p *program) place(reg uint64) (Place, Reg, int32) {
	rule, ok := p.ctx.Regs[reg]
	if !ok {
		return PlaceSame, 0, 0
	}
	switch rule.Rule {
	case frame.RuleUndefined:
		return PlaceUndefined, 0, 0
	case frame.RuleSameVal:
		return PlaceSame, 0, 0
	case frame.RuleOffset:
		if rule.Offset == int64(int32(rule.Offset)) {
			return PlaceCFA, 0, int32(rule.Offset)
		}
	case frame.RuleRegister:
		if r, _, err := p.regOff(rule.Reg, 0); err == nil {
			return PlaceInReg, r, 0
		}
	case frame.RuleExpression, frame.RuleValExpression:
		e, ok := parseExpression(rule.Expression)
		r, off, err := p.regOff(e.reg, e.off)
		if !ok || err != nil || e.kind != exprAddress {
			break
		}
		if rule.Rule == frame.RuleValExpression {
			return PlaceInReg, r, off
		}
		return PlaceMem, r, off
	}
	return PlaceUnsupported, 0, 0
}
