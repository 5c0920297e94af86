// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"pathprof/pyframes"
	"pathprof/unwind/proc"
)

// target is a process whose threads have paths.
type target struct {
	pid     int32
	pidfd   int // -1: a child that was met on the way
	interp  *pyframes.Interp
	name    string
	command []string
	done    bool
}

// targets are the processes that were asked for and, with --children, theirs.
// It is used by the session and its watcher.
type targets struct {
	mu    sync.Mutex
	all   []*target
	byPID map[int32]*target
	cache *pyframes.Cache
	// cmd is the program that record started; it waits for gate to close.
	cmd  *exec.Cmd
	gate *os.File
}

// openTargets checks that each process exists and runs a CPython we can read,
// or starts the command.
func openTargets(opt recordOptions) (*targets, error) {
	t := &targets{byPID: map[int32]*target{}, cache: pyframes.NewCache()}
	for _, pid := range opt.pids {
		if t.byPID[pid] != nil {
			continue
		}
		if err := t.addRunning(pid); err != nil {
			t.close()
			return nil, err
		}
	}
	if len(opt.command) > 0 {
		if err := t.startCommand(opt.command); err != nil {
			t.close()
			return nil, err
		}
	}
	return t, nil
}

func (t *targets) addRunning(pid int32) error {
	fd, err := unix.PidfdOpen(int(pid), 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("no process %d", pid)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("%d is a thread, not a process: give the process number", pid)
	case err != nil:
		return fmt.Errorf("process %d: %w", pid, err)
	}
	g := &target{pid: pid, pidfd: fd}
	t.add(g)
	g.name, g.command = describe(pid)
	g.interp, err = pyframes.Find(int(pid), t.cache)
	if errors.Is(err, pyframes.ErrNotPython) {
		return fmt.Errorf("process %d (%s) runs no CPython: neither it nor a library of it has _PyRuntime", pid, g.name)
	}
	if err != nil {
		return fmt.Errorf("process %d (%s): %w", pid, g.name, err)
	}
	return nil
}

func describe(pid int32) (name string, command []string) {
	if st, err := proc.Stat(int(pid), int(pid)); err == nil {
		name = st.Comm
	}
	command, _ = proc.Cmdline(int(pid))
	return name, command
}

func (t *targets) add(g *target) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, g)
	t.byPID[g.pid] = g
}

// waitCommand is the hidden command under which record starts a program: it
// waits for its input to close, then becomes the program. So nothing of the
// program runs before the recording does.
const waitCommand = "exec-when-ready"

func (t *targets) startCommand(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	wait, gate, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	cmd := exec.Command("/proc/self/exe", append([]string{waitCommand, "--", path}, command...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{wait}
	if err := cmd.Start(); err != nil {
		gate.Close()
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	t.cmd, t.gate = cmd, gate
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", cmd.Process.Pid, err)
	}
	t.add(&target{pid: int32(cmd.Process.Pid), pidfd: fd, name: command[0], command: command})
	return nil
}

// execWhenReady is the other side: file 3 is the gate.
func execWhenReady(args []string) error {
	gate := os.NewFile(3, "gate")
	if _, err := gate.Read(make([]byte, 1)); err == nil {
		return errors.New("unexpected input")
	}
	gate.Close()
	err := syscall.Exec(args[0], args[1:], os.Environ())
	return fmt.Errorf("start %s: %w", args[1], err)
}

// release lets the started command run.
func (t *targets) release() error {
	if t.gate == nil {
		return nil
	}
	err := t.gate.Close()
	t.gate = nil
	return err
}

// list returns the targets known so far.
func (t *targets) list() []*target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*target(nil), t.all...)
}

// has tells whether a process is a target.
func (t *targets) has(pid int32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byPID[pid] != nil
}

// addChild makes the child of a target a target.
func (t *targets) addChild(pid int32) {
	name, command := describe(pid)
	t.add(&target{pid: pid, pidfd: -1, name: name, command: command})
}

// ended tells whether every process that was asked for has ended. A process
// number may be used again, a pidfd is not.
func (t *targets) ended() bool {
	for _, g := range t.list() {
		if g.pidfd < 0 || g.done {
			continue
		}
		fds := []unix.PollFd{{Fd: int32(g.pidfd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err != nil || n == 0 {
			return false
		}
		g.done = true
	}
	return true
}

// wait waits for the started command to end; nil if there is none.
func (t *targets) wait() error {
	if t.cmd == nil {
		return nil
	}
	return t.cmd.Wait()
}

// close releases the targets. A command that was never released ends with its
// gate; one that runs is left alone.
func (t *targets) close() {
	if t.gate != nil {
		t.cmd.Process.Kill()
		t.gate.Close()
		t.cmd.Wait()
	}
	for _, g := range t.list() {
		if g.pidfd >= 0 {
			unix.Close(g.pidfd)
		}
	}
}

// parsePID reads a process number.
func parsePID(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("process number %q: must be a positive number", text)
	}
	return int32(n), nil
}
