// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"syscall"
)

// handOver gives a folder that was written as root to the user who typed sudo.
// What pathprof writes is readable by its owner only, and reading it needs no
// root: without this, `sudo pathprof record` would leave a recording that
// `pathprof report` cannot open. It does nothing where sudo was not used.
func handOver(dir string, getenv func(string) string) error {
	uid, err1 := strconv.Atoi(getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(getenv("SUDO_GID"))
	if err1 != nil || err2 != nil || uid <= 0 || os.Geteuid() != 0 {
		return nil
	}
	// The folder may be the user's already, and so may change under our hands:
	// no name is followed out of it, and only files that root made, under one
	// name, are given away.
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("hand over %s: %w", dir, err)
	}
	defer root.Close()
	var names []string
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && (d.IsDir() || d.Type().IsRegular()) {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("hand over %s: %w", dir, err)
	}
	// Folders after what is in them: as long as root owns them, nobody else
	// can put another file in its place.
	for _, name := range slices.Backward(names) {
		if err := give(root, name, uid, gid); err != nil {
			return fmt.Errorf("hand over %s: %w", path.Join(dir, name), err)
		}
	}
	return nil
}

func give(root *os.Root, name string, uid, gid int) error {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 || info.Mode().IsRegular() && st.Nlink != 1 {
		return nil
	}
	return f.Chown(uid, gid)
}
