// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pathprof/calibrate"
	"pathprof/perfevent/perftest"
)

// TestHighRate: a thread is sampled 100,000 times a second for 30 s without loss, or
// the recording says which limit of the kernel's kept it from that. The thread's
// own CPU time tells how many samples there should be.
func TestHighRate(t *testing.T) {
	needFull(t)
	needRecorder(t)
	const period, length = 10 * time.Microsecond, 30 * time.Second
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.11"), "spin.py",
		"import sys\ndef spin():\n    while True:\n        pass\nprint('ready', flush=True)\nspin()\n")
	before := threadTime(t, child.PID)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--scope", "process", "--period", period.String(), "-d", length.String())
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	ran := threadTime(t, child.PID) - before
	m := openRecording(t, dir).Meta()
	rate := float64(m.Samples) / ran.Seconds()
	limits := calibrate.ReadMachine()
	t.Logf("%d samples in %v of the thread's CPU time, start of the recorder included: %.0f a second; recorded %v, asked %.0f, achieved %.0f; "+
		"%d lost, throttled %d times; perf_event_max_sample_rate=%d, perf_cpu_time_max_percent=%d", m.Samples, ran, rate,
		time.Duration(m.EndNs-m.BeginNs), m.AskedHz, m.AchievedHz, m.Loss.Samples, m.Loss.Throttled, limits.MaxSampleRate, limits.CPUTimeMaxPercent)
	if ran < length*9/10 {
		t.Skipf("the thread had a CPU for %v of %v: others are too busy", ran, length)
	}
	switch asked := 1e9 / float64(period); {
	case m.Loss.Samples > 0:
		t.Errorf("%d samples lost of %d", m.Loss.Samples, m.Samples)
	case m.AchievedHz > 0.95*asked:
	case m.Loss.Throttled > 0 || float64(limits.MaxSampleRate) < asked:
		t.Logf("the kernel's limit (%s) allows %.0f", rateLimits(), m.AchievedHz)
	default:
		t.Errorf("%.0f samples a second, and no limit of the kernel's is the cause", m.AchievedHz)
	}
}

// threadTime is the CPU time of a process' first thread (sum_exec_runtime, ns).
func threadTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "schedstat"))
	if err != nil {
		t.Fatal(err)
	}
	var ns int64
	for _, c := range text {
		if c < '0' || c > '9' {
			break
		}
		ns = ns*10 + int64(c-'0')
	}
	return time.Duration(ns)
}

// adviceTrials is how often the advice is tried.
const adviceTrials = 10

// TestAdvice: ten repetitions of a segment, recorded with the period that calibration
// advises, have a margin and an overhead that were asked for, nine times of ten. For one
// alone there is no such period where an interrupt costs some 5 µs.
func TestAdvice(t *testing.T) {
	needFull(t)
	needRecorder(t)
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	t.Setenv("SUDO_UID", "")
	mustRun(t, "calibrate", "--quick", "--python", perftest.PythonPath(t, "3.11"))
	log := unitLog(t)
	if err := log.SetDepth(8); err != nil {
		t.Fatal(err)
	}
	child := perftest.Start(t, perftest.PythonPath(t, "3.11"), workload(t, "units.py"), log.Path(), "3600")
	good := 0
	for range adviceTrials {
		overhead := calibrate.Slowdown{Log: log, Width: 2 * time.Second}
		margin, period := 0.0, int64(0)
		for range 5 { // pairs
			dir := filepath.Join(t.TempDir(), "r.pathprof")
			err := overhead.Pair(t.Context(), func() (func() error, error) {
				cmd, begun := startRecorder(t, "-p", strconv.Itoa(child.PID), "--margin", "5%", "--segment", "50ms", "--repeat", "10", "--overhead", "10%")
				dir = begun
				return func() error {
					return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait())
				}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			m := openRecording(t, dir).Meta()
			period = m.Period
			margin = max(margin, calibrate.Margin(float64(10*50*time.Millisecond)*m.AchievedHz/1e9))
		}
		over := overhead.CPU().Value - 1
		t.Logf("every %v: margin %.2f %%, overhead %.1f %%", time.Duration(period), 100*margin, 100*over)
		if margin <= 0.05 && over <= 0.10 {
			good++
		}
	}
	if good < adviceTrials*9/10 {
		t.Errorf("%d of %d trials are as advised", good, adviceTrials)
	}
}
