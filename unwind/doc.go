// SPDX-License-Identifier: Apache-2.0

// Package unwind knows native code: the functions of ELF files, of the kernel
// and of run-time compilers, and the tables by which a walk finds the caller
// of a frame without frame pointers.
//
// Everything here is bytes in, values out: files and memory come as
// io.ReaderAt, and every file is hostile. Addresses are of three kinds, and
// mixing them up is the usual mistake:
//
//   - an address in a process;
//   - an address in the file ("vaddr"), as the linker gave it, which is the
//     process' minus the bias of the mapping. For a mapping at address A that
//     shows the file from offset O, bias = A - FileOffsetToVaddr(O);
//   - an offset in the file, which differs from the vaddr in most segments.
//
// A return address points behind the call. The call may be the last
// instruction of a function, so that the return address lies in the next one:
// look up one byte less, except for the interrupted instruction itself, which
// is the innermost frame and the one a signal frame leads to.
//
// # Call frame information
//
// A [Table] holds what .eh_frame says, in rows that a BPF program can search.
// The walk carries the stack pointer, the frame pointer and the instruction
// pointer from frame to frame, no other register: restoring more costs a read
// of user memory per frame. It therefore ends, and says so, in the few places
// where assembly finds its frame by another register: the lazy resolver of the
// dynamic linker (rbx), the last instructions of longjmp, parts of OpenSSL. In
// the innermost frame all registers are known, and such code is walked.
//
// Code without a description ends a walk, too ([StopNoRule]), as frame pointers
// would only be guessed there: the start files of compilers, and most of musl
// where it was built without unwind tables. Only where a whole file has no
// table are frame pointers followed.
//
// What has to be known of descriptions:
//
//   - the return address being undefined marks the outermost frame (_start,
//     clone); entry points without a description count as that;
//   - unless the code is an entry point, a zero return address proves nothing:
//     a wrong rule finds zeros easily;
//   - signal frames (augmentation S) lead to an interrupted instruction, and
//     possibly to another stack;
//   - DW_CFA_restore means the state after the CIE's instructions, which the
//     interpreter behind this package does not keep (delve 1.27: it makes the
//     register undefined), so compile.go does that itself;
//   - where two descriptions overlap, the one that begins first wins.
package unwind
