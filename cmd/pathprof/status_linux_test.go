// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// recordScript records a program of testdata from "ready" until it has said what
// is true of it, and returns that.
func recordScript(t *testing.T, python, name string, truth any, flags ...string) (pid int, dir string) {
	t.Helper()
	script, err := filepath.Abs("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	child := perftest.Start(t, python, script)
	cmd, dir := startRecorder(t, append([]string{"-p", strconv.Itoa(child.PID), "--scope", "process"}, flags...)...)
	child.Say("go")
	if err := json.Unmarshal([]byte(child.Line()), truth); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	return child.PID, dir
}

// statuses sums up the samples of a thread's own running classes by status.
func statuses(p *join.PathReport) (samples map[join.Status]int64, all int64) {
	samples = map[join.Status]int64{}
	for _, c := range p.Classes {
		if c.Wait != nil || c.State != "running" {
			continue
		}
		for _, s := range c.Status {
			samples[s.Status] += s.Samples
			all += s.Samples
		}
	}
	return samples, all
}

// statusVersions are the interpreters whose status is known: 3.6 keeps the flag of
// the garbage collector where only its own code finds it, and its sha256 here keeps
// the GIL.
var statusVersions = versions[1:]

// A thread that only computes, runs C code that released the GIL, imports or
// collects garbage has the status of it; threads that compete have it or wait.
func TestStatus(t *testing.T) {
	needRecorder(t)
	minors := []string{"3.8", "3.14"}
	if os.Getenv("PATHPROF_FULL") == "1" {
		minors = statusVersions
	}
	for _, minor := range minors {
		t.Run(minor, func(t *testing.T) {
			var tids map[string]int32
			_, dir := recordScript(t, perftest.PythonPath(t, minor), "status.py", &tids, "--period", "500us")
			r := report(t, dir)
			for name, tid := range tids {
				want := join.Status(strings.TrimSpace(name))
				got, all := statuses(pathOf(t, &r, tid))
				right, least := got[want], all/10*9
				switch want {
				case join.StatusWaiting: // the other half of the time
					right += got[join.StatusGIL]
				case join.StatusImporting: // from files, whose reading releases the GIL
					right += got[join.StatusReleased]
				}
				if got[want] == 0 || want == join.StatusImporting && got[want] < all/2 {
					t.Errorf("%s: %v", name, got)
				}
				t.Logf("%s: %d of %d: %v", name, right, all, got)
				if all < 50 || right < least {
					t.Errorf("%s: %d of %d samples: %v", name, right, all, got)
				}
			}
		})
	}
}
