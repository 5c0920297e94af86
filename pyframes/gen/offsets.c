/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the offsets of pyframes.Offsets, one "Field value" a line, from the
 * headers of the CPython it is compiled against (3.8 to 3.13):
 *
 *     cc -DPy_BUILD_CORE -I$INC -I$INC/internal gen/offsets.c -o offsets
 *
 * Nothing of Python is linked. From 3.13 on it also prints where _Py_DebugOffsets
 * holds each of its fields, as "debug.FIELD offset".
 */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "Python.h"
#include "frameobject.h"
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#else
#include "internal/pycore_pystate.h"
#endif
#if PY_VERSION_HEX >= 0x030b0000
#include "internal/pycore_frame.h"
#endif

#if PY_VERSION_HEX < 0x03080000 || PY_VERSION_HEX >= 0x030e0000
#error "layout not known to this program"
#endif
#if defined(Py_DEBUG) || defined(Py_TRACE_REFS) || defined(Py_GIL_DISABLED)
#error "headers of a debug or free-threaded build"
#endif

#define NONE(name) printf(#name " none\n")
#define AT(name, type, field) printf(#name " %zu\n", offsetof(type, field))
#define NUMBER(name, value) printf(#name " %lu\n", (unsigned long)(value))

/* PyFrameObject to 3.10, _PyInterpreterFrame after it. */
static void frame(void)
{
#if PY_VERSION_HEX < 0x030b0000
	NUMBER(Style, PY_VERSION_HEX < 0x030a0000 ? 1 : 2);
	AT(FrameCode, PyFrameObject, f_code);
	AT(FrameBack, PyFrameObject, f_back);
	AT(FrameInstr, PyFrameObject, f_lasti);
	NONE(FrameOwner);
	NONE(FrameEntry);
	NUMBER(OwnerCStack, 0);
#else
	AT(FrameBack, _PyInterpreterFrame, previous);
#if PY_VERSION_HEX >= 0x030d0000
	NUMBER(Style, 4);
	AT(FrameCode, _PyInterpreterFrame, f_executable);
	AT(FrameInstr, _PyInterpreterFrame, instr_ptr);
#else
	NUMBER(Style, 3);
	AT(FrameCode, _PyInterpreterFrame, f_code);
	AT(FrameInstr, _PyInterpreterFrame, prev_instr);
#endif
#if PY_VERSION_HEX >= 0x030c0000
	AT(FrameOwner, _PyInterpreterFrame, owner);
	NONE(FrameEntry);
	NUMBER(OwnerCStack, FRAME_OWNED_BY_CSTACK);
#else
	NONE(FrameOwner);
	AT(FrameEntry, _PyInterpreterFrame, is_entry);
	NUMBER(OwnerCStack, 0);
#endif
#endif
}

static void states(void)
{
	AT(RuntimeInterpretersHead, _PyRuntimeState, interpreters.head);
	AT(InterpNext, PyInterpreterState, next);
#if PY_VERSION_HEX >= 0x030b0000
	AT(InterpThreadsHead, PyInterpreterState, threads.head);
#else
	AT(InterpThreadsHead, PyInterpreterState, tstate_head);
#endif
	AT(ThreadNext, PyThreadState, next);
	AT(ThreadInterp, PyThreadState, interp);
	AT(ThreadID, PyThreadState, thread_id);
#if PY_VERSION_HEX >= 0x030d0000
	AT(ThreadFrame, PyThreadState, current_frame);
	NONE(CFrameCurrent);
#elif PY_VERSION_HEX >= 0x030b0000
	AT(ThreadFrame, PyThreadState, cframe);
	AT(CFrameCurrent, _PyCFrame, current_frame);
#else
	AT(ThreadFrame, PyThreadState, frame);
	NONE(CFrameCurrent);
#endif
#if PY_VERSION_HEX >= 0x030b0000
	AT(ThreadNativeID, PyThreadState, native_thread_id);
#else
	NONE(ThreadNativeID);
#endif
}

static void code(void)
{
	AT(CodeFirstLine, PyCodeObject, co_firstlineno);
	AT(CodeFilename, PyCodeObject, co_filename);
	AT(CodeName, PyCodeObject, co_name);
	AT(CodeFlags, PyCodeObject, co_flags);
#if PY_VERSION_HEX >= 0x030a0000
	AT(CodeLineTable, PyCodeObject, co_linetable);
#else
	AT(CodeLineTable, PyCodeObject, co_lnotab);
#endif
#if PY_VERSION_HEX >= 0x030b0000
	AT(CodeQualname, PyCodeObject, co_qualname);
	AT(CodeBytes, PyCodeObject, co_code_adaptive);
	AT(CodeFirstTraceable, PyCodeObject, _co_firsttraceable);
#else
	NONE(CodeQualname);
	AT(CodeBytes, PyCodeObject, co_code);
	NONE(CodeFirstTraceable);
#endif
}

static void objects(void)
{
	AT(TypeOffset, PyObject, ob_type);
	AT(TypeName, PyTypeObject, tp_name);
	AT(TypeMembers, PyTypeObject, tp_members);
	AT(BytesSize, PyBytesObject, ob_base.ob_size);
	AT(BytesData, PyBytesObject, ob_sval);
	AT(UnicodeLen, PyASCIIObject, length);
	AT(UnicodeFlag, PyASCIIObject, state);
	NUMBER(UnicodeASCI, sizeof(PyASCIIObject));
	NUMBER(UnicodeComp, sizeof(PyCompactUnicodeObject));
}

/* The bits of PyASCIIObject.state, which the package has as constants. */
static void bits(void)
{
	PyASCIIObject s;
	unsigned word;

#define BITS(name, field, value)                       \
	memset(&s, 0, sizeof(s));                      \
	s.state.field = (value);                       \
	memcpy(&word, &s.state, sizeof(word));         \
	printf("bits." name " %u\n", word);
	BITS("unicodeKind", kind, 7)
	BITS("unicodeCompact", compact, 1)
	BITS("unicodeASCII", ascii, 1)
}

static void debug(void)
{
#if PY_VERSION_HEX >= 0x030d0000
#define DEBUG(field) printf("debug." #field " %zu\n", offsetof(_Py_DebugOffsets, field))
#define SIZE(field, type) DEBUG(field); printf("size." #field " %zu\n", sizeof(type))
	DEBUG(cookie);
	DEBUG(version);
	DEBUG(free_threaded);
	SIZE(runtime_state.size, _PyRuntimeState);
	DEBUG(runtime_state.interpreters_head);
	SIZE(interpreter_state.size, PyInterpreterState);
	DEBUG(interpreter_state.next);
	DEBUG(interpreter_state.threads_head);
	SIZE(thread_state.size, PyThreadState);
	DEBUG(thread_state.next);
	DEBUG(thread_state.interp);
	DEBUG(thread_state.current_frame);
	DEBUG(thread_state.thread_id);
	DEBUG(thread_state.native_thread_id);
	SIZE(interpreter_frame.size, _PyInterpreterFrame);
	DEBUG(interpreter_frame.previous);
	DEBUG(interpreter_frame.executable);
	DEBUG(interpreter_frame.instr_ptr);
	DEBUG(interpreter_frame.owner);
	SIZE(code_object.size, PyCodeObject);
	DEBUG(code_object.filename);
	DEBUG(code_object.name);
	DEBUG(code_object.qualname);
	DEBUG(code_object.linetable);
	DEBUG(code_object.firstlineno);
	DEBUG(code_object.co_code_adaptive);
	SIZE(pyobject.size, PyObject);
	DEBUG(pyobject.ob_type);
	SIZE(type_object.size, PyTypeObject);
	DEBUG(type_object.tp_name);
	SIZE(bytes_object.size, PyBytesObject);
	DEBUG(bytes_object.ob_size);
	DEBUG(bytes_object.ob_sval);
	SIZE(unicode_object.size, PyUnicodeObject);
	DEBUG(unicode_object.state);
	DEBUG(unicode_object.length);
	DEBUG(unicode_object.asciiobject_size);
	printf("debug.end %zu\n", sizeof(_Py_DebugOffsets));
#endif
}

int main(void)
{
	printf("Version %lu\n", (unsigned long)(PY_VERSION_HEX & 0xffff0000));
	frame();
	states();
	code();
	objects();
	bits();
	debug();
	return 0;
}
