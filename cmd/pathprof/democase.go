// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"pathprof/calibrate/kit"
	"pathprof/perfevent"
)

// cases prints the cases of the kit that demo can show.
func (e *env) cases() {
	for _, c := range kit.Cases() {
		fmt.Fprintf(e.stdout, "%-16s %s\n", c.Name, c.About)
	}
}

// isCase tells whether the kit has a case.
func isCase(name string) bool {
	return slices.ContainsFunc(kit.Cases(), func(c kit.Case) bool { return c.Name == name })
}

// showCase records a program that waits in one way, and explains it.
func (f demoFlags) showCase(ctx context.Context, e *env, name string) error {
	python, err := e.lookPath("python3")
	if err != nil {
		return errors.New("the demo runs a Python program: no python3 in PATH; install it (Debian: apt install python3)")
	}
	if err := e.checkRecord(); err != nil {
		return err
	}
	// A name in PATH may be a script that looks for the interpreter.
	out, err := exec.CommandContext(ctx, python, "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		return fmt.Errorf("run %s: %w", python, err)
	}
	python = strings.TrimSpace(string(out))
	dir, err := demoFolder(f.out)
	if err != nil {
		return err
	}
	script := filepath.Join(dir, "waitkit.py")
	if err := os.WriteFile(script, kit.Program, 0o600); err != nil {
		return fmt.Errorf("write the program: %w", err)
	}
	seconds := strconv.FormatFloat(f.duration.Seconds(), 'f', 1, 64)
	fmt.Fprintf(e.stdout, "Recording %s %s for %v …\n\n", script, name, f.duration)
	sum, err := e.record(ctx, recordOptions{
		command: []string{python, script, name, "--rounds", "1", "--seconds", seconds, "--quiet"}, out: filepath.Join(dir, "demo.pathprof"),
		event: perfevent.Auto, period: perfevent.Period{}, asked: map[string]string{"demo": name},
	})
	if err != nil {
		return err
	}
	a, err := analyse(ctx, sum.dir, window{})
	if err != nil {
		return err
	}
	a.text(e, reportFlags{top: defaultTop})
	if err := handOver(dir, e.getenv); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "\nNext: %s report %s --json --segments    each wait with its cause\n", e.self, sum.dir)
	return nil
}
