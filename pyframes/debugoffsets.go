// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// debugCookie begins _Py_DebugOffsets, which begins _PyRuntime, from 3.13 on
// (Include/internal/pycore_runtime.h).
const debugCookie = "xdebugpy"

// debugWords is how many 8-byte words of the structure are read: all that 3.13
// has.
const debugWords = 73

const (
	wordVersion      = 1
	wordFreeThreaded = 2
)

// debugField ties a word of the structure to a field of Offsets.
type debugField struct {
	name string
	word int
	get  func(*Offsets) uint32
}

// debugFields are in the order of the structure: see
// Include/internal/pycore_runtime.h of 3.13.
var debugFields = []debugField{
	{"runtime_state.interpreters_head", 5, func(o *Offsets) uint32 { return o.RuntimeInterpretersHead }},
	{"interpreter_state.next", 8, func(o *Offsets) uint32 { return o.InterpNext }},
	{"interpreter_state.threads_head", 9, func(o *Offsets) uint32 { return o.InterpThreadsHead }},
	{"thread_state.next", 21, func(o *Offsets) uint32 { return o.ThreadNext }},
	{"thread_state.interp", 22, func(o *Offsets) uint32 { return o.ThreadInterp }},
	{"thread_state.current_frame", 23, func(o *Offsets) uint32 { return o.ThreadFrame }},
	{"thread_state.thread_id", 24, func(o *Offsets) uint32 { return o.ThreadID }},
	{"thread_state.native_thread_id", 25, func(o *Offsets) uint32 { return o.ThreadNativeID }},
	{"interpreter_frame.previous", 29, func(o *Offsets) uint32 { return o.FrameBack }},
	{"interpreter_frame.executable", 30, func(o *Offsets) uint32 { return o.FrameCode }},
	{"interpreter_frame.instr_ptr", 31, func(o *Offsets) uint32 { return o.FrameInstr }},
	{"interpreter_frame.owner", 33, func(o *Offsets) uint32 { return o.FrameOwner }},
	{"code_object.filename", 35, func(o *Offsets) uint32 { return o.CodeFilename }},
	{"code_object.name", 36, func(o *Offsets) uint32 { return o.CodeName }},
	{"code_object.qualname", 37, func(o *Offsets) uint32 { return o.CodeQualname }},
	{"code_object.linetable", 38, func(o *Offsets) uint32 { return o.CodeLineTable }},
	{"code_object.firstlineno", 39, func(o *Offsets) uint32 { return o.CodeFirstLine }},
	{"pyobject.ob_type", 45, func(o *Offsets) uint32 { return o.TypeOffset }},
	{"bytes_object.ob_size", 65, func(o *Offsets) uint32 { return o.BytesSize }},
	{"bytes_object.ob_sval", 66, func(o *Offsets) uint32 { return o.BytesData }},
	{"unicode_object.state", 68, func(o *Offsets) uint32 { return o.UnicodeFlag }},
	{"unicode_object.length", 69, func(o *Offsets) uint32 { return o.UnicodeLen }},
	{"unicode_object.asciiobject_size", 70, func(o *Offsets) uint32 { return o.UnicodeASCI }},
	{"code_object.co_code_adaptive", 43, func(o *Offsets) uint32 { return o.CodeBytes }},
}

// checkDebugOffsets compares the table with what the interpreter itself says.
// Both come from one source text, but not from one build: a build with another
// layout is refused here.
func (d *detector) checkDebugOffsets(rt *Runtime) error {
	raw, err := d.read(rt.RuntimeVaddr, debugWords*8)
	if err != nil {
		return fmt.Errorf("debug offsets of %s: %w", d.path, err)
	}
	if err := compareDebugOffsets(raw, &rt.Offsets); err != nil {
		return &UnsupportedError{rt.Version, err.Error()}
	}
	rt.Source += ", equal to _Py_DebugOffsets"
	return nil
}

// compareDebugOffsets checks cookie, version, build and each offset.
func compareDebugOffsets(raw []byte, o *Offsets) error {
	if len(raw) < debugWords*8 {
		return fmt.Errorf("debug offsets of %d bytes", len(raw))
	}
	if !bytes.HasPrefix(raw, []byte(debugCookie)) {
		return errors.New("its _Py_DebugOffsets do not begin with the cookie")
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
	if v := uint32(word(wordVersion)); v&0xffff0000 != o.Version {
		return fmt.Errorf("its _Py_DebugOffsets are of version %#x", v)
	}
	if word(wordFreeThreaded) != 0 {
		return errors.New("free-threaded builds are not")
	}
	for _, f := range debugFields {
		if got := word(f.word); got != uint64(f.get(o)) {
			return fmt.Errorf("its _Py_DebugOffsets say %d for %s, its headers %d: a build of another layout",
				got, f.name, f.get(o))
		}
	}
	return nil
}
