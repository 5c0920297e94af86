// SPDX-License-Identifier: Apache-2.0

package pyframes

// Style says how a frame tells its position; see Offsets.
type Style uint8

// The styles, by version.
const (
	StyleInvalid   Style = iota
	StyleLastiByte       // 3.6 to 3.9: PyFrameObject.f_lasti in bytes
	StyleLastiUnit       // 3.10: PyFrameObject.f_lasti in 2-byte units
	StylePrevInstr       // 3.11, 3.12: address of the instruction begun last
	StyleInstrPtr        // 3.13 and newer: address of the executing instruction
)

// Offsets are byte offsets of CPython's structures, as far as a walk needs
// them. Tags give CPython's own names. NoField marks a field a version lacks.
type Offsets struct {
	Version uint32 // PY_VERSION_HEX with the low 16 bits cleared, e.g. 0x030b0000
	Style   Style

	RuntimeInterpretersHead uint32 // _PyRuntimeState.interpreters.head

	InterpNext        uint32 // PyInterpreterState.next
	InterpThreadsHead uint32 // PyInterpreterState.threads.head, tstate_head

	// The GIL: one structure in _PyRuntimeState up to 3.11, one that
	// PyInterpreterState points to from 3.12 on. The other offset is NoField; both
	// are in free-threaded builds. In 3.6 the word _PyThreadState_Current says who
	// has it, and RuntimeGIL is its distance from the interpreters' head.
	RuntimeGIL uint32 // _PyRuntimeState.ceval.gil
	InterpGIL  uint32 // PyInterpreterState.ceval.gil
	GILHolder  uint32 // _gil_runtime_state.last_holder
	GILLocked  uint32 // _gil_runtime_state.locked: 1 while a thread has it; NoField in 3.6

	// Whether garbage is being collected, an int: for all interpreters up to
	// 3.8, of each from 3.9 on. The other offset is NoField; both are in 3.6.
	RuntimeCollecting uint32 // _PyRuntimeState.gc.collecting
	InterpCollecting  uint32 // PyInterpreterState.gc.collecting

	ThreadNext     uint32 // PyThreadState.next
	ThreadInterp   uint32 // PyThreadState.interp
	ThreadFrame    uint32 // PyThreadState.frame, .cframe or .current_frame
	CFrameCurrent  uint32 // _PyCFrame.current_frame: one more step; NoField otherwise
	ThreadID       uint32 // PyThreadState.thread_id
	ThreadNativeID uint32 // PyThreadState.native_thread_id, 3.11+

	FrameCode  uint32 // f_code or f_executable
	FrameBack  uint32 // f_back or previous
	FrameInstr uint32 // f_lasti, prev_instr or instr_ptr
	FrameOwner uint32 // _PyInterpreterFrame.owner, 3.12+; NoField before
	FrameEntry uint32 // _PyInterpreterFrame.is_entry, 3.11 only
	// FrameTLBC is _PyInterpreterFrame.tlbc_index, an int32: which copy of the
	// bytecode runs. Free-threaded builds from 3.14 on; NoField otherwise.
	FrameTLBC uint32
	// OwnerShim is the least value of owner that marks a frame of the
	// interpreter's own (3.12, 3.13: owned by the C stack; 3.14 and newer: by the
	// interpreter, the C stack or the thread state). The frame inside of such a
	// one entered from C.
	OwnerShim uint32

	CodeFirstLine uint32 // PyCodeObject.co_firstlineno
	CodeLineTable uint32 // co_lnotab (up to 3.9) or co_linetable
	CodeFilename  uint32 // co_filename
	CodeName      uint32 // co_name
	CodeQualname  uint32 // co_qualname, 3.11+; NoField before
	CodeBytes     uint32 // co_code (object) or co_code_adaptive (in line)
	CodeTLBC      uint32 // co_tlbc, the copies of the bytecode; see FrameTLBC
	CodeFlags     uint32 // co_flags
	// CodeFirstTraceable is _co_firsttraceable, 3.11+: a frame that has not come
	// to this instruction (in code units) is incomplete and CPython hides it.
	CodeFirstTraceable uint32

	TypeOffset  uint32 // PyObject.ob_type
	TypeName    uint32 // PyTypeObject.tp_name
	TypeMembers uint32 // PyTypeObject.tp_members
	BytesSize   uint32 // PyBytesObject.ob_size
	BytesData   uint32 // PyBytesObject.ob_sval
	UnicodeLen  uint32 // PyASCIIObject.length
	UnicodeFlag uint32 // PyASCIIObject.state
	// Lowest bits of the fields of state: bytes a character, compact, ascii.
	UnicodeKindBit, UnicodeCompactBit, UnicodeASCIIBit uint32

	UnicodeASCI uint32 // sizeof(PyASCIIObject): ASCII data
	UnicodeComp uint32 // sizeof(PyCompactUnicodeObject): other compact data
}

// NoField is the offset of a field that a version does not have.
const NoField = ^uint32(0)

// CodeKey identifies a code object within a process: an address may be used
// again after the object is freed, so the key holds what changes with it.
type CodeKey struct {
	Addr      uint64 // of the code object
	FirstLine uint32 // co_firstlineno
	LineTable uint64 // address of the line table object
}

// Frame is one Python frame as a walk finds it.
type Frame struct {
	Code CodeKey
	// Lasti is the byte offset of the executing instruction in the bytecode; -1
	// before the first.
	Lasti int32
	// Entry: the frame entered the interpreter from C.
	Entry bool
}

// Code is what is known of a code object.
type Code struct {
	Key       CodeKey
	Name      string // qualified where the version has it
	Filename  string
	FirstLine int32
	Lines     LineTable
	// Hidden: code of the interpreter's own, which CPython shows in no traceback
	// and which is no function of the program. Leave its frames out; they are
	// never entries.
	Hidden bool
}
