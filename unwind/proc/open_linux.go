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

// Maps reads the mappings of a process, sorted by address. A kernel thread or a
// zombie has none.
func Maps(pid int) ([]Mapping, error) {
	f, err := os.Open(path(pid, "maps"))
	if err != nil {
		return nil, gone(err)
	}
	defer f.Close()
	maps, err := ParseMaps(f)
	if err != nil {
		return nil, fmt.Errorf("mappings of process %d: %w", pid, gone(err))
	}
	return maps, nil
}

// OpenMapped opens the file behind a mapping: by its path in the process' own
// root if that still is the mapped file, else through map_files, which also
// reaches deleted files. That needs CAP_CHECKPOINT_RESTORE or root.
func OpenMapped(pid int, m Mapping) (*os.File, error) {
	if !strings.HasPrefix(m.Path, "/") {
		return nil, fmt.Errorf("mapping %q: no file", m.Path)
	}
	var named *os.File
	sure := false
	if !m.Deleted {
		named, sure = openNamed(path(pid, "root")+m.Path, m)
	}
	if sure {
		return named, nil
	}
	f, err := os.Open(path(pid, fmt.Sprintf("map_files/%x-%x", m.Start, m.End)))
	switch {
	case named == nil && err != nil:
		return nil, fmt.Errorf("mapped file %s: %w", m.Path, gone(err))
	case err != nil:
		return named, nil
	case named != nil:
		named.Close()
	}
	return f, nil
}

// openNamed opens a path if it has the mapping's inode. On overlay and btrfs
// file systems maps shows another device than stat does: where devices differ,
// it is likely the mapped file, but not surely.
func openNamed(name string, m Mapping) (f *os.File, sure bool) {
	// A path may have become a pipe, whose opening would block.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, false
	}
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() {
		sys, ok := st.Sys().(*syscall.Stat_t)
		if ok && sys.Ino == m.Inode {
			return f, uint64(unix.Major(sys.Dev))<<20|uint64(unix.Minor(sys.Dev)) == m.Dev
		}
		if ok && m.Inode == 0 {
			return f, true // a caller that knows no more
		}
	}
	f.Close()
	return nil, false
}

// gone makes the errors of a vanished process os.ErrNotExist.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("%w: %w", os.ErrNotExist, err)
	}
	return err
}
