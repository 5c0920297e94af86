// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// Gen writes tables_gen.go: the offsets of CPython's structures, printed by a C
// program that is compiled against the headers of each installed version, once
// for each kind of build: they differ in macros only. Headers are looked for under
// $HOME/.pyenv/versions and $HOME/.cache/pathprof/python, where .ci/pythons puts
// those of the newest versions.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// field is one line of the C program: the Go field, and the C expression for
// the versions from min (inclusive) to max (exclusive); 0 is no bound.
type field struct {
	name     string
	min, max int
	expr     string
}

const noField = "NO_FIELD"

var fields = []field{
	{"RuntimeInterpretersHead", 0, 7, "0"}, // its own symbol
	{"RuntimeInterpretersHead", 7, 0, "offsetof(_PyRuntimeState, interpreters.head)"},
	{"InterpNext", 0, 9, "offsetof(struct _is, next)"},
	{"InterpNext", 9, 0, "offsetof(PyInterpreterState, next)"},
	{"InterpThreadsHead", 0, 9, "offsetof(struct _is, tstate_head)"},
	{"InterpThreadsHead", 9, 11, "offsetof(PyInterpreterState, tstate_head)"},
	{"InterpThreadsHead", 11, 0, "offsetof(PyInterpreterState, threads.head)"},
	{"RuntimeGIL", 0, 7, noField}, // its own symbol
	{"RuntimeGIL", 7, 12, "offsetof(_PyRuntimeState, ceval.gil)"},
	{"RuntimeGIL", 12, 0, noField},
	{"InterpGIL", 0, 12, noField},
	{"InterpGIL", 12, 0, "WITH_GIL(offsetof(PyInterpreterState, ceval.gil))"},
	{"GILHolder", 0, 7, "0"},
	{"GILHolder", 7, 0, "offsetof(struct _gil_runtime_state, last_holder)"},
	{"GILLocked", 0, 7, noField},
	{"GILLocked", 7, 0, "offsetof(struct _gil_runtime_state, locked)"},
	{"RuntimeCollecting", 0, 7, noField},
	{"RuntimeCollecting", 7, 9, "offsetof(_PyRuntimeState, gc.collecting)"},
	{"RuntimeCollecting", 9, 0, noField},
	{"InterpCollecting", 0, 9, noField},
	{"InterpCollecting", 9, 0, "offsetof(PyInterpreterState, gc.collecting)"},
	{"ThreadNext", 0, 0, "offsetof(PyThreadState, next)"},
	{"ThreadInterp", 0, 0, "offsetof(PyThreadState, interp)"},
	{"ThreadFrame", 0, 11, "offsetof(PyThreadState, frame)"},
	{"ThreadFrame", 11, 13, "offsetof(PyThreadState, cframe)"},
	{"ThreadFrame", 13, 0, "offsetof(PyThreadState, current_frame)"},
	{"CFrameCurrent", 0, 11, noField},
	{"CFrameCurrent", 11, 13, "offsetof(_PyCFrame, current_frame)"},
	{"CFrameCurrent", 13, 0, noField},
	{"ThreadID", 0, 0, "offsetof(PyThreadState, thread_id)"},
	{"ThreadNativeID", 0, 11, noField},
	{"ThreadNativeID", 11, 0, "offsetof(PyThreadState, native_thread_id)"},
	{"FrameCode", 0, 11, "offsetof(PyFrameObject, f_code)"},
	{"FrameCode", 11, 13, "offsetof(_PyInterpreterFrame, f_code)"},
	{"FrameCode", 13, 0, "offsetof(_PyInterpreterFrame, f_executable)"},
	{"FrameBack", 0, 11, "offsetof(PyFrameObject, f_back)"},
	{"FrameBack", 11, 0, "offsetof(_PyInterpreterFrame, previous)"},
	{"FrameInstr", 0, 11, "offsetof(PyFrameObject, f_lasti)"},
	{"FrameInstr", 11, 13, "offsetof(_PyInterpreterFrame, prev_instr)"},
	{"FrameInstr", 13, 0, "offsetof(_PyInterpreterFrame, instr_ptr)"},
	{"FrameTLBC", 0, 14, noField},
	{"FrameTLBC", 14, 0, "WITHOUT_GIL(offsetof(_PyInterpreterFrame, tlbc_index))"},
	{"FrameOwner", 0, 12, noField},
	{"FrameOwner", 12, 0, "offsetof(_PyInterpreterFrame, owner)"},
	{"FrameEntry", 0, 11, noField},
	{"FrameEntry", 11, 12, "offsetof(_PyInterpreterFrame, is_entry)"},
	{"FrameEntry", 12, 0, noField},
	{"OwnerShim", 0, 12, noField},
	{"OwnerShim", 12, 14, "FRAME_OWNED_BY_CSTACK"},
	{"OwnerShim", 14, 0, "FRAME_OWNED_BY_INTERPRETER"},
	{"CodeFirstLine", 0, 0, "offsetof(PyCodeObject, co_firstlineno)"},
	{"CodeLineTable", 0, 10, "offsetof(PyCodeObject, co_lnotab)"},
	{"CodeLineTable", 10, 0, "offsetof(PyCodeObject, co_linetable)"},
	{"CodeFilename", 0, 0, "offsetof(PyCodeObject, co_filename)"},
	{"CodeName", 0, 0, "offsetof(PyCodeObject, co_name)"},
	{"CodeQualname", 0, 11, noField},
	{"CodeQualname", 11, 0, "offsetof(PyCodeObject, co_qualname)"},
	{"CodeBytes", 0, 11, "offsetof(PyCodeObject, co_code)"},
	{"CodeBytes", 11, 0, "offsetof(PyCodeObject, co_code_adaptive)"},
	{"CodeTLBC", 0, 14, noField},
	{"CodeTLBC", 14, 0, "WITHOUT_GIL(offsetof(PyCodeObject, co_tlbc))"},
	{"CodeFlags", 0, 0, "offsetof(PyCodeObject, co_flags)"},
	{"CodeFirstTraceable", 0, 11, noField},
	{"CodeFirstTraceable", 11, 0, "offsetof(PyCodeObject, _co_firsttraceable)"},
	{"TypeOffset", 0, 0, "offsetof(PyObject, ob_type)"},
	{"TypeName", 0, 0, "offsetof(PyTypeObject, tp_name)"},
	{"TypeMembers", 0, 0, "offsetof(PyTypeObject, tp_members)"},
	{"BytesSize", 0, 0, "offsetof(PyBytesObject, ob_base.ob_size)"},
	{"BytesData", 0, 0, "offsetof(PyBytesObject, ob_sval)"},
	{"UnicodeLen", 0, 0, "offsetof(PyASCIIObject, length)"},
	{"UnicodeFlag", 0, 0, "offsetof(PyASCIIObject, state)"},
	{"UnicodeKindBit", 0, 0, "STATE_BIT(kind)"},
	{"UnicodeCompactBit", 0, 0, "STATE_BIT(compact)"},
	{"UnicodeASCIIBit", 0, 0, "STATE_BIT(ascii)"},
	{"UnicodeASCI", 0, 0, "sizeof(PyASCIIObject)"},
	{"UnicodeComp", 0, 0, "sizeof(PyCompactUnicodeObject)"},
}

// debugMembers are the members of _Py_DebugOffsets that are used, and the first
// version that has them.
var debugMembers = []struct {
	name string
	min  int
}{
	{"free_threaded", 13}, {"runtime_state.size", 13}, {"runtime_state.interpreters_head", 13},
	{"interpreter_state.size", 13}, {"interpreter_state.next", 13}, {"interpreter_state.threads_head", 13},
	{"interpreter_state.gc", 13}, {"interpreter_state.ceval_gil", 13},
	{"interpreter_state.gil_runtime_state_locked", 13}, {"interpreter_state.gil_runtime_state_holder", 13},
	{"thread_state.size", 13}, {"thread_state.next", 13}, {"thread_state.interp", 13}, {"thread_state.current_frame", 13},
	{"thread_state.thread_id", 13}, {"thread_state.native_thread_id", 13},
	{"interpreter_frame.size", 13}, {"interpreter_frame.previous", 13}, {"interpreter_frame.executable", 13},
	{"interpreter_frame.instr_ptr", 13}, {"interpreter_frame.owner", 13}, {"interpreter_frame.tlbc_index", 14},
	{"code_object.size", 13}, {"code_object.filename", 13}, {"code_object.name", 13}, {"code_object.qualname", 13},
	{"code_object.linetable", 13}, {"code_object.firstlineno", 13}, {"code_object.co_code_adaptive", 13},
	{"code_object.co_tlbc", 14}, {"pyobject.size", 13}, {"pyobject.ob_type", 13}, {"type_object.tp_name", 13},
	{"bytes_object.size", 13}, {"bytes_object.ob_size", 13}, {"bytes_object.ob_sval", 13},
	{"unicode_object.size", 13}, {"unicode_object.state", 13}, {"unicode_object.length", 13},
	{"unicode_object.asciiobject_size", 13}, {"gc.size", 13}, {"gc.collecting", 13},
}

var styles = map[int]string{
	6: "StyleLastiByte", 7: "StyleLastiByte",
	8: "StyleLastiByte", 9: "StyleLastiByte", 10: "StyleLastiUnit",
	11: "StylePrevInstr", 12: "StylePrevInstr", 13: "StyleInstrPtr", 14: "StyleInstrPtr", 15: "StyleInstrPtr",
}

// builds are the kinds of builds: the flags of their names, the first version
// that has them, and the macros that make them.
var builds = []struct {
	flags  string
	min    int
	macros []string
}{
	{"", 6, nil},
	{"d", 6, []string{"-DPy_DEBUG"}},
	{"t", 13, []string{"-DPy_GIL_DISABLED=1"}},
	{"td", 13, []string{"-DPy_GIL_DISABLED=1", "-DPy_DEBUG"}},
}

const head = `#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <Python.h>
#include <frameobject.h>
#if PY_VERSION_HEX >= 0x03080000
#include <internal/pycore_pystate.h>
#elif PY_VERSION_HEX >= 0x03070000
#include <internal/pystate.h>
#endif
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#include <internal/pycore_code.h>
#endif
#if PY_VERSION_HEX >= 0x030e0000
#include <internal/pycore_interpframe_structs.h>
#endif
#define NO_FIELD 0xffffffffUL
#ifdef Py_GIL_DISABLED
#define WITH_GIL(x) NO_FIELD
#define WITHOUT_GIL(x) (x)
#else
#define WITH_GIL(x) (x)
#define WITHOUT_GIL(x) NO_FIELD
#endif
/* The lowest bit of a bit field of PyASCIIObject.state. */
#define STATE_BIT(field) ({ \
	PyASCIIObject a; unsigned s; \
	memset(&a, 0, sizeof(a)); a.state.field = 1; memcpy(&s, &a.state, sizeof(s)); __builtin_ctz(s); })
int main(void)
{
`

func main() {
	log.SetFlags(0)
	var out bytes.Buffer
	out.WriteString("// SPDX-License-Identifier: Apache-2.0\n\n// Code generated by gen/main.go; DO NOT EDIT.\n\npackage pyframes\n\n")
	out.WriteString("// tables holds the offsets of each kind of build of CPython, x86-64 and arm64\n// alike: minor version and flags, d for debug, t for free-threaded.\nvar tables = map[string]Offsets{\n")
	var layouts bytes.Buffer
	for minor := 6; minor <= 15; minor++ {
		include, err := headers(minor)
		if err != nil {
			log.Fatal(err)
		}
		for _, b := range builds {
			if minor < b.min {
				continue
			}
			text, err := run(include, b.macros, offsetsProgram(minor))
			if err != nil {
				log.Fatalf("CPython 3.%d%s: %v", minor, b.flags, err)
			}
			fmt.Fprintf(&out, "\"3.%d%s\": {\nVersion: 0x03%02x0000, Style: %s,\n%s},\n", minor, b.flags, minor, styles[minor], text)
		}
		if minor >= 13 {
			text, err := run(include, nil, debugProgram(minor))
			if err != nil {
				log.Fatalf("debug offsets of CPython 3.%d: %v", minor, err)
			}
			fmt.Fprintf(&layouts, "%d: {\n%s},\n", minor, text)
		}
	}
	fmt.Fprintf(&out, "}\n\n// debugLayouts says at which 8-byte word of _Py_DebugOffsets each member is, by\n// minor version.\nvar debugLayouts = map[int]map[string]int{\n%s}\n", layouts.String())
	code, err := format.Source(out.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("tables_gen.go", code, 0o644); err != nil {
		log.Fatal(err)
	}
}

// headers finds the include folders of a version.
func headers(minor int) ([]string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	for _, pattern := range []string{".pyenv/versions/3.%d.*/include", ".cache/pathprof/python/3.%d/usr/include"} {
		found, err := filepath.Glob(filepath.Join(home, fmt.Sprintf(pattern, minor), fmt.Sprintf("python3.%d*", minor)))
		if err == nil && len(found) > 0 {
			return []string{found[0], filepath.Join(found[0], "internal"), filepath.Dir(found[0])}, nil
		}
	}
	return nil, fmt.Errorf("no headers of CPython 3.%d", minor)
}

func offsetsProgram(minor int) string {
	var c strings.Builder
	n := 0
	for _, f := range fields {
		if f.min > minor || f.max != 0 && f.max <= minor {
			continue
		}
		n++
		end := " "
		if n%4 == 0 {
			end = "\\n"
		}
		fmt.Fprintf(&c, "\tprintf(\"%s: %%#lx,%s\", (unsigned long)(%s));\n", f.name, end, f.expr)
	}
	return c.String() + "\tputs(\"\");\n"
}

func debugProgram(minor int) string {
	var c strings.Builder
	for _, m := range debugMembers {
		if m.min <= minor {
			fmt.Fprintf(&c, "\tprintf(\"\\\"%s\\\": %%lu,\\n\", (unsigned long)offsetof(_Py_DebugOffsets, %s) / 8);\n", m.name, m.name)
		}
	}
	return c.String()
}

// run compiles and runs a program against the headers of one version.
func run(include, macros []string, program string) (string, error) {
	dir, err := os.MkdirTemp("", "gen")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	source, binary := filepath.Join(dir, "o.c"), filepath.Join(dir, "o")
	if err := os.WriteFile(source, []byte(head+program+"\treturn 0;\n}\n"), 0o600); err != nil {
		return "", err
	}
	args := append([]string{"-DPy_BUILD_CORE", "-w", "-o", binary, source}, macros...)
	for _, dir := range include {
		args = append(args, "-I"+dir)
	}
	if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	text, err := exec.Command(binary).Output()
	return strings.ReplaceAll(string(text), "0xffffffff,", "NoField,"), err
}
