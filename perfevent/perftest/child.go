// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Ready is the line a program prints when it has reached the state its test
// wants to look at.
const Ready = "ready"

// patience bounds every wait for a child, so that a broken program fails a test
// instead of hanging it. It decides nothing else.
const patience = 60 * time.Second

// Child is a running program of a test.
type Child struct {
	PID int

	t      testing.TB
	cmd    *exec.Cmd
	stdin  *os.File
	lines  chan string // closed when the program's output ends
	stderr string      // file that takes the standard error
	quit   chan struct{}
	wait   func() error
}

// Start runs an interpreter with args (the first is usually a script of
// testdata), and returns when the program has printed the line "ready". The
// program and the children that share its process group are killed when the
// test ends.
func Start(t testing.TB, python string, args ...string) *Child {
	t.Helper()
	c := start(t, python, args...)
	if line := c.Line(); line != Ready {
		t.Fatalf("first line of %s: got %q, want %q\n%s", c.cmd, line, Ready, c.Stderr())
	}
	return c
}

// StartSource is [Start] for a program given as text, which is written to a
// file of a temporary folder. Lines in the profile are lines of the text,
// counted from 1; the file is called NAME.py.
func StartSource(t testing.TB, python, name, source string, args ...string) *Child {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".py")
	if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	return Start(t, python, append([]string{path}, args...)...)
}

func start(t testing.TB, program string, args ...string) *Child {
	t.Helper()
	c := &Child{
		t:      t,
		cmd:    exec.Command(program, args...),
		lines:  make(chan string, 1024),
		stderr: filepath.Join(t.TempDir(), "stderr"),
		quit:   make(chan struct{}),
	}
	// Files and own pipes, not exec's: its Wait would wait for
	// grandchildren that inherited them.
	stderr, err1 := os.Create(c.stderr)
	inRead, inWrite, err2 := os.Pipe()
	outRead, outWrite, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	c.stdin = inWrite
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = inRead, outWrite, stderr
	c.cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "PYTHONDONTWRITEBYTECODE=1")
	ownGroup(c.cmd)
	err := c.cmd.Start()
	inRead.Close()
	outWrite.Close()
	stderr.Close()
	if err != nil {
		inWrite.Close()
		outRead.Close()
		t.Fatalf("start %s: %v", program, err)
	}
	c.PID = c.cmd.Process.Pid
	c.wait = sync.OnceValue(c.cmd.Wait)
	read := make(chan struct{})
	go func() { defer close(read); c.readLines(outRead) }()
	t.Cleanup(func() {
		c.Kill()
		close(c.quit)
		outRead.Close() // ends the read if a grandchild holds the other end
		<-read
		inWrite.Close()
	})
	return c
}

func (c *Child) readLines(out *os.File) {
	defer close(c.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		select {
		case c.lines <- s.Text():
		case <-c.quit:
			return
		}
	}
}

// Line returns the next line the program printed, without its end. It fails the
// test if the output ends or nothing comes for a minute.
func (c *Child) Line() string {
	c.t.Helper()
	line, err := c.next()
	if err != nil {
		c.t.Fatalf("read a line of %s: %v\n%s", c.cmd, err, c.Stderr())
	}
	return line
}

func (c *Child) next() (string, error) {
	select {
	case line, ok := <-c.lines:
		if !ok {
			return "", errors.New("output ended")
		}
		return line, nil
	case <-time.After(patience):
		return "", fmt.Errorf("silent for %v", patience)
	}
}

// Lines returns all further lines until the program closes its output.
func (c *Child) Lines() []string {
	var lines []string
	for {
		line, err := c.next()
		if err != nil {
			return lines
		}
		lines = append(lines, line)
	}
}

// Say writes a line to the program's standard input.
func (c *Child) Say(line string) {
	c.t.Helper()
	if _, err := c.stdin.WriteString(strings.TrimSuffix(line, "\n") + "\n"); err != nil {
		c.t.Fatalf("write to %s: %v\n%s", c.cmd, err, c.Stderr())
	}
}

// CloseStdin ends the program's standard input.
func (c *Child) CloseStdin() { c.stdin.Close() }

// Stderr returns what the program has written to its standard error so far.
func (c *Child) Stderr() string {
	text, err := os.ReadFile(c.stderr)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Wait waits until the program ends and returns how, as [exec.Cmd.Wait] does.
// It may be called more than once.
func (c *Child) Wait() error { return c.wait() }

// Kill ends the program and its process group, and waits for the program.
func (c *Child) Kill() {
	// An error means that the program has ended: what Kill is for.
	_ = killGroup(c.cmd)
	_ = c.wait()
}
