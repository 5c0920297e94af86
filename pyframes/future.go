// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Bounds of what a structure's size may be: the runtime and an interpreter have
// some hundred thousand bytes.
const (
	maxStructure = 4 << 20
	alignment    = 4 // of all fields that are read but owner
)

// future takes the offsets of a version that came after this program from its
// own _Py_DebugOffsets, laid out like those of the newest version with a table.
// Nobody promises that, so the offsets must be plausible, and a process has to
// prove them: see prove.
func (d *detector) future(rt *Runtime, build string) error {
	var major, minor int
	if _, err := fmt.Sscanf(rt.Version, "%d.%d", &major, &minor); err != nil {
		return unsupported(rt.Version)
	}
	raw, err := d.read(rt.RuntimeVaddr, debugSize(debugLayouts[maxMinor]))
	if err != nil {
		return unsupported(rt.Version)
	}
	o, err := futureOffsets(raw, minor, build)
	if err != nil {
		return &UnsupportedError{rt.Version, fmt.Sprintf("3.%d to 3.%d are, and of its own word: %v", minMinor, maxMinor, err)}
	}
	rt.Offsets, rt.Build, rt.unproven = o, build, true
	rt.Source = fmt.Sprintf("_Py_DebugOffsets alone, laid out as in 3.%d", maxMinor)
	return nil
}

// futureOffsets is the table of the newest version with what the debug offsets
// say, each within its structure and aligned.
func futureOffsets(raw []byte, minor int, build string) (Offsets, error) {
	o := tables["3."+strconv.Itoa(maxMinor)+build]
	d, err := openDebugOffsets(raw, minor, debugLayouts[maxMinor], strings.Contains(build, "t"))
	if err != nil {
		return o, err
	}
	o.Version = 0x03000000 | uint32(minor)<<16
	for _, f := range debugFields {
		if *f.get(&o) == NoField {
			continue // a free-threaded build's, or one with a GIL has it
		}
		got, _ := d.of(f.name)
		size := uint64(maxStructure)
		if f.size != "" {
			if size, _ = d.of(f.size); size > maxStructure {
				return o, fmt.Errorf("%s is %d", f.size, size)
			}
		}
		if got >= size || got%alignment != 0 && f.name != "interpreter_frame.owner" {
			return o, fmt.Errorf("%s is %d", f.name, got)
		}
		*f.get(&o) = uint32(got)
	}
	// What they do not tell can have moved: left out, or shown by proof.
	o.CodeFirstTraceable, o.InterpCollecting = NoField, NoField
	return o, nil
}

// errUnproven says that a process has shown nothing yet: it runs no Python now.
var errUnproven = errors.New("no Python frame to prove it by")

// prove checks offsets that have no second source against the memory of a
// process: its thread states must point back to their interpreter, and each
// frame lead to a code object, which has the type of that name, a file and a line
// table.
func prove(mem io.ReaderAt, runtime uint64, o *Offsets) error {
	p := newProcess(mem, runtime, o)
	states, err := p.ThreadStates()
	if err != nil {
		return err
	}
	proven := 0
	for _, s := range states {
		interp, err := readWord(mem, s.Addr+uint64(o.ThreadInterp))
		if err != nil {
			return err
		}
		if head, err := readWord(mem, interp+uint64(o.InterpThreadsHead)); err != nil || head == 0 {
			return fmt.Errorf("thread state at %#x: of no interpreter", s.Addr)
		}
		if s.ID == 0 || s.NativeID == 0 || s.NativeID > maxTID {
			return fmt.Errorf("thread state at %#x: of thread %d", s.Addr, s.NativeID)
		}
		frames, err := p.walk(s.Addr, nil)
		if err != nil {
			return err
		}
		for _, f := range frames {
			if err := p.proveFrame(f); err != nil {
				return err
			}
			proven++
		}
	}
	if proven == 0 {
		return errUnproven
	}
	return nil
}

// maxTID is the largest thread number of Linux (PID_MAX_LIMIT).
const maxTID = 1 << 22

func (p *Process) proveFrame(f Frame) error {
	kind, err := readWord(p.mem, f.Code.Addr+uint64(p.offsets.TypeOffset))
	if err != nil {
		return err
	}
	name, err := readWord(p.mem, kind+uint64(p.offsets.TypeName))
	if err != nil {
		return err
	}
	var text [5]byte
	if err := readFull(p.mem, text[:], name); err != nil {
		return err
	}
	if string(text[:]) != "code\x00" {
		return fmt.Errorf("frame of %q, not of a code object", text)
	}
	c, err := p.ReadCode(f.Code)
	switch {
	case err != nil:
		return err
	case c.Filename == "" || c.Name == "" || f.Lasti%2 != 0:
		return fmt.Errorf("code object at %#x: named %q, of %q, at %d", f.Code.Addr, c.Name, c.Filename, f.Lasti)
	case f.Lasti >= 0 && c.Lines.rangeOf(f.Lasti) == (Range{}):
		return fmt.Errorf("code object at %#x: no place %d in its line table", f.Code.Addr, f.Lasti)
	}
	return nil
}

// place36 finds what 3.6 has instead of _PyRuntime: two words of their own. The
// list of interpreters is a local symbol; stripped of it, the function that
// returns its head tells where it is.
func (d *detector) place36(rt *Runtime) error {
	head, ok := d.known["interp_head"]
	if !ok {
		head, ok = d.loadedBy(d.known["PyInterpreterState_Head"])
	}
	current := d.known["_PyThreadState_Current"]
	if !ok || current == 0 {
		return &UnsupportedError{rt.Version, "the list of its interpreters could not be found in " + d.path}
	}
	rt.RuntimeVaddr = min(head, current)
	rt.Offsets.RuntimeInterpretersHead = uint32(head - rt.RuntimeVaddr)
	rt.Offsets.RuntimeGIL = uint32(current - rt.RuntimeVaddr)
	return nil
}

// loadedBy returns the address of the word that a function of the form
// "return word;" loads: mov word(%rip), %rax on x86-64.
func (d *detector) loadedBy(function uint64) (uint64, bool) {
	const length = 7
	code, err := d.read(function, length)
	if function == 0 || err != nil || code[0] != 0x48 || code[1] != 0x8b || code[2] != 0x05 {
		return 0, false
	}
	return function + length + uint64(int64(int32(binary.LittleEndian.Uint32(code[3:])))), true
}
