// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"pathprof/unwind/proc"
)

// maxSource bounds a source file: the largest of real ones, generated tables,
// have a few megabytes.
const maxSource = 16 << 20

// attach fills the hooks of a Process whose memory belongs to a live process.
func (p *Process) attach() {
	m, ok := p.mem.(*proc.Memory)
	if !ok {
		return
	}
	pid := m.PID()
	p.Source = func(name string) ([]byte, error) { return readSource(pid, name) }
	p.Threads = func() ([]int, error) { return proc.Tasks(pid) }
	p.InnerTID = proc.InnerTID
	if dir, err := proc.WorkingDir(pid); err == nil {
		p.Dir = dir
	}
}

// readSource reads a source file as the process sees it. The name is the
// target's word: only a regular file of bounded size is read.
func readSource(pid int, name string) ([]byte, error) {
	if !filepath.IsAbs(name) {
		return nil, fmt.Errorf("source file %q: not absolute", name)
	}
	// O_NONBLOCK: opening a pipe would wait for its writer.
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/root%s", pid, name), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > maxSource {
		return nil, fmt.Errorf("source file %s: %v of %d bytes", name, st.Mode(), st.Size())
	}
	return io.ReadAll(io.LimitReader(f, maxSource))
}
