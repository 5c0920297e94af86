// SPDX-License-Identifier: Apache-2.0

package bpf

// The objects are checked in, so users need only Go. Regenerating needs clang
// and libbpf's headers (Debian: clang, libbpf-dev); the BPF objects of other
// clang versions differ in bytes, not in meaning.
//go:generate go tool bpf2go -cc clang -target amd64,arm64 -type event -type file_event -type stack_head -type py_frame -type py_process -type py_thread -type unwind_row -type unwind_rule -type code_map -type code_map_list -type loss -type cost -type ring -type ring_chunk -type stop -type status -type context -type event_kind -type event_flags -type process_flags pathprof c/pathprof.bpf.c -- -O2 -g -mcpu=v3 -Ic -Wall -Werror
