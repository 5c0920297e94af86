// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Probe looks at what this machine allows the caller to do, and changes nothing.
// The features recording needs come first, in the order in which they
// matter.
func Probe() []Feature {
	caps, err := effectiveCaps()
	return append(probeRecord(caps, err),
		probeHardware(),
		probeSampleRate(),
		probeCPUShare(),
		probeMemory(caps),
		probeKallsyms(),
		probeTracefs(),
		probePython(),
	)
}

// CheckRecord returns nil if recording is possible, else a [*FeatureError] of one
// line about the first thing that is missing.
func CheckRecord() error { return blocking(probeRecord(effectiveCaps())) }

func probeRecord(caps capSet, err error) []Feature {
	return []Feature{
		probeKernel(),
		probePrivileges(caps, err),
		probeNamespace(),
		probeLockdown(),
		probeBTF(),
		probeBPF(),
		probeClock(caps),
		probeRings(caps),
	}
}

func effectiveCaps() (capSet, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	return parseEffective(status)
}

// sysctlText is a sysctl as NAME=VALUE, for details.
func sysctlText(name string) string {
	value, err := readSysctl(name)
	if err != nil {
		return name + " is not there"
	}
	return fmt.Sprintf("%s=%d", name, value)
}

func probeKernel() Feature {
	f := Feature{Name: "kernel " + MinKernel + " or newer", Mode: ModeRecord}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		f.Detail = err.Error()
		return f
	}
	release := unix.ByteSliceToString(name.Release[:])
	ok, err := atLeast(release, MinKernel)
	if err != nil {
		f.Detail = err.Error()
		return f
	}
	f.OK, f.Detail = ok, "this is "+release
	if !ok {
		f.MinKernel, f.Hint = MinKernel, "use a newer kernel"
	}
	return f
}

func probePrivileges(caps capSet, err error) Feature {
	f := Feature{Name: "root, or CAP_BPF and CAP_PERFMON", Mode: ModeRecord}
	const hint = "run with sudo, or give the program cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog+ep with setcap"
	var missing []string
	for _, c := range []struct {
		number uint
		name   string
	}{{capBPF, "CAP_BPF"}, {capPerfmon, "CAP_PERFMON"}} {
		if !caps.has(c.number) {
			missing = append(missing, c.name)
		}
	}
	switch {
	case err != nil:
		f.Detail, f.Hint = err.Error(), hint
	case len(missing) > 0:
		f.Detail = "needs root or CAP_BPF and CAP_PERFMON (missing " + strings.Join(missing, ", ") + ")"
		f.Hint = hint
	default:
		f.OK, f.Detail = true, fmt.Sprintf("user %d, capabilities %#x", os.Geteuid(), uint64(caps))
	}
	return f
}

// probeNamespace: programs see the numbers that processes have in the initial pid
// namespace, whose inode is a constant (PROC_PID_INIT_INO in
// include/linux/proc_ns.h); in another one none of them would be found again.
func probeNamespace() Feature {
	const initial = "pid:[4026531836]"
	f := Feature{Name: "the machine's own process numbers", Mode: ModeRecord}
	name, err := os.Readlink("/proc/self/ns/pid")
	f.OK, f.Detail = err != nil || name == initial, name
	if err != nil {
		f.Detail = err.Error()
	}
	if !f.OK {
		f.Detail = "this is a pid namespace of its own, " + name
		f.Hint = "run outside of the container, or in one with the machine's processes (--pid=host)"
	}
	return f
}

// probeLockdown: the level confidentiality forbids programs to read kernel
// memory (security/lockdown/lockdown.c).
func probeLockdown() Feature {
	f := Feature{Name: "kernel lockdown below confidentiality", Mode: ModeRecord, OK: true}
	text, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		f.Detail = "no lockdown, or securityfs is not mounted"
		return f
	}
	level, ok := parseChoice(string(text))
	if !ok {
		f.Detail = fmt.Sprintf("unknown: %q", text)
		return f
	}
	f.Detail = "lockdown is " + level
	if level == "confidentiality" {
		f.OK, f.Hint = false, "boot with lockdown=integrity"
	}
	return f
}

func probeBTF() Feature {
	const path = "/sys/kernel/btf/vmlinux"
	f := Feature{Name: "kernel BTF", Mode: ModeRecord, Detail: path}
	file, err := os.Open(path)
	if err == nil {
		defer file.Close()
		var magic [2]byte
		if _, err = io.ReadFull(file, magic[:]); err == nil && magic != [2]byte{0x9f, 0xeb} && magic != [2]byte{0xeb, 0x9f} {
			err = fmt.Errorf("read %s: no BTF magic", path)
		}
	}
	if err != nil {
		f.Detail, f.Hint = err.Error(), "use a kernel built with CONFIG_DEBUG_INFO_BTF=y"
		return f
	}
	f.OK = true
	return f
}

// progLoadAttr is the head of union bpf_attr for BPF_PROG_LOAD
// (include/uapi/linux/bpf.h).
type progLoadAttr struct {
	progType  uint32
	insnCount uint32
	insns     uint64
	license   uint64
	_         [5]uint64
}

// probeBPF loads the least program of the kind that takes samples.
func probeBPF() Feature {
	f := Feature{Name: "loading BPF programs", Mode: ModeRecord}
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
	detail := sysctlText("kernel.unprivileged_bpf_disabled") + ", " + sysctlText("net.core.bpf_jit_enable")
	switch {
	case errno == 0:
		unix.Close(int(fd))
		f.OK, f.Detail = true, detail
	case errno == unix.EPERM:
		f.Detail = fmt.Sprintf("load a BPF program: %v (%s)", errno, detail)
		f.Hint = "run with sudo; inside a container or a user namespace, run outside or with --privileged"
	default:
		f.Detail = fmt.Sprintf("load a BPF program: %v", errno)
		f.Hint = "use a kernel built with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_EVENTS=y"
	}
	return f
}

const paranoid = "kernel.perf_event_paranoid"

func probeClock(caps capSet) Feature {
	f := Feature{Name: "perf events of all tasks", Mode: ModeRecord}
	err := tryOpen(CPUClock)
	if err == nil {
		f.OK, f.Detail = true, sysctlText(paranoid)
		return f
	}
	f.Detail = err.Error()
	var missing *FeatureError
	if errors.As(explainOpen(CPUClock, err), &missing) {
		f.Hint = missing.Hint
	}
	if caps.has(capPerfmon) && errors.Is(err, fs.ErrPermission) {
		f.Hint = "a container or a user namespace forbids it: run outside, or with --privileged"
		// Debian's kernels know a level above the others', which only
		// CAP_SYS_ADMIN passes.
		if level, err := readSysctl(paranoid); err == nil && level > 2 {
			f.Hint = fmt.Sprintf("run with sudo, or: sysctl %s=2 (it is %d)", paranoid, level)
		}
	}
	return f
}

func probeHardware() Feature {
	f := Feature{Name: "hardware cycles", Mode: ModeHardware}
	if err := noCycles(); err != nil {
		f.Detail = err.Error()
		f.Hint = "--event auto uses cpu-clock; in a virtual machine, switch the virtual PMU on"
		if errors.Is(err, fs.ErrPermission) {
			f.Hint = "run with sudo"
		}
		return f
	}
	f.OK, f.Detail = true, sysctlText("kernel.nmi_watchdog")
	return f
}

func probeSampleRate() Feature {
	f := Feature{Name: "1000 samples a second", Mode: ModeRate, Detail: sysctlText("kernel.perf_event_max_sample_rate")}
	rate, err := readSysctl("kernel.perf_event_max_sample_rate")
	f.OK = err == nil && rate >= 1000
	if !f.OK {
		f.Hint = "sysctl kernel.perf_event_max_sample_rate=100000"
	}
	return f
}

// probeCPUShare: above this share of time in the interrupt of hardware counters
// the kernel lowers the rate (perf_sample_event_took in kernel/events/core.c).
func probeCPUShare() Feature {
	const name = "kernel.perf_cpu_time_max_percent"
	f := Feature{Name: "time for sampling", Mode: ModeRate, OK: true, Detail: sysctlText(name)}
	if share, err := readSysctl(name); err == nil && share > 0 && share < 10 {
		f.OK, f.Hint = false, "sysctl "+name+"=25"
	}
	return f
}

// probeRings: a user without CAP_IPC_LOCK may map so much for each CPU (perf_mmap
// in kernel/events/core.c). BPF maps do not count since Linux 5.11.
func probeRings(caps capSet) Feature {
	const name = "kernel.perf_event_mlock_kb"
	f := Feature{Name: "memory for perf rings", Mode: ModeRecord, OK: true, Detail: sysctlText(name)}
	need := int64(sideBandRingBytes+counterRingBytes+2*os.Getpagesize())>>10 + 1
	if kb, err := readSysctl(name); err == nil && kb < need && !caps.has(capIPCLock) {
		f.OK, f.Hint = false, fmt.Sprintf("give CAP_IPC_LOCK, or: sysctl %s=%d", name, need)
	}
	return f
}

// probeMemory: reading another process takes what attaching a debugger does
// (PTRACE_MODE_ATTACH_REALCREDS in mm/process_vm_access.c), and Yama adds its
// own rules to that (security/yama/yama_lsm.c).
func probeMemory(caps capSet) Feature {
	f := Feature{Name: "reading processes' memory", Mode: ModePython, OK: true, Detail: "no Yama"}
	scope, err := readSysctl("kernel.yama.ptrace_scope")
	if err == nil {
		f.Detail = fmt.Sprintf("kernel.yama.ptrace_scope=%d", scope)
	}
	self := readSelf()
	switch {
	case self != nil:
		f.OK, f.Detail = false, "process_vm_readv: "+self.Error()
		f.Hint = "a container forbids it: allow process_vm_readv (CAP_SYS_PTRACE)"
	case err == nil && scope >= 3:
		f.OK, f.Hint = false, "nobody may read other processes until the next boot; set a lower kernel.yama.ptrace_scope there"
	case caps.has(capSysPtrace):
		f.Detail += ", CAP_SYS_PTRACE"
	default:
		f.OK, f.Hint = false, "run with sudo, or give CAP_SYS_PTRACE"
	}
	return f
}

// readSelf reads a word of this process the way others are read.
func readSelf() error {
	from, to := uint64(0x5ca1ab1e), uint64(0)
	remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&from)), Len: 8}}
	base := (*byte)(unsafe.Pointer(&to))
	_, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: base, Len: 8}}, remote, 0)
	runtime.KeepAlive(&from)
	if err == nil && to != from {
		return errors.New("wrong data")
	}
	return err
}

// probeKallsyms: without the privilege all addresses read as zero (kallsyms_open
// in kernel/kallsyms.c).
func probeKallsyms() Feature {
	f := Feature{Name: "addresses of kernel functions", Mode: ModeKernel, Detail: sysctlText("kernel.kptr_restrict")}
	file, err := os.Open("/proc/kallsyms")
	if err != nil {
		f.Detail, f.Hint = err.Error(), "use a kernel built with CONFIG_KALLSYMS=y"
		return f
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for range 1000 { // the first ones may be real zeros: per-CPU offsets
		if !lines.Scan() {
			break
		}
		if address, _, _ := strings.Cut(lines.Text(), " "); strings.Trim(address, "0") != "" {
			f.OK = true
			return f
		}
	}
	f.Hint = SymbolsHint()
	return f
}

// SymbolsHint says what makes the kernel show the addresses of its symbols.
func SymbolsHint() string {
	if level, err := readSysctl("kernel.kptr_restrict"); err == nil && level > 1 {
		return "sysctl kernel.kptr_restrict=1" // 2 hides them from root, too
	}
	return "run with sudo, or give CAP_SYSLOG"
}

// tracefsDir returns where tracefs is mounted and can be read.
func tracefsDir() (string, error) {
	const dir, old = "/sys/kernel/tracing", "/sys/kernel/debug/tracing"
	const id = "/events/sched/sched_switch/id"
	_, err := os.ReadFile(dir + id)
	if err == nil {
		return dir, nil
	}
	if _, err2 := os.ReadFile(old + id); err2 == nil {
		return old, nil
	}
	return "", err
}

func probeTracefs() Feature {
	f := Feature{Name: "tracefs", Mode: ModeFallback}
	dir, err := tracefsDir()
	if err != nil {
		f.Detail, f.Hint = err.Error(), "mount -t tracefs nodev /sys/kernel/tracing"
		if errors.Is(err, fs.ErrPermission) {
			f.Hint = "run with sudo"
		}
		return f
	}
	f.OK, f.Detail = true, dir
	return f
}

func probePython() Feature {
	f := Feature{Name: "python3 in PATH", Mode: ModeDemo}
	path, err := exec.LookPath("python3")
	if err != nil {
		f.Detail, f.Hint = err.Error(), "install python3; recording attaches to any CPython 3.6 to 3.15"
		return f
	}
	f.OK, f.Detail = true, path
	return f
}

// IRQNames returns the devices of each interrupt of this machine, see
// [ParseInterrupts].
func IRQNames() (map[int32]string, error) {
	file, err := os.Open("/proc/interrupts")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return ParseInterrupts(file)
}
