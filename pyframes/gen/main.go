// SPDX-License-Identifier: Apache-2.0

//go:build ignore

// Gen writes tables_gen.go: the offsets of CPython's structures, printed by a C
// program that is compiled against the headers of each installed version.
// Interpreters are found under $HOME/.pyenv/versions.
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
	{"RuntimeInterpretersHead", 0, 0, "offsetof(_PyRuntimeState, interpreters.head)"},
	{"InterpNext", 0, 9, "offsetof(struct _is, next)"},
	{"InterpNext", 9, 0, "offsetof(PyInterpreterState, next)"},
	{"InterpThreadsHead", 0, 9, "offsetof(struct _is, tstate_head)"},
	{"InterpThreadsHead", 9, 11, "offsetof(PyInterpreterState, tstate_head)"},
	{"InterpThreadsHead", 11, 0, "offsetof(PyInterpreterState, threads.head)"},
	{"RuntimeGIL", 0, 12, "offsetof(_PyRuntimeState, ceval.gil)"},
	{"RuntimeGIL", 12, 0, noField},
	{"InterpGIL", 0, 12, noField},
	{"InterpGIL", 12, 0, "offsetof(PyInterpreterState, ceval.gil)"},
	{"GILHolder", 0, 0, "offsetof(struct _gil_runtime_state, last_holder)"},
	{"GILLocked", 0, 0, "offsetof(struct _gil_runtime_state, locked)"},
	{"RuntimeCollecting", 0, 9, "offsetof(_PyRuntimeState, gc.collecting)"},
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
	{"FrameOwner", 0, 12, noField},
	{"FrameOwner", 12, 0, "offsetof(_PyInterpreterFrame, owner)"},
	{"FrameEntry", 0, 11, noField},
	{"FrameEntry", 11, 12, "offsetof(_PyInterpreterFrame, is_entry)"},
	{"FrameEntry", 12, 0, noField},
	{"OwnerCStack", 0, 12, noField},
	{"OwnerCStack", 12, 0, "FRAME_OWNED_BY_CSTACK"},
	{"CodeFirstLine", 0, 0, "offsetof(PyCodeObject, co_firstlineno)"},
	{"CodeLineTable", 0, 10, "offsetof(PyCodeObject, co_lnotab)"},
	{"CodeLineTable", 10, 0, "offsetof(PyCodeObject, co_linetable)"},
	{"CodeFilename", 0, 0, "offsetof(PyCodeObject, co_filename)"},
	{"CodeName", 0, 0, "offsetof(PyCodeObject, co_name)"},
	{"CodeQualname", 0, 11, noField},
	{"CodeQualname", 11, 0, "offsetof(PyCodeObject, co_qualname)"},
	{"CodeBytes", 0, 11, "offsetof(PyCodeObject, co_code)"},
	{"CodeBytes", 11, 0, "offsetof(PyCodeObject, co_code_adaptive)"},
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
	{"UnicodeASCI", 0, 0, "sizeof(PyASCIIObject)"},
	{"UnicodeComp", 0, 0, "sizeof(PyCompactUnicodeObject)"},
}

var styles = map[int]string{
	8: "StyleLastiByte", 9: "StyleLastiByte", 10: "StyleLastiUnit",
	11: "StylePrevInstr", 12: "StylePrevInstr", 13: "StyleInstrPtr",
}

const head = `#include <stddef.h>
#include <stdio.h>
#include <Python.h>
#include <frameobject.h>
#include <internal/pycore_pystate.h>
#if PY_VERSION_HEX >= 0x03090000
#include <internal/pycore_runtime.h>
#include <internal/pycore_interp.h>
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include <internal/pycore_frame.h>
#include <internal/pycore_code.h>
#endif
#define NO_FIELD 0xffffffffUL
int main(void)
{
`

func main() {
	log.SetFlags(0)
	home, err := os.UserHomeDir()
	if err != nil {
		log.Fatal(err)
	}
	var out bytes.Buffer
	out.WriteString("// SPDX-License-Identifier: Apache-2.0\n\n// Code generated by gen/main.go; DO NOT EDIT.\n\npackage pyframes\n\n")
	out.WriteString("// tables holds the offsets of each minor version of CPython 3, release builds\n// with the GIL, x86-64 and arm64 alike.\nvar tables = map[int]Offsets{\n")
	for minor := 8; minor <= 13; minor++ {
		dirs, err := filepath.Glob(filepath.Join(home, ".pyenv", "versions", fmt.Sprintf("3.%d.*", minor), "include", fmt.Sprintf("python3.%d", minor)))
		if err != nil || len(dirs) == 0 {
			log.Fatalf("no headers of CPython 3.%d", minor)
		}
		text, err := offsets(dirs[0], minor)
		if err != nil {
			log.Fatalf("CPython 3.%d: %v", minor, err)
		}
		fmt.Fprintf(&out, "%d: {\nVersion: 0x03%02x0000, Style: %s,\n%s},\n", minor, minor, styles[minor], text)
	}
	out.WriteString("}\n")
	code, err := format.Source(out.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile("tables_gen.go", code, 0o644); err != nil {
		log.Fatal(err)
	}
}

// offsets compiles and runs the program for one version.
func offsets(include string, minor int) (string, error) {
	var c bytes.Buffer
	c.WriteString(head)
	for _, f := range fields {
		if f.min > minor || f.max != 0 && f.max <= minor {
			continue
		}
		fmt.Fprintf(&c, "\tprintf(\"%s: %%#lx,\\n\", (unsigned long)(%s));\n", f.name, f.expr)
	}
	c.WriteString("\treturn 0;\n}\n")
	dir, err := os.MkdirTemp("", "gen")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	source, program := filepath.Join(dir, "o.c"), filepath.Join(dir, "o")
	if err := os.WriteFile(source, c.Bytes(), 0o600); err != nil {
		return "", err
	}
	cc := exec.Command("gcc", "-DPy_BUILD_CORE", "-w", "-I"+include, "-I"+filepath.Join(include, "internal"), "-o", program, source)
	if text, err := cc.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, text)
	}
	text, err := exec.Command(program).Output()
	return strings.ReplaceAll(string(text), "0xffffffff,", "NoField,"), err
}
