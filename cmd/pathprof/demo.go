// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"pathprof/perfevent"
	"pathprof/pprofout"
)

// handlerProgram is the Python program that demo looks at.
//
//go:embed demo/handler.py
var handlerProgram []byte

// demoPatience bounds the start of the interpreter.
const demoPatience = 20 * time.Second

type demoFlags struct {
	duration time.Duration
	out      string
	list     bool
}

func newDemoCommand(e *env) *cobra.Command {
	var f demoFlags
	cmd := &cobra.Command{
		Use:   "demo [CASE]",
		Short: "Profile a small Python program that computes, waits and sleeps, and explain it",
		Example: `  sudo pathprof demo
  sudo pathprof demo -d 10s -o demo-out
  pathprof demo --list
  sudo pathprof demo gil-echo`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.list {
				e.cases()
				return nil
			}
			if len(args) > 0 && !isCase(args[0]) {
				return usagef(cmd, "no case %q; demo --list shows them", args[0])
			}
			if f.duration <= 0 {
				return usagef(cmd, "duration %v: must be above zero", f.duration)
			}
			if len(args) > 0 {
				return f.showCase(cmd.Context(), e, args[0])
			}
			return f.run(cmd.Context(), e)
		},
	}
	flags := cmd.Flags()
	flags.DurationVarP(&f.duration, "duration", "d", 5*time.Second, "`time` to record")
	flags.StringVarP(&f.out, "output", "o", "", "`folder` for program, recording and profiles (default a new one for temporary files)")
	flags.BoolVar(&f.list, "list", false, "list the cases: one for each kind of wait")
	return cmd
}

func (f demoFlags) run(ctx context.Context, e *env) error {
	python, err := e.lookPath("python3")
	if err != nil {
		return errors.New("the demo runs a Python program: no python3 in PATH; install it (Debian: apt install python3)")
	}
	if err := e.checkRecord(); err != nil {
		return err
	}
	dir, err := demoFolder(f.out)
	if err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "Recording %s with %s for %v …\n\n", filepath.Join(dir, "handler.py"), python, f.duration)
	sum, err := f.record(ctx, e, python, dir)
	if err != nil {
		return err
	}
	a, err := analyse(ctx, sum.dir, window{})
	if err != nil {
		return err
	}
	a.text(e, reportFlags{top: defaultTop})
	profiles := filepath.Join(dir, "profiles")
	if _, err := pprofout.WriteDir(a.profile, profiles, pprofout.ByClass); err != nil {
		return err
	}
	if err := handOver(dir, e.getenv); err != nil {
		return err
	}
	e.demoNext(dir, sum.dir, profiles)
	return nil
}

// demoFolder makes the folder that holds everything, readable by its owner only.
func demoFolder(out string) (string, error) {
	if out == "" {
		dir, err := os.MkdirTemp("", "pathprof-demo-")
		if err != nil {
			return "", fmt.Errorf("make a folder: %w", err)
		}
		return dir, nil
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return "", fmt.Errorf("make a folder: %w", err)
	}
	return filepath.Abs(out)
}

// record runs the program and records it.
func (f demoFlags) record(ctx context.Context, e *env, python, dir string) (summary, error) {
	script := filepath.Join(dir, "handler.py")
	if err := os.WriteFile(script, handlerProgram, 0o600); err != nil {
		return summary{}, fmt.Errorf("write the program: %w", err)
	}
	h, err := startHandler(ctx, python, script, f.duration)
	if err != nil {
		return summary{}, err
	}
	defer h.stop()
	return e.record(ctx, recordOptions{
		pids: []int32{h.pid}, duration: f.duration, out: filepath.Join(dir, "demo.pathprof"),
		event: perfevent.Auto, period: perfevent.Period{},
		asked: map[string]string{"demo": "true"},
	})
}

// handler is the running Python program.
type handler struct {
	pid    int32
	cmd    *exec.Cmd
	stderr bytes.Buffer
	ended  chan struct{} // closed when the program has
}

// startHandler starts the program and waits until it serves.
func startHandler(ctx context.Context, python, script string, d time.Duration) (*handler, error) {
	pidfile := filepath.Join(filepath.Dir(script), "handler.pid")
	if err := os.Remove(pidfile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the old file: %w", err)
	}
	h := &handler{ended: make(chan struct{})}
	// It ends by itself, should nobody be left to end it.
	seconds := strconv.FormatFloat((d + 2*demoPatience).Seconds(), 'f', 1, 64)
	h.cmd = exec.Command(python, script, seconds, pidfile)
	h.cmd.Stderr = &h.stderr
	h.cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to end its children with it
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", python, err)
	}
	h.pid = int32(h.cmd.Process.Pid)
	go func() {
		defer close(h.ended)
		_ = h.cmd.Wait() // how it ended is told by its standard error
	}()
	if err := h.await(ctx, pidfile); err != nil {
		h.stop()
		return nil, err
	}
	return h, os.Remove(pidfile)
}

// await waits for the file that says the program serves.
func (h *handler) await(ctx context.Context, pidfile string) error {
	timeout := time.NewTimer(demoPatience)
	defer timeout.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-h.ended:
			lines := strings.Split(strings.TrimSpace(h.stderr.String()), "\n")
			return fmt.Errorf("the Python program ended at once: %s", lines[len(lines)-1])
		case <-timeout.C:
			return fmt.Errorf("the Python program did not start within %v", demoPatience)
		case <-poll.C:
			if _, err := os.Stat(pidfile); err == nil {
				return nil
			}
		}
	}
}

func (h *handler) stop() {
	_ = syscall.Kill(-int(h.pid), syscall.SIGKILL) // it may have ended
	<-h.ended
}

// demoNext says what was written and what to type now.
func (e *env) demoNext(dir, rec, profiles string) {
	fmt.Fprintf(e.stdout, `
What to look at: the lock. The main thread waits for stock-refresh, and the
functions of that class say what stock-refresh does with the lock in its hand.

Written to %s:
  handler.py     the program
  demo.pathprof  the recording
  profiles       path.pb.gz with everything, and a profile for each class

Next:
  go tool pprof -top %s
  go tool pprof -http=: %s
  %s report %s --thread stock-refresh
  %s record -p PID -d 10s -o app.pathprof    your own program, as root
`, dir, filepath.Join(profiles, pprofout.PathFile), filepath.Join(profiles, pprofout.PathFile),
		e.self, rec, e.self)
}
