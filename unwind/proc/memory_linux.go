// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// Memory reads the memory of a process by address. It is safe for concurrent
// use. Nothing is stopped: what is read may change between two reads.
type Memory struct {
	pid int
	mem *os.File // /proc/PID/mem: keeps naming the same address space
	// pidfd is used where mem is nil: it tells whether pid still is the process.
	pidfd int
}

// OpenMemory opens the memory of a process. After an exec it reads the former
// program's, which is gone, or with CAP_SYS_PTRACE alone the new one's: open it
// anew. The error is os.ErrNotExist if there is no such process, os.ErrPermission
// if ptrace access is not granted.
func OpenMemory(pid int) (*Memory, error) {
	mem, err := os.Open(path(pid, "mem"))
	if errors.Is(err, os.ErrPermission) {
		// The file is its owner's, whatever CAP_SYS_PTRACE allows.
		if m, err := openByNumber(pid); err == nil {
			return m, nil
		}
	}
	if err != nil {
		return nil, gone(err)
	}
	return &Memory{pid: pid, mem: mem}, nil
}

// openByNumber opens memory for process_vm_readv, if that is allowed.
func openByNumber(pid int) (*Memory, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	m := &Memory{pid: pid, pidfd: fd}
	// The right is checked before the address (mm/process_vm_access.c).
	if _, err := m.readByNumber(make([]byte, 1), 0); !errors.Is(err, unix.EFAULT) {
		unix.Close(fd)
		return nil, fmt.Errorf("process_vm_readv: %w", err)
	}
	return m, nil
}

// ReadAt reads len(p) bytes at an address of the process, or says what was
// missing. An address is not backed: the error is unix.EFAULT or unix.EIO.
func (m *Memory) ReadAt(p []byte, addr int64) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if addr < 0 || addr > math.MaxInt64-int64(len(p)) {
		return 0, fmt.Errorf("read %d bytes at %#x: %w", len(p), uint64(addr), unix.EFAULT)
	}
	var n int
	var err error
	if m.mem != nil {
		n, err = m.mem.ReadAt(p, addr)
	} else {
		n, err = m.readByNumber(p, addr)
	}
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = os.ErrNotExist // the address space is gone
	}
	return n, fmt.Errorf("read %d bytes at %#x: %w", len(p), addr, err)
}

// readByNumber reads as much as it can.
func (m *Memory) readByNumber(p []byte, addr int64) (n int, err error) {
	for n < len(p) {
		local := []unix.Iovec{{Base: &p[n]}}
		local[0].SetLen(len(p) - n)
		remote := []unix.RemoteIovec{{Base: uintptr(addr) + uintptr(n), Len: len(p) - n}}
		got, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
		if err == nil && got == 0 {
			err = unix.EFAULT
		}
		// The number may be another process' by now.
		if errors.Is(err, unix.ESRCH) || errors.Is(unix.PidfdSendSignal(m.pidfd, 0, nil, 0), unix.ESRCH) {
			return n, os.ErrNotExist
		}
		if err != nil {
			return n, err
		}
		n += got
	}
	return n, nil
}

// PID is the process that was opened.
func (m *Memory) PID() int { return m.pid }

// Close releases the memory.
func (m *Memory) Close() error {
	if m.mem == nil {
		return unix.Close(m.pidfd)
	}
	return m.mem.Close()
}
