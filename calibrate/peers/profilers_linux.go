// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"pathprof/perfevent/recording"
)

// sample is one look of a profiler at the main thread's Python functions.
type sample struct {
	at    int64    // ns
	stack []string // outermost first
}

// trace is what a profiler saw.
type trace struct {
	samples []sample
	// clock of the samples' times.
	clock clock
}

// clock says what times are worth.
type clock int

const (
	clockNone   clock = iota // samples have none
	clockOwn                 // they count from some moment
	clockSystem              // CLOCK_MONOTONIC
)

// profiler is one that is measured.
type profiler struct {
	name    string
	program string   // in PATH, or a path
	version []string // arguments that have it print its version
	want    string   // begin of the last word of that; empty: any
	// args attach it to a process; timed asks for an output with times.
	args func(rate int, pid int32, out string, timed bool) []string
	read func(ctx context.Context, out string, pid int32, timed bool) (trace, error)
	// trampoline: the interpreter's own for perf has to be on.
	trampoline bool
}

// profilers are all that are known, our own first.
func profilers(own string) []profiler {
	return []profiler{
		{name: "pathprof", program: own, version: []string{"--version"}, args: ownArgs, read: readOwn},
		{name: "py-spy", program: "py-spy", version: []string{"--version"}, args: pySpyArgs(), read: readPySpy},
		{name: "py-spy nonblocking", program: "py-spy", version: []string{"--version"}, args: pySpyArgs("--nonblocking"), read: readPySpy},
		{name: "austin", program: "austin", version: []string{"--version"}, want: "3.", args: austinArgs, read: readAustin},
		{name: "perf trampoline", program: "perf", version: []string{"--version"}, args: perfArgs, read: readPerf, trampoline: true},
	}
}

// find returns the path of a profiler that works and is understood.
func (p *profiler) find(ctx context.Context) (string, error) {
	path, err := exec.LookPath(p.program)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, p.version...).Output()
	if err != nil {
		return "", fmt.Errorf("ask for its version: %w", errorText(err))
	}
	words := strings.Fields(string(out))
	if p.want != "" && (len(words) == 0 || !strings.HasPrefix(words[len(words)-1], p.want)) {
		return "", fmt.Errorf("is %q; only output of version %s is understood", strings.Join(words, " "), p.want)
	}
	return path, nil
}

// errorText adds what a program wrote to its standard error.
func errorText(err error) error {
	if e, ok := errors.AsType[*exec.ExitError](err); ok && len(e.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(e.Stderr))
	}
	return err
}

func ownArgs(rate int, pid int32, out string, _ bool) []string {
	period := time.Second / time.Duration(rate)
	return []string{"record", "-p", itoa(pid), "--period", period.String(), "-o", out, "-d", "1h"}
}

func pySpyArgs(more ...string) func(int, int32, string, bool) []string {
	return func(rate int, pid int32, out string, timed bool) []string {
		format := "raw"
		if timed {
			format = "chrometrace"
		}
		args := []string{"record", "-p", itoa(pid), "-r", strconv.Itoa(rate), "-f", format, "-o", out}
		return append(args, more...)
	}
}

func austinArgs(rate int, pid int32, out string, _ bool) []string {
	return []string{"-i", strconv.Itoa(1_000_000 / rate), "-o", out, "-p", itoa(pid)}
}

// perfArgs unwinds by copies of the stack: stock interpreters have no frame
// pointers, and by those perf names no Python function at all.
func perfArgs(rate int, pid int32, out string, _ bool) []string {
	return []string{"record", "-q", "-e", "cpu-clock", "-c", strconv.Itoa(1_000_000_000 / rate),
		"--call-graph", "dwarf", "-k", "CLOCK_MONOTONIC", "-o", out, "-p", itoa(pid)}
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }

func readOwn(_ context.Context, out string, pid int32, _ bool) (t trace, err error) {
	r, err := recording.Open(out)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	frames, err1 := r.Frames()
	stacks, err2 := r.Stacks()
	if err := errors.Join(err1, err2); err != nil {
		return t, err
	}
	t.clock = clockSystem
	for s, err := range r.Samples() {
		if err != nil {
			return t, err
		}
		if s.TID != pid {
			continue
		}
		one := sample{at: s.Time}
		if int(s.Stack) < len(stacks) {
			list := stacks[s.Stack].Python
			for i := len(list) - 1; i >= 0; i-- {
				one.stack = append(one.stack, frames[list[i]].Name)
			}
		}
		t.samples = append(t.samples, one)
	}
	return t, nil
}

func readPySpy(_ context.Context, out string, _ int32, timed bool) (trace, error) {
	text, err := os.ReadFile(out)
	if err != nil {
		return trace{}, err
	}
	if timed {
		return parseChromeTrace(text)
	}
	return parseRaw(bytes.NewReader(text))
}

func readAustin(_ context.Context, out string, _ int32, _ bool) (trace, error) {
	f, err := os.Open(out)
	if err != nil {
		return trace{}, err
	}
	defer f.Close()
	return parseAustin(f)
}

// removeMap removes the names of the trampolines, which the interpreter leaves behind
// (Python/perf_trampoline.c), if there are any.
func removeMap(pid int32) { _ = os.Remove(fmt.Sprintf("/tmp/perf-%d.map", pid)) }

func readPerf(ctx context.Context, out string, pid int32, _ bool) (trace, error) {
	cmd := exec.CommandContext(ctx, "perf", "script", "-i", out, "-F", "tid,time,ip,sym", "--ns", "--no-inline")
	text, err := cmd.Output()
	removeMap(pid)
	if err != nil {
		return trace{}, fmt.Errorf("perf script: %w", errorText(err))
	}
	return parsePerf(bytes.NewReader(text))
}
