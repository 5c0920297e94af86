// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// OpenMapped opens the file behind a mapping: by its path in the process' own
// root if that still is the mapped file, else through map_files, which also
// reaches deleted files. That needs CAP_CHECKPOINT_RESTORE or root.
func OpenMapped(pid int, m Mapping) (*os.File, error) {
	if !strings.HasPrefix(m.Path, "/") {
		return nil, fmt.Errorf("mapping %q: no file", m.Path)
	}
	if !m.Deleted {
		f, err := os.Open(path(pid, "root") + m.Path)
		if err == nil && isMapped(f, m) {
			return f, nil
		}
		if err == nil {
			f.Close()
		}
	}
	f, err := os.Open(path(pid, fmt.Sprintf("map_files/%x-%x", m.Start, m.End)))
	if err != nil {
		return nil, fmt.Errorf("mapped file %s: %w", m.Path, gone(err))
	}
	return f, nil
}

// isMapped compares device and inode. On overlay and btrfs file systems maps
// shows another device than stat does: the inode alone must do where the
// devices differ, and a mapping without any cannot be checked.
func isMapped(f *os.File, m Mapping) bool {
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && (m.Inode == 0 || sys.Ino == m.Inode)
}

// gone makes the errors of a vanished process os.ErrNotExist.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return err
}
