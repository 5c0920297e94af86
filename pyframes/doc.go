// SPDX-License-Identifier: Apache-2.0

// Package pyframes finds CPython interpreters in processes, walks their frames
// and reads code objects, from memory alone: nothing runs in the target.
//
// Traps, by version:
//
//   - The "current" thread state variable is NULL while the GIL is released,
//     exactly when waits happen. Thread states are found by id instead: by
//     native_thread_id (3.11 and newer), or by thread_id, which is glibc's and
//     musl's pthread_t, the thread pointer.
//
//   - f_lasti counts bytes up to 3.9 and 2-byte units in 3.10. From 3.11 on a
//     frame holds the address of an instruction: the one begun last (3.11,
//     3.12, one unit before the code when nothing has run) or the executing
//     one (3.13). From 3.14 on threads of a free-threaded build can run copies of
//     the bytecode of their own, and the address is one in a copy.
//
//   - From 3.14 on a frame's code is a reference with tags in its lowest bits.
//
//   - Up to 3.10 every Python frame has a C frame of the evaluation function.
//     From 3.11 on one C frame carries a run of Python frames, which ends with
//     an entry frame: is_entry in 3.11; from 3.12 on the frame inside a shim,
//     which is no frame of the program. The owner that marks one is 3 in 3.12 and
//     3.13 (the C stack), 3 or 4 in 3.14 (the interpreter, the C stack) and in 3.15
//     (the interpreter, the thread state's base frame).
//
//   - A code object can be freed and its address used again: [CodeKey] holds
//     what changes with it, and [Process.ReadCode] compares.
//
//   - A thread that made a sub-interpreter has a thread state in each, of the
//     same number. It runs one; the others are idle and may have no frames. From
//     3.13 on a run makes a state and deletes it. Up to 3.11 the holder of the GIL
//     stays when a thread changes states: it tells the thread, not the state.
//
//   - While greenlet switches, it links frames past the shims, which lie on the C
//     stack that it copies away (3.12 and newer): for as long they have no entries.
//
//   - GCC 16 can take the loop of the evaluation function for code that seldom
//     runs: then nearly all of it is in its cold part, which a stripped file has no
//     name for: see [Cache].
//
//   - From 3.11 on CPython hides a frame before its first traceable instruction,
//     and [Process.Frames] leaves it out. A walk that looks at less, as the
//     kernel's does, keeps it: a function just entered, rightly on its first line,
//     or, from 3.13 on, a frame under a specialised __init__: see [Code.Hidden].
//
//   - co_qualname exists from 3.11 on. Before, the source tells: see [Qualify].
//     What it tells is wrong at worst for a file that changed since it was read
//     by the program, and then only if the same line defines the same name.
//
//   - Line tables have three forms; see [LineTable].
//
//   - Up to 3.10 a thread that runs a sub-interpreter another thread made uses that
//     thread's state: the number in it is the other thread's.
//
//   - 3.6 has no _PyRuntime, but words of its own: the list of interpreters is a
//     local symbol, which the function that returns its head tells when stripped.
//
// Offsets come from two sources that must agree: a table generated from the
// headers of each version and kind of build (gen/main.go), and what the
// interpreter's own file says: _Py_DebugOffsets (3.13 and newer), the member
// tables of its types (older). A version that is newer than the tables is read by
// its _Py_DebugOffsets if frames of a process prove them, and refused otherwise.
package pyframes
