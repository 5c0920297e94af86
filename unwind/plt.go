// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"math"
)

// pltSections are the sections with stubs that jump through the global offset
// table: .plt.got for symbols that need no lazy binding, .plt.sec with
// control-flow protection.
var pltSections = []string{".plt", ".plt.got", ".plt.sec"}

// rankPLT puts the stubs behind every real symbol at the same address.
const rankPLT = 1 << 23

// addPLT names the stubs of the procedure linkage table. It decodes the jump of
// each stub rather than count entries: the order of stubs and relocations
// differs between linkers. A file whose tables cannot be read simply keeps its
// stubs nameless.
func (c *collector) addPLT() {
	slots := c.gotSlots()
	if len(slots) == 0 {
		return
	}
	for _, name := range pltSections {
		s := c.f.Section(name)
		if s == nil || s.Type == elf.SHT_NOBITS {
			continue
		}
		code, err := c.f.data(s)
		if err != nil {
			continue
		}
		step := 16
		if name == ".plt.got" && c.f.Machine == elf.EM_X86_64 && s.Entsize == 8 {
			step = 8
		}
		c.addStubs(code, s.Addr, step, slots)
	}
}

func (c *collector) addStubs(code []byte, addr uint64, step int, slots map[uint64][]byte) {
	target := stubTargetAMD64
	if c.f.Machine == elf.EM_AARCH64 {
		target = stubTargetARM64
	}
	for i := 0; i+step <= len(code); i += step {
		at := addr + uint64(i)
		slot, ok := target(code[i:i+step], at)
		name := slots[slot]
		if !ok || len(name) == 0 || at < c.base || at-c.base > math.MaxUint32 ||
			uint64(len(c.names)+len(name)+5) > math.MaxUint32 {
			continue
		}
		off := uint32(len(c.names))
		c.names = append(append(c.names, name...), "@plt\x00"...)
		c.found = append(c.found, candidate{
			symbol: symbol{start: uint32(at - c.base), size: uint32(step), name: off},
			rank:   rankPLT,
		})
	}
}

// gotSlots gives for each slot of the global offset table the symbol that the
// dynamic linker puts there.
func (c *collector) gotSlots() map[uint64][]byte {
	dynsym := c.f.Section(".dynsym")
	if dynsym == nil || uint64(dynsym.Link) >= uint64(len(c.f.Sections)) {
		return nil
	}
	table, err1 := c.f.data(dynsym)
	names, err2 := c.f.data(c.f.Sections[dynsym.Link])
	if err1 != nil || err2 != nil {
		return nil
	}
	slots := make(map[uint64][]byte)
	for _, section := range []string{".rela.plt", ".rela.dyn"} {
		rela, err := c.f.section(section)
		if err != nil {
			continue
		}
		for ; len(rela) >= 24; rela = rela[24:] {
			c.addSlot(slots, rela, table, names)
		}
	}
	return slots
}

// addSlot looks at one Elf64_Rela.
func (c *collector) addSlot(slots map[uint64][]byte, rela, table, names []byte) {
	le := binary.LittleEndian
	where, info := le.Uint64(rela), le.Uint64(rela[8:])
	kind, sym := uint32(info), info>>32
	switch c.f.Machine {
	case elf.EM_X86_64:
		if kind != uint32(elf.R_X86_64_JMP_SLOT) && kind != uint32(elf.R_X86_64_GLOB_DAT) {
			return
		}
	case elf.EM_AARCH64:
		if kind != uint32(elf.R_AARCH64_JUMP_SLOT) && kind != uint32(elf.R_AARCH64_GLOB_DAT) {
			return
		}
	}
	if (sym+1)*elf.Sym64Size > uint64(len(table)) {
		return
	}
	if name := nameAt(names, le.Uint32(table[sym*elf.Sym64Size:])); len(name) > 0 {
		slots[where] = name
	}
}

// stubTargetAMD64 finds jmp *disp32(%rip) (ff 25) in a stub.
func stubTargetAMD64(stub []byte, addr uint64) (uint64, bool) {
	for i := 0; i+6 <= len(stub) && i <= 5; i++ {
		if stub[i] == 0xff && stub[i+1] == 0x25 {
			disp := int32(binary.LittleEndian.Uint32(stub[i+2:]))
			return addr + uint64(i) + 6 + uint64(int64(disp)), true
		}
	}
	return 0, false
}

// stubTargetARM64 decodes adrp x16, page; ldr x17, [x16, #offset].
func stubTargetARM64(stub []byte, addr uint64) (uint64, bool) {
	le := binary.LittleEndian
	adrp, ldr := le.Uint32(stub), le.Uint32(stub[4:])
	if adrp&0x9f00001f != 0x90000010 || ldr&0xffc003ff != 0xf9400211 {
		return 0, false
	}
	pages := int64(adrp>>29&3|adrp>>5&0x7ffff<<2) << 43 >> 31 // 21 bits, signed, times 4096
	return addr&^0xfff + uint64(pages) + uint64(ldr>>10&0xfff)*8, true
}
