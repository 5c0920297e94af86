// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"golang.org/x/sys/unix"

	"pathprof/pyframes"
	"pathprof/unwind"
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
	t.cache.Parts = unwind.Parts
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

// gate is the shell program under which record starts another: it waits until its
// input 3 closes, then becomes that program. So nothing of the program runs before
// the recording does, and nothing else runs in its process: a shell has one
// thread, whose number exec keeps (de_thread in fs/exec.c gives the number of
// the first thread to whichever calls it).
const gate = `read _ <&3; exec 3<&-; exec "$@"`

func (t *targets) startCommand(command []string) error {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	wait, open, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	defer wait.Close()
	cmd := exec.Command("/bin/sh", append([]string{"-c", gate, command[0], path}, command[1:]...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{wait}
	if err := cmd.Start(); err != nil {
		open.Close()
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	t.cmd, t.gate = cmd, open
	fd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return fmt.Errorf("process %d: %w", cmd.Process.Pid, err)
	}
	t.add(&target{pid: int32(cmd.Process.Pid), pidfd: fd, name: command[0], command: command})
	return nil
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

// asked tells whether a thread is the first one of the program that record started.
func (t *targets) asked(tid int32) bool { return t.cmd != nil && int(tid) == t.cmd.Process.Pid }

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

// close releases the targets. A command that was never released is ended; one
// that still runs is left alone.
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
