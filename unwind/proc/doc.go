// SPDX-License-Identifier: Apache-2.0

// Package proc is a process as data: its mappings, memory, threads and names,
// as /proc and process_vm_readv tell them. Nothing here stops a process or
// writes to it.
//
// Traps:
//
//   - A process can end between any two reads: errors then are os.ErrNotExist
//     (no /proc entry) or a process without mappings.
//   - A mapped file may be deleted, replaced, or lie in another mount namespace:
//     its path then names nothing, or another file. [OpenMapped] compares
//     device and inode, and falls back to /proc/PID/map_files.
//   - The name of a thread may hold spaces and parentheses: only the last
//     parenthesis of /proc/PID/stat ends it.
//   - Start times of /proc count clock ticks of CLOCK_BOOTTIME, which goes on
//     while the machine sleeps; the rest of pathprof uses CLOCK_MONOTONIC.
package proc
