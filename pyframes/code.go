// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"unicode/utf8"
)

// ErrStale says that a code object is not, or no longer, what the key says.
var ErrStale = errors.New("code object is gone")

// Bounds of what is read of a code object: longer ones are damaged or hostile.
const (
	maxName  = 1 << 16
	maxTable = 1 << 24
)

// ReadCode reads a code object. The error is ErrStale if the memory has been
// used for another one since the key was taken, or one of reading.
func (p *Process) ReadCode(key CodeKey) (*Code, error) {
	o := p.offsets
	size := max(o.CodeFirstLine+4, o.CodeLineTable+8, o.CodeFilename+8, o.CodeName+8)
	if o.CodeQualname != NoField {
		size = max(size, o.CodeQualname+8)
	}
	raw := make([]byte, size)
	if err := readFull(p.mem, raw, key.Addr); err != nil {
		return nil, fmt.Errorf("code object at %#x: %w", key.Addr, err)
	}
	le := binary.LittleEndian
	if le.Uint32(raw[o.CodeFirstLine:]) != key.FirstLine || le.Uint64(raw[o.CodeLineTable:]) != key.LineTable {
		return nil, ErrStale
	}
	c := &Code{Key: key, FirstLine: int32(key.FirstLine)}
	nameAt := o.CodeName
	if o.CodeQualname != NoField {
		nameAt = o.CodeQualname
	}
	var err error
	if c.Name, err = p.text(le.Uint64(raw[nameAt:])); err != nil {
		return nil, fmt.Errorf("name of the code object at %#x: %w", key.Addr, err)
	}
	if c.Filename, err = p.text(le.Uint64(raw[o.CodeFilename:])); err != nil {
		return nil, fmt.Errorf("file of the code object at %#x: %w", key.Addr, err)
	}
	table, err := p.bytes(key.LineTable)
	if err != nil {
		return nil, fmt.Errorf("line table of the code object at %#x: %w", key.Addr, err)
	}
	c.Lines = LineTable{Style: o.Style, FirstLine: c.FirstLine, Data: table}
	// _Py_InitCleanup (Python/specialize.c, 3.13) has a frame under each call of
	// a class with a specialised __init__. It bears that name for a file, too.
	c.Hidden = c.FirstLine == 0 && c.Name == "__init__" && c.Filename == "__init__"
	if !c.Hidden && p.Dir != "" && c.Filename != "" && c.Filename[0] != '/' && c.Filename[0] != '<' {
		c.Filename = path.Join(p.Dir, c.Filename)
	}
	if o.CodeQualname == NoField {
		c.Name = p.qualify(c)
	}
	return c, p.verify(key)
}

// verify reads the key's fields again: they tell whether the object lived on
// while its parts were read.
func (p *Process) verify(key CodeKey) error {
	var line [4]byte
	if err := readFull(p.mem, line[:], key.Addr+uint64(p.offsets.CodeFirstLine)); err != nil {
		return err
	}
	table, err := readWord(p.mem, key.Addr+uint64(p.offsets.CodeLineTable))
	if err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(line[:]) != key.FirstLine || table != key.LineTable {
		return ErrStale
	}
	return nil
}

// bytes reads a bytes object.
func (p *Process) bytes(addr uint64) ([]byte, error) {
	size, err := readWord(p.mem, addr+uint64(p.offsets.BytesSize))
	if err != nil {
		return nil, err
	}
	if size > maxTable {
		return nil, fmt.Errorf("bytes object of %d bytes", size)
	}
	b := make([]byte, size)
	if size == 0 {
		return b, nil
	}
	return b, readFull(p.mem, b, addr+uint64(p.offsets.BytesData))
}

// stateKinds masks PyASCIIObject.state.kind.
const stateKinds = 7

// text reads a str object as UTF-8.
func (p *Process) text(addr uint64) (string, error) {
	o := p.offsets
	head := make([]byte, max(o.UnicodeLen+8, o.UnicodeFlag+4))
	if err := readFull(p.mem, head, addr); err != nil {
		return "", err
	}
	length := binary.LittleEndian.Uint64(head[o.UnicodeLen:])
	state := binary.LittleEndian.Uint32(head[o.UnicodeFlag:])
	kind := state >> o.UnicodeKindBit & stateKinds
	compact, ascii := state>>o.UnicodeCompactBit&1 != 0, state>>o.UnicodeASCIIBit&1 != 0
	if length > maxName {
		return "", fmt.Errorf("string of %d characters", length)
	}
	if !compact || kind != 1 && kind != 2 && kind != 4 {
		return "", fmt.Errorf("string of unknown form %#x", state)
	}
	at := addr + uint64(o.UnicodeComp)
	if ascii {
		at = addr + uint64(o.UnicodeASCI)
	}
	raw := make([]byte, length*uint64(kind))
	if len(raw) == 0 {
		return "", nil
	}
	if err := readFull(p.mem, raw, at); err != nil {
		return "", err
	}
	if ascii {
		return asciiText(raw)
	}
	return wideText(raw, int(kind)), nil
}

func asciiText(raw []byte) (string, error) {
	for _, b := range raw {
		if b >= utf8.RuneSelf {
			return "", errors.New("string that is not as it says")
		}
	}
	return string(raw), nil
}

// wideText converts characters of one, two or four bytes. A lone surrogate, as
// undecodable file names hold, becomes the replacement character.
func wideText(raw []byte, kind int) string {
	var out []byte
	for ; len(raw) >= kind; raw = raw[kind:] {
		var r rune
		switch kind {
		case 1:
			r = rune(raw[0])
		case 2:
			r = rune(binary.LittleEndian.Uint16(raw))
		case 4:
			r = rune(binary.LittleEndian.Uint32(raw))
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}
