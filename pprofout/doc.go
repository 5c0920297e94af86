// SPDX-License-Identifier: Apache-2.0

// Package pprofout writes a [join.Profile] as pprof profiles, which `go tool
// pprof` and everything else that reads profile.proto opens.
//
// Each sample has three values: path/nanoseconds, its part of the active path;
// samples/count; and the counted event itself, cpu/nanoseconds for clock events.
// Only path/nanoseconds knows waits. It is the default, and over the window of
// one thread it sums to the wall time exactly.
//
// Labels use the words of the report: segment (the class in words), state,
// cause, wait, process, thread, tid, host, and path with path_tid for the thread
// whose path it is. A profile of several threads holds several paths, each with
// its own wall time: choose one with -tagfocus=path_tid=TID.
//
// Traps of the format:
//   - pprof tries to symbolize locations of mappings that do not claim to have
//     functions, and then looks for binaries on this machine, which need not be
//     the recorded one. All mappings claim them, and each frame has one, [python] for
//     Python frames: for a profile without any pprof makes one up.
//   - pprof takes a function whose name equals its system name for one that is
//     still to be demangled, and <module>, <lambda> and f.<locals>.g for C++ with
//     template parameters, which it cuts out. Python functions have no system name.
//   - Profiles are merged and compared by a mapping's size, offset and build id,
//     so a mapping has the same limits in every profile: those of the file's own
//     address space, not of where it happened to be mapped.
//   - A sample's string label is a list; only the first value is used by most
//     tools. An absent label is left out, never written as an empty string.
package pprofout
