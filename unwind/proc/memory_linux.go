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
}

// OpenMemory opens the memory of a process. After an exec it reads the former
// program's, which is gone: open it anew. The error is os.ErrNotExist if there
// is no such process, os.ErrPermission if ptrace access is not granted.
func OpenMemory(pid int) (*Memory, error) {
	mem, err := os.Open(path(pid, "mem"))
	if err != nil {
		return nil, gone(err)
	}
	return &Memory{pid: pid, mem: mem}, nil
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
	n, err := m.mem.ReadAt(p, addr)
	if n == len(p) {
		return n, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = os.ErrNotExist // the address space is gone
	}
	return n, fmt.Errorf("read %d bytes at %#x: %w", len(p), addr, err)
}

// PID is the process that was opened.
func (m *Memory) PID() int { return m.pid }

// Close releases the memory.
func (m *Memory) Close() error { return m.mem.Close() }
