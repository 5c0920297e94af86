// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pathprof/perfevent"
)

// testEnv is an environment without a machine: recording is possible and yields
// nothing, and no variable is set.
func testEnv(stdout, stderr io.Writer) *env {
	return &env{
		stdout: stdout, stderr: stderr, self: "pathprof",
		getenv:   func(string) string { return "" },
		lookPath: func(name string) (string, error) { return "", exec.ErrNotFound },
		probe: func() []perfevent.Feature {
			return []perfevent.Feature{{Name: "kernel", Mode: perfevent.ModeRecord, OK: true, Detail: "6.1"}}
		},
		checkRecord: func() error { return nil },
		record: func(context.Context, recordOptions) (summary, error) {
			return summary{}, errors.New("tests do not record")
		},
	}
}

// result is what a command line did.
type result struct {
	stdout, stderr string
	status         int
}

func runIn(e *env, args ...string) result {
	var out, errs bytes.Buffer
	e.stdout, e.stderr = &out, &errs
	status := e.run(context.Background(), args)
	return result{out.String(), errs.String(), status}
}

func runTest(args ...string) result { return runIn(testEnv(nil, nil), args...) }

// TestUsage: a wrong command line has status 2, says what is wrong in one line,
// and where to read more in another.
func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		want string // of the first line
	}{
		{"", "no command given"},
		{"repotr x", `unknown command "repotr"; did you mean report?`},
		{"nonsense", `unknown command "nonsense"`},
		{"help nonsense", `unknown command "nonsense"`},
		{"report", "no recording given"},
		{"report a b", `unexpected argument "b"`},
		{"report a --bogus", "unknown flag: --bogus"},
		{"report a --segments", "add --json"},
		{"report a --top -1", "must not be negative"},
		{"report a --top x", "invalid argument"},
		{"report a --from yesterday", `--from "yesterday"`},
		{"report a --to -1s", "must not be negative"},
		{"report a --frames some", `--frames`},
		{"pprof", "no recording given"},
		{"pprof a", "give -o DIR"},
		{"pprof a -o b --by colour", `"colour"`},
		{"dump", "no recording given"},
		{"check now", `unexpected argument "now"`},
		{"demo now", `no case "now"`},
		{"demo -d 0s", "must be above zero"},
		{"demo -d soon", "invalid argument"},
		{"record", "nothing to record"},
		{"record -p x", `"x"`},
		{"record -p 1 --period 1ms --freq 99", "choose one"},
		{"record -p 1 --event nonsense", `"nonsense"`},
		{"record -p 1 --scope nowhere", `"nowhere"`},
		{"record -p 1 -- true", "not both"},
	} {
		t.Run(test.args, func(t *testing.T) {
			got := runTest(strings.Fields(test.args)...)
			if got.status != 2 || got.stdout != "" {
				t.Errorf("got status %d and output %q, want status 2 and none", got.status, got.stdout)
			}
			lines := strings.Split(strings.TrimSuffix(got.stderr, "\n"), "\n")
			if len(lines) != 2 || !strings.HasPrefix(lines[0], "pathprof: ") || !strings.HasSuffix(lines[1], "--help says more") {
				t.Errorf("got %q, want the error and a hint", got.stderr)
			}
			if !strings.Contains(lines[0], test.want) {
				t.Errorf("got %q, want %q in it", lines[0], test.want)
			}
		})
	}
}

// TestFailure: what cannot be done has status 1 and one line.
func TestFailure(t *testing.T) {
	empty := t.TempDir()
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "meta.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"report", filepath.Join(empty, "none.pathprof")},
		{"report", empty},
		{"report", broken},
		{"pprof", broken, "-o", empty},
		{"dump", broken},
		{"dump", "--samples", filepath.Join(empty, "none.pathprof")},
		{"demo"}, // no python3
	} {
		t.Run(strings.Join(args[:1], " "), func(t *testing.T) {
			got := runTest(args...)
			if got.status != 1 {
				t.Errorf("status: got %d, want 1", got.status)
			}
			if !strings.HasPrefix(got.stderr, "pathprof: ") || strings.Count(got.stderr, "\n") != 1 {
				t.Errorf("got %q, want one line", got.stderr)
			}
		})
	}
}

// TestHelp: every command has an example and exits with 0.
func TestHelp(t *testing.T) {
	root := newRootCommand(testEnv(io.Discard, io.Discard))
	for _, cmd := range root.Commands() {
		if cmd.Hidden || cmd.Name() == "help" {
			continue
		}
		if cmd.Example == "" || cmd.Short == "" {
			t.Errorf("%s: no example or no description", cmd.Name())
		}
		for _, args := range [][]string{{cmd.Name(), "--help"}, {"help", cmd.Name()}} {
			got := runTest(args...)
			if got.status != 0 || got.stderr != "" || !strings.Contains(got.stdout, cmd.Example) {
				t.Errorf("%v: got %+v", args, got)
			}
		}
	}
	if got := runTest("--version"); got.status != 0 || !strings.HasPrefix(got.stdout, "pathprof ") {
		t.Errorf("--version: got %+v", got)
	}
}

func TestInterrupted(t *testing.T) {
	e := testEnv(nil, nil)
	e.record = func(context.Context, recordOptions) (summary, error) {
		return summary{}, fmt.Errorf("wait: %w", context.Canceled)
	}
	got := runIn(e, "record", "-p", "1")
	if got.status != 1 || got.stderr != "pathprof: interrupted\n" {
		t.Errorf("got %+v", got)
	}
}

// brokenPipe is an output whose reader has gone.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}
}

// TestClosedPipe: head ends the output, which is no error.
func TestClosedPipe(t *testing.T) {
	var stderr bytes.Buffer
	e := testEnv(brokenPipe{}, &stderr)
	if status := e.run(t.Context(), []string{"check", "--json"}); status != 0 || stderr.Len() > 0 {
		t.Errorf("got status %d, %q; want 0 and nothing", status, &stderr)
	}
}

func TestCheck(t *testing.T) {
	e := testEnv(nil, nil)
	features := []perfevent.Feature{
		{Name: "root", Mode: perfevent.ModeRecord, OK: true, Detail: "user 0"},
		{Name: "hardware cycles", Mode: perfevent.ModeHardware, Detail: "none", Hint: "switch the PMU on"},
	}
	e.probe = func() []perfevent.Feature { return features }
	want := `for record
  ok       root             user 0
for hardware events
  missing  hardware cycles  none

What would help:
  hardware cycles: switch the PMU on
`
	if got := runIn(e, "check"); got.status != 0 || got.stdout != want || got.stderr != "" {
		t.Errorf("got %+v, want status 0 and\n%s", got, want)
	}
	features[0].OK = false
	got := runIn(e, "check", "--json")
	if got.status != 1 || got.stderr != "pathprof: recording is not possible here: root is missing\n" {
		t.Errorf("got %+v", got)
	}
	if !strings.Contains(got.stdout, `"record": false`) || !strings.Contains(got.stdout, `"hint": "switch the PMU on"`) {
		t.Errorf("got %s", got.stdout)
	}
}

func TestDemoNeeds(t *testing.T) {
	e := testEnv(nil, nil)
	got := runIn(e, "demo")
	if got.status != 1 || !strings.Contains(got.stderr, "no python3 in PATH") {
		t.Errorf("without python3: got %+v", got)
	}
	e.lookPath = func(string) (string, error) { return "/usr/bin/python3", nil }
	e.checkRecord = func() error {
		return &perfevent.FeatureError{Feature: "recording", Err: errors.New("needs root"), Hint: "run with sudo"}
	}
	got = runIn(e, "demo")
	if got.status != 1 || got.stdout != "" || got.stderr != "pathprof: recording: needs root: run with sudo\n" {
		t.Errorf("without root: got %+v", got)
	}
}

// TestDemoProgram: the program serves while it is recorded, and is gone
// afterwards, with its children.
func TestDemoProgram(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("needs python3 in PATH")
	}
	e := testEnv(io.Discard, io.Discard)
	var pid int32
	done := errors.New("seen")
	dir := t.TempDir()
	e.record = func(_ context.Context, opt recordOptions) (summary, error) {
		pid = opt.pids[0]
		if err := syscall.Kill(int(pid), 0); err != nil {
			t.Errorf("process %d while it is recorded: %v", pid, err)
		}
		if filepath.Dir(opt.out) != dir || opt.duration != time.Second {
			t.Errorf("got %+v", opt)
		}
		return summary{}, done
	}
	f := demoFlags{duration: time.Second}
	if _, err := f.record(t.Context(), e, python, dir); !errors.Is(err, done) {
		t.Fatalf("got %v, want what record returned", err)
	}
	// Killed children end soon, and may stay as zombies until init reaps them.
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		left := aliveInGroup(t, pid)
		if len(left) == 0 {
			return
		}
		if time.Since(begin) > 20*time.Second {
			t.Fatalf("still alive: %v", left)
		}
	}
}

// aliveInGroup lists the processes of a process group that are no zombies.
func aliveInGroup(t *testing.T, group int32) (pids []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended meanwhile
		}
		var state string
		var pid, parent, pgrp int
		_, tail, _ := strings.Cut(string(text), ") ") // past the name
		if _, err := fmt.Sscanf(tail, "%s %d %d", &state, &parent, &pgrp); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := fmt.Sscanf(string(text), "%d", &pid); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if pgrp == int(group) && state != "Z" && state != "X" {
			pids = append(pids, pid)
		}
	}
	return pids
}

func TestDemoProgramFails(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "python3")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no such luck >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := demoFlags{duration: time.Second}
	_, err := f.record(t.Context(), testEnv(io.Discard, io.Discard), broken, dir)
	if err == nil || !strings.Contains(err.Error(), "no such luck") {
		t.Errorf("got %v, want what the program said", err)
	}
}
