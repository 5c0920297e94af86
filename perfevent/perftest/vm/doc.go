// SPDX-License-Identifier: Apache-2.0

// Package vm is for tests only: it runs the privileged tests of this module and
// a recording of real Python programs in emulated machines, with kernels and
// processors that the machine at hand does not have.
//
//	PATHPROF_VM=short go test -v ./perfevent/perftest/vm    # one machine
//	PATHPROF_VM=full  go test -v -timeout=40m ./perfevent/perftest/vm
//	PATHPROF_VM=full  go test -v -run 'TestMatrix/arm64' ./perfevent/perftest/vm
//	PATHPROF_VM=full  go test -v ./perfevent/perftest/vm -args -steps 'check|profile10'
//	PATHPROF_VM=full  go test -v ./perfevent/perftest/vm -args -kernel Image -options irqchip.gicv3_pseudo_nmi=1
//
// The last runs an arm64 kernel of one's own, for what none of Debian's has: pages
// of 64 K (CONFIG_ARM64_64K_PAGES) and counters whose interrupts are NMIs
// (CONFIG_ARM64_PSEUDO_NMI). It needs BTF, the BPF JIT, perf's counters, cgroups, a
// PL011 console and what CPython needs built in.
//
// Kernels, CPython and busybox are Debian's packages, fetched by apt with a
// state of its own (nothing of the machine's packages changes) into pathprof/vm
// of the user's cache folder, and kept there; delete it to get newer ones. What
// is needed: qemu-system-x86, qemu-system-arm, apt, dpkg-deb.
//
// A machine has one file system, the initramfs: the packages' files, the module's
// tests compiled for its processor, and this package's own test binary as
// /init. That reads /plan.json, runs its steps and reports on the console, one
// JSON value a line behind a mark; what the kernel writes there is kept for the
// message of a failure. Each step has a time limit inside the machine, and a
// console that stays silent ends the machine from outside. Two machines run at a
// time; what they did is printed when the last has ended.
//
// Traps:
//
//   - Emulated time is the host's: a machine on a busy host sees long
//     preemptions that it cannot explain. No step judges by wall time, and
//     profiles are judged less strictly where samples cover too little of it.
//   - A sample takes an emulated processor some 0.1 ms, and far longer on a busy
//     host. Samples that take longer than their period leave a processor no time
//     at all, which looks like a soft lockup.
//   - Emulated counters: qemu-system-aarch64 has a PMU that counts cycles (at a
//     nominal 1 GHz, from the clock) and overflows; it has "instructions" only
//     with -icount. x86 under emulation has none.
//   - The kernel takes interrupts of emulated counters for dear and lowers
//     kernel.perf_event_max_sample_rate step by step
//     (perf_sample_event_took in kernel/events/core.c).
//   - cmpxchg16b of QEMU 7.2 leaves what is no flag in the flags: kernels that use
//     it, for their allocator, take traps where none is, and hang or panic. x86
//     goes without it. Processors that run at the same time hang as well, at
//     random, where tracepoints are switched on and off all the time (code is
//     patched under the feet of the other): x86 runs one at a time.
//   - Images of arm64 may be compressed EFI programs (CONFIG_EFI_ZBOOT), which
//     older QEMUs do not unpack.
package vm
