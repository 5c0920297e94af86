// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// limits are what a step may not do: how it differs from root on a machine with
// everything.
type limits struct {
	// Caps are the capabilities of a step that is not root; nil with User.
	Caps []int
	// User: not root.
	User bool
	// Sysctls are set before and reset after.
	Sysctls map[string]string
	// Hide are folders that look empty.
	Hide []string
	// Namespaces are CLONE_NEW… flags; with a user namespace root there is not
	// root here.
	Namespaces uintptr
	// Lockdown is the kernel's, and stays for good: the last step's.
	Lockdown string
}

// nobody is the user of steps that are not root.
const nobody = 65534

// set changes the machine and returns how to change it back.
func (l limits) set() (undo func(), err error) {
	var undos []func()
	undo = func() {
		for i := len(undos) - 1; i >= 0; i-- {
			undos[i]()
		}
	}
	for name, value := range l.Sysctls {
		path := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		old, err1 := os.ReadFile(path)
		err2 := os.WriteFile(path, []byte(value), 0)
		if err := errors.Join(err1, err2); err != nil {
			return undo, fmt.Errorf("set %s: %w", name, err)
		}
		undos = append(undos, func() { os.WriteFile(path, old, 0) })
	}
	for _, dir := range l.Hide {
		if err := unix.Mount("none", dir, "tmpfs", 0, "mode=755"); err != nil {
			return undo, fmt.Errorf("hide %s: %w", dir, err)
		}
		undos = append(undos, func() { unix.Unmount(dir, 0) })
	}
	if l.Lockdown != "" {
		if err := os.WriteFile("/sys/kernel/security/lockdown", []byte(l.Lockdown), 0); err != nil {
			return undo, fmt.Errorf("lock down: %w", err)
		}
	}
	return undo, nil
}

// apply gives a program its user, capabilities and namespaces.
func (l limits) apply(cmd *exec.Cmd) {
	attr := &syscall.SysProcAttr{Cloneflags: l.Namespaces}
	if l.User {
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		for _, c := range l.Caps {
			attr.AmbientCaps = append(attr.AmbientCaps, uintptr(c))
		}
	}
	if l.Namespaces&syscall.CLONE_NEWUSER != 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		attr.GidMappings = attr.UidMappings
	}
	cmd.SysProcAttr = attr
}
