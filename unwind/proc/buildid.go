// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
)

// ErrNoBuildID says that an ELF file carries no GNU build id.
var ErrNoBuildID = errors.New("no build id")

// maxNotes bounds the bytes of notes that are read: real ones have some hundred.
const maxNotes = 1 << 16

// noteBuildID is NT_GNU_BUILD_ID.
const noteBuildID = 3

// BuildID returns the GNU build id of an ELF file in hex, from its notes.
func BuildID(r io.ReaderAt) (id string, err error) {
	// debug/elf has panicked on damaged files before; a file is hostile input.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("ELF file: %v", p)
		}
	}()
	f, err := elf.NewFile(r)
	if err != nil {
		return "", fmt.Errorf("ELF file: %w", err)
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > maxNotes {
			continue
		}
		notes := make([]byte, p.Filesz)
		if n, err := r.ReadAt(notes, int64(p.Off)); n < len(notes) {
			return "", fmt.Errorf("notes: %w", err)
		}
		if id := findBuildID(notes, f.ByteOrder, p.Align); id != "" {
			return id, nil
		}
	}
	return "", ErrNoBuildID
}

// findBuildID goes through notes: sizes of name and contents, type, then both,
// each padded (elf(5), "Notes").
func findBuildID(notes []byte, order binary.ByteOrder, align uint64) string {
	pad := uint64(4)
	if align == 8 {
		pad = 8
	}
	for len(notes) >= 12 {
		nameLen, descLen := uint64(order.Uint32(notes)), uint64(order.Uint32(notes[4:]))
		kind := order.Uint32(notes[8:])
		desc := (12 + nameLen + pad - 1) / pad * pad
		if desc+descLen > uint64(len(notes)) {
			return ""
		}
		if kind == noteBuildID && nameLen == 4 && string(notes[12:16]) == "GNU\x00" {
			return hex.EncodeToString(notes[desc : desc+descLen])
		}
		next := (desc + descLen + pad - 1) / pad * pad
		if next > uint64(len(notes)) {
			return ""
		}
		notes = notes[next:]
	}
	return ""
}
