// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"io"
)

// StopReason says why a walk ended.
type StopReason uint8

// The stop reasons. A stack is whole only with StopComplete.
const (
	StopNone        StopReason = iota
	StopComplete               // the outermost frame was reached
	StopDepth                  // deeper than the walk goes
	StopFault                  // memory could not be read
	StopBadFrame               // the stack pointer or the caller's address is not plausible
	StopNoRule                 // code without a description in a file that has some
	StopUnsupported            // the description uses what is not understood or not known there
	StopNoFramePtr             // the chain of frame pointers ended outside the stack
)

var stopTexts = [...]string{
	StopNone:        "not walked",
	StopComplete:    "complete",
	StopDepth:       "too deep",
	StopFault:       "memory not readable",
	StopBadFrame:    "implausible frame",
	StopNoRule:      "code without call frame information",
	StopUnsupported: "call frame information not understood",
	StopNoFramePtr:  "frame pointers end early",
}

// String returns the reason in words.
func (r StopReason) String() string {
	if int(r) < len(stopTexts) {
		return stopTexts[r]
	}
	return "unknown"
}

// MaxFrames is how deep a walk goes.
const MaxFrames = 128

// Regs are the registers a walk starts from.
type Regs struct {
	PC, SP, FP uint64
	// Other holds the registers by their DWARF number; Known has a bit for each
	// that is set.
	Other [64]uint64
	Known uint64
}

// Frame is a place in a stack.
type Frame struct {
	// PC is the instruction (see Exact) and SP the stack pointer there.
	PC, SP uint64
	// Exact: PC is the next instruction to run, as in the innermost frame and in
	// one that a signal interrupted. Else it is a return address; the call is
	// before it.
	Exact bool
	// ByFramePointer: found without a description. If the code does not keep
	// frame pointers, callers may be missing between this frame and the one
	// inside it.
	ByFramePointer bool
}

// Lookup is the address to look the frame's function up with.
func (f Frame) Lookup() uint64 {
	if f.Exact {
		return f.PC
	}
	return f.PC - 1
}

// Finder returns the table of the code at an address of a process, and the
// difference between the addresses of the process and of the file. A nil table
// with ok stands for code without call frame information. Without ok there is
// no code at that address.
type Finder func(pc uint64) (table *Table, bias uint64, ok bool)

// Walk appends the frames from regs outward to dst, innermost first, at most
// [MaxFrames]. mem is the memory of the process by address. The BPF program
// does the same, step by step: where it differs from this one, it is wrong.
func Walk(regs Regs, mem io.ReaderAt, find Finder, dst []Frame) ([]Frame, StopReason) {
	w := walker{mem: mem, pc: regs.PC, sp: regs.SP, fp: regs.FP, fpKnown: true, exact: true, first: &regs}
	table, bias, ok := find(w.pc)
	for n := 1; ; n++ {
		dst = append(dst, Frame{PC: w.pc, SP: w.sp, Exact: w.exact, ByFramePointer: w.byFP})
		if !ok {
			return dst, StopBadFrame
		}
		if stop := w.step(table, bias); stop != StopNone {
			return dst, stop
		}
		if n == MaxFrames {
			return dst, StopDepth
		}
		if table, bias, ok = find(w.lookup()); !ok {
			return dst, StopBadFrame
		}
	}
}

// walker is the state of one frame.
type walker struct {
	mem        io.ReaderAt
	pc, sp, fp uint64
	fpKnown    bool
	exact      bool
	byFP       bool  // how this frame was found
	first      *Regs // all registers, in the innermost frame
}

func (w *walker) lookup() uint64 {
	if w.exact {
		return w.pc
	}
	return w.pc - 1
}

// step goes to the caller, or says why there is none.
func (w *walker) step(table *Table, bias uint64) StopReason {
	if table == nil {
		return w.stepByFramePointer()
	}
	rule, ok := table.Find(w.lookup() - bias)
	if !ok {
		return StopNoRule
	}
	if rule.RA == PlaceUndefined {
		return StopComplete
	}
	cfa, stop := w.cfa(rule)
	if stop != StopNone {
		return stop
	}
	// Frames of one stack lie at rising addresses; only leaf functions of arm64
	// can have empty ones. A signal handler may run on a stack of its own.
	if cfa%8 != 0 || rule.Flags&FlagSignal == 0 && (cfa < w.sp || cfa == w.sp && w.first == nil) {
		return StopBadFrame
	}
	ra, stop := w.value(rule.RA, rule.RAReg, rule.RAOff, cfa, 0)
	if stop != StopNone {
		return stop
	}
	fp, fpKnown := w.fp, w.fpKnown
	switch rule.FP {
	case PlaceSame:
	case PlaceUndefined, PlaceUnsupported:
		fpKnown = false
	default:
		if fp, stop = w.value(rule.FP, rule.FPReg, rule.FPOff, cfa, w.fp); stop != StopNone {
			return stop
		}
		fpKnown = true
	}
	if table.Machine == elf.EM_AARCH64 {
		ra = stripPAC(ra)
	}
	w.exact = rule.Flags&FlagSignal != 0
	return w.enter(ra, cfa, fp, fpKnown, false)
}

// enter makes the caller the current frame. Libraries that start threads or
// coroutines by hand put a zero where the outermost return address would be,
// with a zero frame pointer as the psABI asks for; alone it is no proof.
func (w *walker) enter(pc, sp, fp uint64, fpKnown, byFP bool) StopReason {
	if pc == 0 {
		if fpKnown && fp == 0 {
			return StopComplete
		}
		return StopBadFrame
	}
	w.pc, w.sp, w.fp, w.fpKnown, w.byFP, w.first = pc, sp, fp, fpKnown, byFP, nil
	return StopNone
}

func (w *walker) cfa(rule Rule) (uint64, StopReason) {
	if rule.CFA == CFANone {
		return 0, StopNoRule
	}
	if rule.CFA == CFAUnsupported {
		return 0, StopUnsupported
	}
	base, ok := w.reg(rule.CFAReg)
	if !ok {
		return 0, StopUnsupported
	}
	at := base + uint64(int64(rule.CFAOff))
	switch rule.CFA {
	case CFARegister:
		return at, StopNone
	case CFADeref:
		v, ok := w.read(at)
		if !ok {
			return 0, StopFault
		}
		return v + uint64(int64(rule.CFAAdd)), StopNone
	case CFAPLT:
		if int64(w.pc%16) >= int64(rule.CFAAdd) {
			at += 8
		}
		return at, StopNone
	}
	return 0, StopUnsupported
}

// value computes a register of the caller.
func (w *walker) value(p Place, reg Reg, off int32, cfa, same uint64) (uint64, StopReason) {
	at := cfa
	switch p {
	case PlaceSame:
		return same, StopNone
	case PlaceCFA:
	case PlaceMem, PlaceInReg:
		base, ok := w.reg(reg)
		if !ok {
			return 0, StopUnsupported
		}
		at = base
	default:
		return 0, StopUnsupported
	}
	at += uint64(int64(off))
	if p == PlaceInReg {
		return at, StopNone
	}
	v, ok := w.read(at)
	if !ok {
		return 0, StopFault
	}
	return v, StopNone
}

// reg is a register of the current frame.
func (w *walker) reg(r Reg) (uint64, bool) {
	switch r {
	case RegSP:
		return w.sp, true
	case RegFP:
		return w.fp, w.fpKnown
	}
	n := r - RegOther
	if w.first == nil || n >= 64 || w.first.Known>>n&1 == 0 {
		return 0, false
	}
	return w.first.Other[n], true
}

// stepByFramePointer follows the pair (frame pointer, return address) that the
// frame pointer points at, on both processors.
func (w *walker) stepByFramePointer() StopReason {
	if !w.fpKnown {
		return StopNoFramePtr
	}
	if w.fp == 0 {
		return StopComplete
	}
	if w.fp%8 != 0 || w.fp < w.sp {
		return StopNoFramePtr
	}
	fp, ok1 := w.read(w.fp)
	ra, ok2 := w.read(w.fp + 8)
	if !ok1 || !ok2 {
		return StopFault
	}
	w.exact = false
	return w.enter(ra, w.fp+16, fp, true, true)
}

// read reads a word of the process.
func (w *walker) read(addr uint64) (uint64, bool) {
	var b [8]byte
	if addr > 1<<63-8 {
		return 0, false
	}
	if n, _ := w.mem.ReadAt(b[:], int64(addr)); n != len(b) {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

// stripPAC removes the pointer authentication code of arm64 from a user address
// (bits 48 to 54 and 56 to 63 with 48-bit addresses).
func stripPAC(addr uint64) uint64 { return addr & (1<<48 - 1) }
