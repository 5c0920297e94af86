// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// workerEnv marks the process that runs the steps; process 1 only waits, for its
// own child and for orphans.
const workerEnv = "PATHPROF_VM_WORKER"

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(rightsEnv) != "":
		try()
	case os.Getenv(workerEnv) != "":
		work()
	case os.Getpid() == 1:
		initProcess()
	default:
		os.Exit(m.Run())
	}
}

// console keeps messages whole.
var console sync.Mutex

func send(m message) {
	text, err := json.Marshal(m)
	if err != nil {
		text = []byte(err.Error())
	}
	console.Lock()
	defer console.Unlock()
	// A new line first: the kernel may have left its cursor anywhere.
	fmt.Printf("\n%s%s\n", mark, text)
}

// initProcess is the machine's process 1. It ends by switching the machine off.
func initProcess() {
	for _, m := range []struct{ source, dir, kind string }{
		{"proc", "/proc", "proc"}, {"sysfs", "/sys", "sysfs"}, {"dev", "/dev", "devtmpfs"}, {"tmp", "/tmp", "tmpfs"},
		{"tracefs", "/sys/kernel/tracing", "tracefs"}, {"securityfs", "/sys/kernel/security", "securityfs"},
		{"cgroup", "/sys/fs/cgroup", "cgroup2"},
	} {
		if err := unix.Mount(m.source, m.dir, m.kind, 0, ""); err != nil {
			fmt.Printf("mount %s: %v\n", m.dir, err)
		}
	}
	os.Setenv("PATH", "/usr/sbin:/usr/bin")
	os.Setenv("HOME", "/root")
	os.Setenv("TMPDIR", "/tmp")
	os.Setenv(workerEnv, "1")
	exec.Command("ip", "link", "set", "lo", "up").Run()
	worker := exec.Command("/proc/self/exe")
	worker.Stdout, worker.Stderr = os.Stdout, os.Stderr
	if err := worker.Start(); err != nil {
		fmt.Println(err)
	}
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if pid == worker.Process.Pid || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) // QEMU ends, by -no-reboot
}

// work runs the plan.
func work() {
	os.Unsetenv(workerEnv)
	var p plan
	text, err := os.ReadFile("/plan.json")
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	var uts unix.Utsname
	if err == nil {
		err = unix.Uname(&uts)
	}
	if err != nil {
		send(message{Line: err.Error(), Done: true})
		return
	}
	send(message{Ready: unix.ByteSliceToString(uts.Release[:]), Page: os.Getpagesize()})
	for _, s := range p.Steps {
		status := s.run()
		send(message{Step: s.Name, Status: &status})
	}
	send(message{Kernel: kernelWarnings()})
	send(message{Done: true})
}

func (s *step) say(line string) { send(message{Step: s.Name, Line: line}) }

// run returns the exit status, negative if the time ran out.
func (s *step) run() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(s.Seconds)*time.Second)
	defer cancel()
	undo, err := s.Limits.set()
	defer undo()
	if err != nil {
		s.say(err.Error())
		return 1
	}
	if s.Profile != nil {
		p, err := s.record(ctx)
		if err != nil {
			s.say(err.Error())
			return 1
		}
		send(message{Step: s.Name, Profile: p})
		return 0
	}
	if s.Beside {
		other := exec.CommandContext(ctx, "/usr/bin/python3", "-c", beside)
		if err := other.Start(); err != nil {
			s.say(err.Error())
			return 1
		}
		defer func() { other.Process.Kill(); other.Wait() }()
	}
	return s.runProgram(ctx)
}

// beside sleeps most of the time: the machine has other things to do.
const beside = `
import time
def of_others():
    end = time.monotonic() + 0.02
    while time.monotonic() < end: pass
while True:
    of_others()
    time.sleep(0.05)
`

func (s *step) runProgram(ctx context.Context) int {
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Dir, cmd.Env = s.Dir, append(os.Environ(), s.Env...)
	s.Limits.apply(cmd)
	out, in, err := os.Pipe()
	if err != nil {
		s.say(err.Error())
		return 1
	}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = in, in, time.Second
	err = cmd.Start()
	in.Close()
	if err != nil {
		s.say(err.Error())
		return 1
	}
	read := make(chan struct{})
	go func() { defer close(read); s.copyLines(out) }()
	cmd.Wait()
	select {
	case <-read:
	case <-time.After(5 * time.Second): // something else holds the pipe
	}
	out.Close()
	if ctx.Err() != nil {
		return -1
	}
	return cmd.ProcessState.ExitCode()
}

func (s *step) copyLines(r io.Reader) {
	for lines := bufio.NewScanner(r); lines.Scan(); {
		s.say(lines.Text())
	}
}

// kernelWarnings returns what the kernel complained about.
func kernelWarnings() []string {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return []string{err.Error()}
	}
	defer unix.Close(fd)
	var found []string
	buf := make([]byte, 16<<10)
	for len(found) < 100 {
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EPIPE) {
			continue // overwritten since
		}
		if err != nil || n <= 0 {
			break
		}
		_, text, _ := bytes.Cut(buf[:n], []byte(";"))
		line := strings.TrimSpace(string(text))
		for _, sign := range []string{"BUG:", "WARNING:", "Oops", "rcu: INFO", "Call trace:", "Call Trace:", "soft lockup", "hung_task", "bpf: "} {
			if strings.Contains(line, sign) {
				found = append(found, line)
				break
			}
		}
	}
	return found
}
