// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// tinyAddr is where the code of [tinyELF] lies; its .eh_frame follows at
// tinyFrameAddr.
const (
	tinyAddr      = 0x401000
	tinyFrameAddr = 0x402000
)

// tinyELF makes an x86-64 file with just a .text and an .eh_frame section.
func tinyELF(ehFrame, text []byte) []byte {
	return tinyELFFor(elf.EM_X86_64, ".eh_frame", ehFrame, text)
}

func tinyELFFor(machine elf.Machine, frameSection string, frame, text []byte) []byte {
	if text == nil {
		text = make([]byte, 256)
	}
	const head, progs = 64, 2 * 56
	names := "\x00.text\x00.shstrtab\x00" + frameSection + "\x00"
	textOff := uint64(head + progs)
	frameOff := (textOff + uint64(len(text)) + 7) &^ 7
	namesOff := frameOff + uint64(len(frame))
	sectionsOff := (namesOff + uint64(len(names)) + 7) &^ 7
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	pad := func(to uint64) { b.Write(make([]byte, int(to)-b.Len())) }
	put(elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: uint16(elf.ET_EXEC), Machine: uint16(machine),
		Version: 1, Phoff: head, Shoff: sectionsOff, Ehsize: 64, Phentsize: 56, Phnum: 2, Shentsize: 64, Shnum: 4, Shstrndx: 2,
	})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: 5, Off: textOff, Vaddr: tinyAddr, Filesz: uint64(len(text)), Memsz: uint64(len(text))})
	put(elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: 4, Off: frameOff, Vaddr: tinyFrameAddr, Filesz: uint64(len(frame)), Memsz: uint64(len(frame))})
	b.Write(text)
	pad(frameOff)
	b.Write(frame)
	b.WriteString(names)
	pad(sectionsOff)
	put(elf.Section64{})
	put(elf.Section64{Name: 1, Type: 1, Flags: 6, Addr: tinyAddr, Off: textOff, Size: uint64(len(text))})
	put(elf.Section64{Name: 7, Type: 3, Off: namesOff, Size: uint64(len(names))})
	put(elf.Section64{Name: 17, Type: 1, Flags: 2, Addr: tinyFrameAddr, Off: frameOff, Size: uint64(len(frame))})
	return b.Bytes()
}
