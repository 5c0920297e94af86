// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"testing"
)

// noteFile is the smallest ELF file with notes.
func noteFile(notes []byte, align uint64) []byte {
	b := &bytes.Buffer{}
	head := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	copy(head.Ident[:], "\x7fELF\x02\x01\x01")
	writeLE(b, head)
	writeLE(b, elf.Prog64{Type: uint32(elf.PT_NOTE), Off: 120, Filesz: uint64(len(notes)), Align: align})
	b.Write(notes)
	return b.Bytes()
}

func writeLE(b *bytes.Buffer, v any) {
	if err := binary.Write(b, binary.LittleEndian, v); err != nil {
		panic(err) // a value of no fixed size: a mistake in this file
	}
}

func FuzzBuildID(f *testing.F) {
	note := []byte("\x04\x00\x00\x00\x14\x00\x00\x00\x03\x00\x00\x00GNU\x00" + "01234567890123456789")
	other := []byte("\x04\x00\x00\x00\x04\x00\x00\x00\x01\x00\x00\x00GNU\x00abcd")
	f.Add(noteFile(note, 4))
	f.Add(noteFile(append(other, note...), 4))
	f.Add(noteFile([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\x03\x00\x00\x00GNU\x00"), 8))
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, data []byte) {
		id, err := BuildID(bytes.NewReader(data))
		if (id == "") != (err != nil) {
			t.Errorf("got %q, %v", id, err)
		}
	})
}

func TestBuildIDNotes(t *testing.T) {
	note := []byte("\x04\x00\x00\x00\x04\x00\x00\x00\x03\x00\x00\x00GNU\x00\x01\x02\x03\x04")
	for _, c := range []struct {
		name  string
		notes []byte
		want  string
	}{
		{"alone", note, "01020304"},
		{"after another of odd size", append([]byte("\x02\x00\x00\x00\x01\x00\x00\x00\x03\x00\x00\x00X\x00\x00\x00a\x00\x00\x00"), note...), "01020304"},
		{"another vendor", bytes.Replace(note, []byte("GNU"), []byte("ABC"), 1), ""},
		{"cut", note[:len(note)-1], ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := BuildID(bytes.NewReader(noteFile(c.notes, 4)))
			if got != c.want || (c.want == "") != errors.Is(err, ErrNoBuildID) {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}
