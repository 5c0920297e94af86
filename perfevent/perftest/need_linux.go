// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

func probeRoot() error {
	if id := os.Geteuid(); id != 0 {
		return fmt.Errorf("effective user id is %d", id)
	}
	return nil
}

// progLoadAttr is the head of union bpf_attr for BPF_PROG_LOAD
// (include/uapi/linux/bpf.h), as far as a program without maps needs it.
type progLoadAttr struct {
	progType    uint32
	insnCount   uint32
	insns       uint64
	license     uint64
	logLevel    uint32
	logSize     uint32
	logBuf      uint64
	kernVersion uint32
	progFlags   uint32
}

// probeBPF loads "return 0" as a perf event program: the type this project
// cannot do without.
func probeBPF() error {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return fmt.Errorf("kernel BTF: %w", err)
	}
	insns := [...]uint64{0xb7, 0x95} // r0 = 0; exit
	license := [...]byte{'G', 'P', 'L', 0}
	attr := progLoadAttr{
		progType:  unix.BPF_PROG_TYPE_PERF_EVENT,
		insnCount: uint32(len(insns)),
		insns:     uint64(uintptr(unsafe.Pointer(&insns[0]))),
		license:   uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD,
		uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&insns)
	runtime.KeepAlive(&license)
	if errno != 0 {
		return fmt.Errorf("load a BPF program: %w", errno)
	}
	return unix.Close(int(fd))
}

func probePerfEvents() error {
	return openCounter(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_CPU_CLOCK)
}

func probeHardware() error {
	return openCounter(unix.PERF_TYPE_HARDWARE, unix.PERF_COUNT_HW_CPU_CYCLES)
}

func openCounter(typ uint32, config uint64) error {
	attr := unix.PerfEventAttr{
		Type:   typ,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Config: config,
		Bits:   unix.PerfBitDisabled,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, 0, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("perf_event_open: %w", err)
	}
	return unix.Close(fd)
}

func probeTracefs() error {
	const id = "/events/sched/sched_switch/id"
	_, err := os.ReadFile("/sys/kernel/tracing" + id)
	if err == nil {
		return nil
	}
	if _, err2 := os.ReadFile("/sys/kernel/debug/tracing" + id); err2 == nil {
		return nil
	}
	return err
}
