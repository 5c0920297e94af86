// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// debugCookie begins _Py_DebugOffsets, which begins _PyRuntime, from 3.13 on
// (Include/internal/pycore_runtime.h, pycore_debug_offsets.h).
const debugCookie = "xdebugpy"

const (
	wordVersion      = 1
	wordFreeThreaded = 2
)

// debugField ties a member of the structure to a field of Offsets. Its size, if
// one is given, is that of the structure that the offset is in.
type debugField struct {
	name, size string
	get        func(*Offsets) *uint32
}

// debugFields are what of the structure is used. A version that lacks a member
// is not asked for it.
var debugFields = []debugField{
	{"runtime_state.interpreters_head", "runtime_state.size", func(o *Offsets) *uint32 { return &o.RuntimeInterpretersHead }},
	{"interpreter_state.next", "interpreter_state.size", func(o *Offsets) *uint32 { return &o.InterpNext }},
	{"interpreter_state.threads_head", "interpreter_state.size", func(o *Offsets) *uint32 { return &o.InterpThreadsHead }},
	{"interpreter_state.ceval_gil", "interpreter_state.size", func(o *Offsets) *uint32 { return &o.InterpGIL }},
	{"thread_state.next", "thread_state.size", func(o *Offsets) *uint32 { return &o.ThreadNext }},
	{"thread_state.interp", "thread_state.size", func(o *Offsets) *uint32 { return &o.ThreadInterp }},
	{"thread_state.current_frame", "thread_state.size", func(o *Offsets) *uint32 { return &o.ThreadFrame }},
	{"thread_state.thread_id", "thread_state.size", func(o *Offsets) *uint32 { return &o.ThreadID }},
	{"thread_state.native_thread_id", "thread_state.size", func(o *Offsets) *uint32 { return &o.ThreadNativeID }},
	{"interpreter_frame.previous", "interpreter_frame.size", func(o *Offsets) *uint32 { return &o.FrameBack }},
	{"interpreter_frame.executable", "interpreter_frame.size", func(o *Offsets) *uint32 { return &o.FrameCode }},
	{"interpreter_frame.instr_ptr", "interpreter_frame.size", func(o *Offsets) *uint32 { return &o.FrameInstr }},
	{"interpreter_frame.owner", "interpreter_frame.size", func(o *Offsets) *uint32 { return &o.FrameOwner }},
	{"interpreter_frame.tlbc_index", "interpreter_frame.size", func(o *Offsets) *uint32 { return &o.FrameTLBC }},
	{"code_object.filename", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeFilename }},
	{"code_object.name", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeName }},
	{"code_object.qualname", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeQualname }},
	{"code_object.linetable", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeLineTable }},
	{"code_object.firstlineno", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeFirstLine }},
	{"code_object.co_code_adaptive", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeBytes }},
	{"code_object.co_tlbc", "code_object.size", func(o *Offsets) *uint32 { return &o.CodeTLBC }},
	{"pyobject.ob_type", "pyobject.size", func(o *Offsets) *uint32 { return &o.TypeOffset }},
	{"type_object.tp_name", "", func(o *Offsets) *uint32 { return &o.TypeName }},
	{"bytes_object.ob_size", "bytes_object.size", func(o *Offsets) *uint32 { return &o.BytesSize }},
	{"bytes_object.ob_sval", "bytes_object.size", func(o *Offsets) *uint32 { return &o.BytesData }},
	{"unicode_object.state", "unicode_object.size", func(o *Offsets) *uint32 { return &o.UnicodeFlag }},
	{"unicode_object.length", "unicode_object.size", func(o *Offsets) *uint32 { return &o.UnicodeLen }},
	{"unicode_object.asciiobject_size", "", func(o *Offsets) *uint32 { return &o.UnicodeASCI }},
}

// debugOffsets reads members of a _Py_DebugOffsets by a version's layout.
type debugOffsets struct {
	raw    []byte
	layout map[string]int
}

// debugSize is how many bytes of the structure are read: to the last member used.
func debugSize(layout map[string]int) int {
	last := 0
	for _, word := range layout {
		last = max(last, word)
	}
	return 8 * (last + 1)
}

// of returns a member's value; false if the version has none.
func (d debugOffsets) of(name string) (uint64, bool) {
	word, ok := d.layout[name]
	if !ok {
		return 0, false
	}
	return binary.LittleEndian.Uint64(d.raw[8*word:]), true
}

// checkDebugOffsets compares the table with what the interpreter itself says.
// Both come from one source text, but not from one build: a build with another
// layout is refused here.
func (d *detector) checkDebugOffsets(rt *Runtime, minor int) error {
	raw, err := d.read(rt.RuntimeVaddr, debugSize(debugLayouts[minor]))
	if err != nil {
		return fmt.Errorf("debug offsets of %s: %w", d.path, err)
	}
	if err := compareDebugOffsets(raw, minor, &rt.Offsets); err != nil {
		return &UnsupportedError{rt.Version, err.Error()}
	}
	rt.Source += ", equal to _Py_DebugOffsets"
	return nil
}

// openDebugOffsets checks cookie, version and kind of build.
func openDebugOffsets(raw []byte, minor int, layout map[string]int, free bool) (debugOffsets, error) {
	d := debugOffsets{raw, layout}
	if len(raw) < debugSize(layout) {
		return d, fmt.Errorf("debug offsets of %d bytes", len(raw))
	}
	if !bytes.HasPrefix(raw, []byte(debugCookie)) {
		return d, errors.New("its _Py_DebugOffsets do not begin with the cookie")
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(raw[8*i:]) }
	if v := uint32(word(wordVersion)); v>>16 != 0x0300|uint32(minor) {
		return d, fmt.Errorf("its _Py_DebugOffsets are of version %#x", v)
	}
	if (word(wordFreeThreaded) != 0) != free {
		return d, errors.New("its name and its _Py_DebugOffsets disagree whether it is free-threaded")
	}
	return d, nil
}

// compareDebugOffsets checks cookie, version, build and each offset.
func compareDebugOffsets(raw []byte, minor int, o *Offsets) error {
	free := o.InterpGIL == NoField
	d, err := openDebugOffsets(raw, minor, debugLayouts[minor], free)
	if err != nil {
		return err
	}
	for _, f := range debugFields {
		got, ok := d.of(f.name)
		want := *f.get(o)
		if !ok || want == NoField {
			continue // the version or the build has no such thing
		}
		if got != uint64(want) {
			return fmt.Errorf("its _Py_DebugOffsets say %d for %s, its headers %d: a build of another layout", got, f.name, want)
		}
	}
	gc, _ := d.of("interpreter_state.gc")
	collecting, _ := d.of("gc.collecting")
	if got := gc + collecting; got != uint64(o.InterpCollecting) {
		return fmt.Errorf("its _Py_DebugOffsets say %d for gc.collecting, its headers %d: a build of another layout", got, o.InterpCollecting)
	}
	return nil
}
