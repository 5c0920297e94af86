// SPDX-License-Identifier: Apache-2.0

package unwind

import "encoding/binary"

// cfaKind groups call frame instructions by who runs them.
type cfaKind uint8

const (
	cfaNothing      cfaKind = iota
	cfaAdvance              // operand: steps of the location
	cfaRegister             // defines the rule of a register, operand
	cfaRestore              // operand: register
	cfaDefine               // defines the CFA
	cfaRemember             // of the whole state
	cfaRestoreState         // to the last remembered
)

// cfaOp is a decoded call frame instruction.
type cfaOp struct {
	kind    cfaKind
	operand uint64 // its first
}

// cfaForms lists the instructions without an operand in the opcode (DWARF 5,
// section 7.24) and their operands: 1, 2, 4 bytes, u ULEB128, s SLEB128,
// b block. DW_CFA_set_loc (0x01) is missing: its operand's form depends on the
// CIE, and no compiler emits it.
var cfaForms = [64]struct {
	kind  cfaKind
	known bool
	form  string
}{
	0x00: {cfaNothing, true, ""},
	0x02: {cfaAdvance, true, "1"},
	0x03: {cfaAdvance, true, "2"},
	0x04: {cfaAdvance, true, "4"},
	0x05: {cfaRegister, true, "uu"}, // offset_extended
	0x06: {cfaRestore, true, "u"},   // restore_extended
	0x07: {cfaRegister, true, "u"},  // undefined
	0x08: {cfaRegister, true, "u"},  // same_value
	0x09: {cfaRegister, true, "uu"}, // register
	0x0a: {cfaRemember, true, ""},
	0x0b: {cfaRestoreState, true, ""},
	0x0c: {cfaDefine, true, "uu"},   // def_cfa
	0x0d: {cfaDefine, true, "u"},    // def_cfa_register
	0x0e: {cfaDefine, true, "u"},    // def_cfa_offset
	0x0f: {cfaDefine, true, "b"},    // def_cfa_expression
	0x10: {cfaRegister, true, "ub"}, // expression
	0x11: {cfaRegister, true, "us"}, // offset_extended_sf
	0x12: {cfaDefine, true, "us"},   // def_cfa_sf
	0x13: {cfaDefine, true, "s"},    // def_cfa_offset_sf
	0x14: {cfaRegister, true, "uu"}, // val_offset
	0x15: {cfaRegister, true, "us"}, // val_offset_sf
	0x16: {cfaRegister, true, "ub"}, // val_expression
	0x2d: {cfaNothing, true, ""},    // arm64: negate_ra_state; return addresses are stripped anyway
	0x2e: {cfaNothing, true, "u"},   // GNU_args_size
}

// decodeCFA decodes the first instruction of code and returns its length. It is
// not ok if the instruction is unknown or cut.
func decodeCFA(code []byte) (op cfaOp, n int, ok bool) {
	low := uint64(code[0] & 0x3f)
	switch code[0] >> 6 {
	case 1:
		return cfaOp{cfaAdvance, low}, 1, true
	case 2:
		_, size := uleb(code[1:])
		return cfaOp{cfaRegister, low}, 1 + size, size > 0
	case 3:
		return cfaOp{cfaRestore, low}, 1, true
	}
	f := cfaForms[low]
	op.kind, n, ok = f.kind, 1, f.known
	for i := 0; i < len(f.form) && ok; i++ {
		var v uint64
		var size int
		switch rest := code[n:]; f.form[i] {
		case '1', '2', '4':
			v, size = fixed(rest, int(f.form[i]-'0'))
		case 'u':
			v, size = uleb(rest)
		case 's':
			_, size = uleb(rest)
		case 'b':
			v, size = uleb(rest)
			if size > 0 && v > uint64(len(rest)-size) {
				return op, 0, false
			}
			if size > 0 {
				size += int(v)
			}
		}
		if i == 0 {
			op.operand = v
		}
		n += size
		ok = size > 0
	}
	return op, n, ok
}

func fixed(b []byte, size int) (uint64, int) {
	if len(b) < size {
		return 0, 0
	}
	var full [8]byte
	copy(full[:], b[:size])
	return binary.LittleEndian.Uint64(full[:]), size
}

// uleb decodes a ULEB128; size 0 means that it is cut or longer than 64 bits.
func uleb(b []byte) (v uint64, size int) {
	for i := 0; i < len(b) && i < 10; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}

// sleb decodes an SLEB128 the same way.
func sleb(b []byte) (v int64, size int) {
	u, size := uleb(b)
	v = int64(u)
	if shift := 7 * size; size > 0 && shift < 64 && b[size-1]&0x40 != 0 {
		v |= -1 << shift
	}
	return v, size
}

// exprKind is a form of DWARF expression that compilers and assembly use.
type exprKind uint8

const (
	exprAddress exprKind = iota // reg + off
	exprDeref                   // *(reg + off) + add
	exprPLT                     // sp + off + (pc%16 >= add ? 8 : 0)
)

type expression struct {
	kind     exprKind
	reg      uint64
	off, add int64
}

// The operations of the expressions known here (DWARF 5, section 7.7.1).
const (
	opDeref      = 0x06
	opAnd        = 0x1a
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opGe         = 0x2a
	opLit0       = 0x30
	opBreg0      = 0x70
	opBregx      = 0x92
)

// parseExpression knows
//
//	breg R, off                                       saved registers
//	breg R, off; deref [; plus_uconst add]            realigned stacks
//	breg7 off; breg16 0; lit15; and; litN; ge; lit3; shl; plus    the PLT
//
// The last is what linkers write for .plt, whose stubs push a number in the
// middle.
func parseExpression(b []byte) (e expression, ok bool) {
	e.reg, e.off, b, ok = parseBreg(b)
	if !ok || len(b) == 0 {
		return e, ok
	}
	if b[0] == opDeref {
		e.kind = exprDeref
		b = b[1:]
		if len(b) > 1 && b[0] == opPlusUconst {
			add, n := uleb(b[1:])
			e.add = int64(add)
			return e, n > 0 && n+1 == len(b) && add < 1<<31
		}
		return e, len(b) == 0
	}
	pc, off, b, ok := parseBreg(b)
	if !ok || pc != amd64RA || off != 0 || len(b) != 7 || b[2] < opLit0 || b[2] > opLit0+31 {
		return e, false
	}
	e.kind, e.add = exprPLT, int64(b[2]-opLit0)
	want := [7]byte{opLit0 + 15, opAnd, b[2], opGe, opLit0 + 3, opShl, opPlus}
	return e, [7]byte(b) == want
}

// parseBreg parses "register plus offset".
func parseBreg(b []byte) (reg uint64, off int64, rest []byte, ok bool) {
	if len(b) < 2 {
		return 0, 0, nil, false
	}
	n := 1
	switch op := b[0]; {
	case op >= opBreg0 && op < opBreg0+32:
		reg = uint64(op - opBreg0)
	case op == opBregx:
		var size int
		if reg, size = uleb(b[1:]); size == 0 {
			return 0, 0, nil, false
		}
		n += size
	default:
		return 0, 0, nil, false
	}
	off, size := sleb(b[n:])
	return reg, off, b[n+size:], size > 0
}
