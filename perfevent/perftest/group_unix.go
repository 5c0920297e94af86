// SPDX-License-Identifier: Apache-2.0

//go:build unix

package perftest

import (
	"os/exec"
	"syscall"
)

// ownGroup makes the program the leader of a process group, so that its own
// children can be ended with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

func killGroup(cmd *exec.Cmd) error {
	return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
