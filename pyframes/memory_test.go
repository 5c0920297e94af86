// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// memory is an address space with one mapping, which begins at base.
type memory []byte

const base = 0x10000

func (m memory) ReadAt(b []byte, addr int64) (int, error) {
	if addr < base || addr-base >= int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(b, m[addr-base:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (m memory) word(addr uint64, v uint64) { binary.LittleEndian.PutUint64(m[addr-base:], v) }

func (m memory) half(addr uint64, v uint32) { binary.LittleEndian.PutUint32(m[addr-base:], v) }

// text lays out a str object whose characters take kind bytes each.
func (m memory) text(o *Offsets, addr uint64, s string, kind uint32) {
	state, data := kind<<o.UnicodeKindBit|1<<o.UnicodeCompactBit, addr+uint64(o.UnicodeComp)
	if strings.IndexFunc(s, func(r rune) bool { return r >= utf8.RuneSelf }) < 0 {
		state, data = state|1<<o.UnicodeASCIIBit, addr+uint64(o.UnicodeASCI)
	}
	m.word(addr+uint64(o.UnicodeLen), uint64(utf8.RuneCountInString(s)))
	m.half(addr+uint64(o.UnicodeFlag), state)
	for _, r := range s {
		switch kind {
		case 1:
			m[data-base] = byte(r)
		case 2:
			binary.LittleEndian.PutUint16(m[data-base:], uint16(r))
		case 4:
			m.half(data, uint32(r))
		}
		data += uint64(kind)
	}
}

// Addresses of the objects that image lays out.
const (
	codeAt = base + 0x100 + 0x400*iota
	nameAt
	qualnameAt
	fileAt
	tableAt
	stateAt
	frameAt
	typeAt
	runtimeAt // 3.13 has interpreters.head far within
	interpAt  = base + 0x3000
	imageSize = 0x6000
)

// image is the memory of a process with one thread in one function.
func image(version string, name string, kind uint32) memory {
	o := tables[version]
	m := make(memory, imageSize)
	m.half(codeAt+uint64(o.CodeFirstLine), 7)
	m.word(codeAt+uint64(o.CodeLineTable), tableAt)
	m.word(codeAt+uint64(o.CodeFilename), fileAt)
	m.word(codeAt+uint64(o.CodeName), nameAt)
	m.text(&o, nameAt, name, kind)
	m.text(&o, fileAt, "dir/file.py", 1)
	if o.CodeQualname != NoField {
		m.word(codeAt+uint64(o.CodeQualname), qualnameAt)
		m.text(&o, qualnameAt, name, kind)
	}
	m.word(tableAt+uint64(o.BytesSize), 2)
	m.half(tableAt+uint64(o.BytesData), 0x0102)
	m.word(codeAt+uint64(o.TypeOffset), typeAt)
	m.word(typeAt+uint64(o.TypeName), typeAt+0x200)
	copy(m[typeAt+0x200-base:], "code")
	m.word(runtimeAt+uint64(o.RuntimeInterpretersHead), interpAt)
	m.word(interpAt+uint64(o.InterpThreadsHead), stateAt)
	m.word(stateAt+uint64(o.ThreadID), 0x7000)
	m.word(stateAt+uint64(o.ThreadInterp), interpAt)
	if o.ThreadNativeID != NoField {
		m.word(stateAt+uint64(o.ThreadNativeID), 42)
	}
	frame := uint64(frameAt)
	m.word(stateAt+uint64(o.ThreadFrame), frame)
	if o.CFrameCurrent != NoField {
		m.word(stateAt+uint64(o.ThreadFrame), frame+0x200)
		m.word(frame+0x200+uint64(o.CFrameCurrent), frame)
	}
	m.word(frame+uint64(o.FrameCode), codeAt)
	if o.Version >= 0x030e0000 {
		m.word(frame+uint64(o.FrameCode), codeAt|1) // a reference that is not counted
	}
	switch o.Style {
	case StyleLastiByte, StyleLastiUnit:
		m.half(frame+uint64(o.FrameInstr), 6)
	default:
		m.word(frame+uint64(o.FrameInstr), codeAt+uint64(o.CodeBytes)+6)
	}
	return m
}

func imageProcess(m memory, version string) *Process {
	o := tables[version]
	return newProcess(m, runtimeAt, &o)
}

var imageKey = CodeKey{Addr: codeAt, FirstLine: 7, LineTable: tableAt}

func TestReadCode(t *testing.T) {
	for version := range tables {
		for _, c := range []struct {
			name string
			kind uint32
		}{{"plain", 1}, {"überall", 1}, {"λόγος", 2}, {"漢字", 2}, {"𠀀𠀁", 4}, {"", 1}} {
			p := imageProcess(image(version, c.name, c.kind), version)
			p.Dir = "/home"
			code, err := p.ReadCode(imageKey)
			if err != nil {
				t.Fatalf("%s, %q: %v", version, c.name, err)
			}
			if code.Name != c.name || code.Filename != "/home/dir/file.py" || code.FirstLine != 7 ||
				string(code.Lines.Data) != "\x02\x01" {
				t.Errorf("%s: got %+v, want %q", version, code, c.name)
			}
		}
	}
}

func TestReadCodeStale(t *testing.T) {
	m := image("3.11", "f", 1)
	p := imageProcess(m, "3.11")
	for name, key := range map[string]CodeKey{
		"first line": {Addr: codeAt, FirstLine: 8, LineTable: tableAt},
		"line table": {Addr: codeAt, FirstLine: 7, LineTable: tableAt + 8},
	} {
		if c, err := p.ReadCode(key); !errors.Is(err, ErrStale) {
			t.Errorf("other %s: got %+v, %v, want ErrStale", name, c, err)
		}
	}
	if c, err := p.ReadCode(CodeKey{Addr: 0x5000, FirstLine: 7, LineTable: tableAt}); err == nil || errors.Is(err, ErrStale) {
		t.Errorf("no memory: got %+v, %v, want its error", c, err)
	}
}

// What a length or a form in memory claims is not believed.
func TestReadCodeDamaged(t *testing.T) {
	o := tables["3.11"]
	for _, c := range []struct {
		name   string
		damage func(m memory)
	}{
		{"long name", func(m memory) { m.word(qualnameAt+uint64(o.UnicodeLen), maxName+1) }},
		{"negative length", func(m memory) { m.word(fileAt+uint64(o.UnicodeLen), 1<<63) }},
		{"name not compact", func(m memory) { m.half(qualnameAt+uint64(o.UnicodeFlag), 1<<o.UnicodeKindBit) }},
		{"name of no kind", func(m memory) { m.half(qualnameAt+uint64(o.UnicodeFlag), 1<<o.UnicodeCompactBit|3<<o.UnicodeKindBit) }},
		{"not ASCII", func(m memory) { m[qualnameAt+uint64(o.UnicodeASCI)-base] = 0xff }},
		{"long table", func(m memory) { m.word(tableAt+uint64(o.BytesSize), maxTable+1) }},
		{"table beyond memory", func(m memory) { m.word(tableAt+uint64(o.BytesSize), 2*imageSize) }},
		{"no file", func(m memory) { m.word(codeAt+uint64(o.CodeFilename), 0) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := image("3.11", "f", 1)
			c.damage(m)
			if got, err := imageProcess(m, "3.11").ReadCode(imageKey); err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	}
}

func TestFrames(t *testing.T) {
	for version, o := range tables {
		m := image(version, "f", 1)
		got, err := imageProcess(m, version).Frames(42, 0x7000, nil)
		want := Frame{Code: imageKey, Lasti: 6, Entry: o.Style <= StyleLastiUnit}
		if o.Style == StyleLastiUnit {
			want.Lasti = 12
		}
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %+v, %v, want %+v", version, got, err, want)
		}
		if o.FrameOwner == NoField {
			continue
		}
		// The shim that C entered the interpreter by marks the frame inside.
		m.word(frameAt+uint64(o.FrameBack), frameAt+0x100)
		m[frameAt+0x100+uint64(o.FrameOwner)-base] = byte(o.OwnerShim)
		want.Entry = true
		if got, err = imageProcess(m, version).Frames(42, 0, nil); err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s with a shim: got %+v, %v, want %+v", version, got, err, want)
		}
	}
}

// From 3.14 on a thread of a free-threaded build can run a copy of the bytecode.
func TestFramesOfCopies(t *testing.T) {
	for version, o := range tables {
		if o.FrameTLBC == NoField {
			continue
		}
		const copies = stateAt + 0x200
		m := image(version, "f", 1)
		m.half(frameAt+uint64(o.FrameTLBC), 2)
		m.word(codeAt+uint64(o.CodeTLBC), copies)
		m.word(copies, 3)
		m.word(copies+8, codeAt+uint64(o.CodeBytes))
		m.word(copies+24, 0x7f0000)
		m.word(frameAt+uint64(o.FrameInstr), 0x7f0000+10)
		got, err := imageProcess(m, version).Frames(42, 0, nil)
		want := Frame{Code: imageKey, Lasti: 10}
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%s: got %+v, %v, want %+v", version, got, err, want)
		}
		for _, index := range []uint32{3, 0xffffffff} {
			m.half(frameAt+uint64(o.FrameTLBC), index)
			if got, err := imageProcess(m, version).Frames(42, 0, nil); err == nil {
				t.Errorf("%s, copy %d of 3: got %+v, want an error", version, int32(index), got)
			}
		}
	}
}

// Lists that bite their own tail end with an error.
func TestFramesLoop(t *testing.T) {
	for version, o := range tables {
		for name, damage := range map[string]func(m memory){
			"frames":       func(m memory) { m.word(frameAt+uint64(o.FrameBack), frameAt) },
			"threads":      func(m memory) { m.word(stateAt+uint64(o.ThreadNext), stateAt) },
			"interpreters": func(m memory) { m.word(interpAt+uint64(o.InterpNext), interpAt) },
		} {
			m := image(version, "f", 1)
			damage(m)
			if got, err := imageProcess(m, version).Frames(42, 0x7000, nil); err == nil {
				t.Errorf("%s, %s: got %d frames, want an error", version, name, len(got))
			}
		}
	}
}

// Whatever the memory holds, reading it ends, within bounds, and what is
// returned has the key that was asked for. The input says which words of a good
// image to overwrite: two bytes of address, eight of value.
func FuzzMemory(f *testing.F) {
	f.Add(byte(0), "")
	f.Add(byte(3), "\x08\x01\x00\x00\x01\x00\x00\x00\x00\x00")
	f.Add(byte(5), "\x10\x05\xff\xff\xff\x00\x00\x00\x00\x00\x08\x19\x00\x1d\x01\x00\x00\x00\x00\x00")
	f.Fuzz(func(t *testing.T, minor byte, patches string) {
		versions := slices.Sorted(maps.Keys(tables))
		version := versions[int(minor)%len(versions)]
		m := image(version, "λ", 2)
		for ; len(patches) >= 10; patches = patches[10:] {
			at := uint64(binary.LittleEndian.Uint16([]byte(patches))) % (imageSize - 8)
			copy(m[at:at+8], patches[2:10])
		}
		p := imageProcess(m, version)
		p.Source = func(string) ([]byte, error) { return nil, io.EOF }
		frames, _ := p.Frames(42, 0x7000, nil)
		if len(frames) > maxDepth {
			t.Fatalf("%d frames", len(frames))
		}
		for _, frame := range append(frames[:min(len(frames), 4)], Frame{Code: imageKey}) {
			c, err := p.ReadCode(frame.Code)
			switch {
			case err != nil:
			case c.Key != frame.Code || c.FirstLine != int32(frame.Code.FirstLine):
				t.Fatalf("got %+v, want %+v", c, frame.Code)
			case !utf8.ValidString(c.Name) || !utf8.ValidString(c.Filename):
				t.Fatalf("%q, %q: not UTF-8", c.Name, c.Filename)
			default:
				c.Lines.Line(frame.Lasti)
			}
		}
	})
}
