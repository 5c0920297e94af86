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
package unwind
