// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// memberTables are the types whose tables of members tell offsets: addresses in
// the file, 0 if unknown.
type memberTables struct{ code, frame uint64 }

// errLayout says that an interpreter has another layout than its version's.
var errLayout = errors.New("a build of another layout")

const (
	// memberSize is sizeof(PyMemberDef): name, type, offset, flags, doc.
	memberSize = 40
	maxMembers = 64
)

// check compares the offsets with those that the process' own member tables
// state. Each version has a different set of members; what is there must agree.
func (m memberTables) check(mem io.ReaderAt, bias uint64, o *Offsets) (agreed int, err error) {
	old := o.Style == StyleLastiByte || o.Style == StyleLastiUnit
	for _, t := range []struct {
		addr   uint64
		fields map[string]uint32
	}{
		{m.code, map[string]uint32{
			"co_firstlineno": o.CodeFirstLine, "co_filename": o.CodeFilename, "co_name": o.CodeName,
			"co_qualname": o.CodeQualname, "co_linetable": o.CodeLineTable, "co_flags": o.CodeFlags,
		}},
		{m.frame, map[string]uint32{"f_back": o.FrameBack, "f_code": o.FrameCode, "f_lasti": o.FrameInstr}},
	} {
		if t.addr == 0 || t.addr == m.frame && !old {
			continue // from 3.11 on the frame object is another structure
		}
		members, err := readMembers(mem, t.addr+bias, o.TypeMembers)
		if err != nil {
			return agreed, err
		}
		for name, want := range t.fields {
			got, ok := members[name]
			if !ok {
				continue
			}
			if got != uint64(want) {
				return agreed, fmt.Errorf("it says %d for %s, its headers %d: %w", got, name, want, errLayout)
			}
			agreed++
		}
	}
	return agreed, nil
}

// readMembers reads tp_members of the type at addr: name to offset.
func readMembers(mem io.ReaderAt, addr uint64, typeMembers uint32) (map[string]uint64, error) {
	table, err := readWord(mem, addr+uint64(typeMembers))
	if err != nil {
		return nil, fmt.Errorf("member table: %w", err)
	}
	members := map[string]uint64{}
	for i := range maxMembers {
		var raw [memberSize]byte
		if err := readFull(mem, raw[:], table+uint64(i*memberSize)); err != nil {
			return nil, fmt.Errorf("member table: %w", err)
		}
		name := binary.LittleEndian.Uint64(raw[:])
		if name == 0 {
			break
		}
		var text [32]byte
		if err := readFull(mem, text[:], name); err != nil {
			return nil, fmt.Errorf("name of a member: %w", err)
		}
		word, _, _ := bytes.Cut(text[:], []byte{0})
		members[string(word)] = binary.LittleEndian.Uint64(raw[16:])
	}
	return members, nil
}

func readWord(mem io.ReaderAt, addr uint64) (uint64, error) {
	var b [8]byte
	err := readFull(mem, b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), err
}

// readFull reads exactly len(b) bytes at a user address.
func readFull(mem io.ReaderAt, b []byte, addr uint64) error {
	if addr == 0 || addr > 1<<56 {
		return fmt.Errorf("address %#x: not one of a program", addr)
	}
	if n, err := mem.ReadAt(b, int64(addr)); n < len(b) {
		return err
	}
	return nil
}
