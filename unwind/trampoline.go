// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
)

// trampolineCode is what CPython copies for each Python function with -X perf
// (Python/asm_trampoline.S, 3.12 and 3.13, x86-64):
//
//	sub $8, %rsp; call *%rcx; add $8, %rsp; ret
//
// On arm64 the copies keep frame pointers, and need no table.
var trampolineCode = []byte{0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3}

// maxTrampolines bounds the bytes of one mapping; CPython maps 64 KiB at a time.
const maxTrampolines = 8 << 20

// TrampolineTable returns the table of a mapping that CPython has filled with
// trampolines, by the first bytes of it and its size; false if it is something
// else. Addresses are those in the mapping.
func TrampolineTable(code []byte, size uint64) (*Table, bool) {
	n := uint64(len(trampolineCode))
	if !bytes.HasPrefix(code, trampolineCode) || size > maxTrampolines || size < n {
		return nil, false
	}
	step := size
	if next := bytes.Index(code[n:], trampolineCode[:6]); next >= 0 && next < 16 {
		step = n + uint64(next)
	}
	table := &Table{Machine: elf.EM_X86_64}
	w := newRowWriter(table)
	rule := func(off int32) Rule { return Rule{CFA: CFARegister, CFAOff: off, RA: PlaceCFA, RAOff: -8} }
	for at := uint64(0); at+n <= size; at += step {
		w.add(at, rule(8))
		w.add(at+4, rule(16))
		w.add(at+n-1, rule(8))
		table.Functions++
	}
	w.add(size, Rule{})
	return table, true
}
