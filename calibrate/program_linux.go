// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed workloads/profile10.py workloads/units.py workloads/periodic.py workloads/skid.py workloads/switchheavy.py workloads/mix.py
var workloads embed.FS

// patience bounds every wait for a program; on a busy machine the accuracy run
// takes four times as long as it should.
const patience = 5 * time.Minute

// Program is a running workload. Its methods are not to be called from several
// goroutines.
type Program struct {
	// PID of its process, and number of its main thread.
	PID    int32
	cmd    *exec.Cmd
	stdin  *os.File
	lines  chan string // closed when its output ends
	stderr bytes.Buffer
}

// start runs a workload on the programs' CPU.
func (b *bench) start(ctx context.Context, name string, args ...string) (*Program, error) {
	return Start(ctx, Launch{Python: []string{b.opt.Python}, Dir: b.dir, CPU: b.cpu, Name: name, Args: args})
}

// Launch says how to start a workload.
type Launch struct {
	Python []string // interpreter and its options
	Dir    string   // to put the program's text in
	CPU    int      // to bind it to; -1: any
	Name   string   // of the file in workloads/
	Args   []string
}

// Start runs a workload and returns when it is ready.
func Start(ctx context.Context, l Launch) (*Program, error) {
	path := filepath.Join(l.Dir, l.Name)
	name := l.Name
	source, err := workloads.ReadFile("workloads/" + name)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(path, source, 0o600); err != nil {
		return nil, err
	}
	p := &Program{lines: make(chan string, 16)}
	p.cmd = exec.Command(l.Python[0], slices.Concat(l.Python[1:], []string{path}, l.Args)...)
	p.cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
	p.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true} // see prefer
	p.cmd.Stderr = &p.stderr
	in, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.cmd.Stdin = in
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	in.Close()
	if err != nil {
		stdin.Close()
		return nil, fmt.Errorf("start %s: %w", l.Python[0], err)
	}
	p.stdin, p.PID = stdin, int32(p.cmd.Process.Pid)
	go func() {
		defer close(p.lines)
		in := bufio.NewScanner(out)
		in.Buffer(nil, 16<<20)
		for in.Scan() {
			p.lines <- in.Text()
		}
	}()
	line, err := p.line(ctx)
	if err == nil && line != "ready" {
		err = fmt.Errorf("first line of %s: %q instead of ready", name, line)
	}
	if err == nil {
		err = bind(int(p.PID), l.CPU)
	}
	if err == nil {
		prefer(int(p.PID))
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// preferred is the nice value of the programs.
const preferred = -10

// prefer gives a program of a session of its own more of its CPU: others there would
// leave fewer units to compare. Without the right to it there are just fewer. Where
// the kernel shares CPUs among sessions first (kernel.sched_autogroup_enabled), a nice
// value counts within its session only, and the session has one, too.
func prefer(pid int) {
	_ = unix.Setpriority(unix.PRIO_PROCESS, pid, preferred)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(preferred)), 0)
}

// KeepOff keeps all threads of this process, and processes it starts, from the
// programs' CPU, and returns how to let them back: the recorder at a high rate would
// take a good part of it.
func KeepOff(cpu int) (undo func(), err error) {
	if cpu < 0 {
		return func() {}, nil
	}
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, fmt.Errorf("read the own CPUs: %w", err)
	}
	others := all
	others.Clear(cpu)
	if err := setOwn(&others); err != nil {
		return nil, err
	}
	return func() { _ = setOwn(&all) }, nil // at worst it stays on fewer CPUs
}

// setOwn binds every thread of this process; those made later inherit it.
func setOwn(set *unix.CPUSet) error {
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("list own threads: %w", err)
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		if err := unix.SchedSetaffinity(tid, set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("bind own threads: %w", err)
		}
	}
	return nil
}

// bind keeps a thread on a CPU; -1 does nothing.
func bind(tid, cpu int) error {
	if cpu < 0 {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(tid, &set); err != nil {
		return fmt.Errorf("bind a program to CPU %d: %w", cpu, err)
	}
	return nil
}

// line is the next line the program prints.
func (p *Program) line(ctx context.Context) (string, error) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	select {
	case <-ctx.Done():
		return "", ctx.Err()
	case line, ok := <-p.lines:
		if ok {
			return line, nil
		}
		_ = p.cmd.Wait() // its standard error says more
		last := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
		return "", fmt.Errorf("the Python program ended: %s", last[len(last)-1])
	case <-timeout.C:
		return "", fmt.Errorf("the Python program said nothing for %v", patience)
	}
}

// Run lets a program that waits for a line do its work, and reads its answer.
func (p *Program) Run(ctx context.Context, answer any) error {
	if _, err := p.stdin.WriteString("go\n"); err != nil {
		return fmt.Errorf("start the work: %w", err)
	}
	line, err := p.line(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(line), answer); err != nil {
		return fmt.Errorf("read what the Python program says: %w", err)
	}
	return nil
}

// Stop ends the program, if it has not ended, and waits for it.
func (p *Program) Stop() {
	_ = unix.Kill(-int(p.PID), unix.SIGKILL) // it may have ended
	p.stdin.Close()
	for range p.lines {
		continue // what it had to say
	}
	_ = p.cmd.Wait()
}
