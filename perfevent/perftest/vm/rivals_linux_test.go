// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"pathprof/perfevent"
)

// openRivals opens so many counters of cycles on each CPU: more than the
// hardware has, together with the recorder's, so that the kernel has them take
// turns (perf_rotate_context in kernel/events/core.c).
func openRivals(n int) (fds []int, err error) {
	// Turns of the usual 4 ms are dear where each register is emulated.
	intervals, err := filepath.Glob("/sys/bus/event_source/devices/*/perf_event_mux_interval_ms")
	if err != nil {
		return nil, err
	}
	for _, name := range intervals {
		_ = os.WriteFile(name, []byte("40"), 0) // not every device lets itself be told
	}
	cpus, err := perfevent.OnlineCPUs()
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_HARDWARE, Config: unix.PERF_COUNT_HW_CPU_CYCLES}
	attr.Size = uint32(unsafe.Sizeof(attr))
	for _, cpu := range cpus {
		for range n {
			fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if err != nil {
				return fds, fmt.Errorf("open a rival on CPU %d: %w", cpu, err)
			}
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
