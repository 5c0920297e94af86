// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pathprof/calibrate"
)

// sampleResult is a calibration of this machine on which a sample costs 10 µs.
func sampleResult() calibrate.Result {
	r := calibrate.Result{Format: calibrate.FormatVersion, Machine: readMachine(), TakenAt: time.Unix(1e9, 0).UTC()}
	for _, period := range []int64{10_000_000, 1_000_000, 100_000, 10_000} {
		ratio, hz := 1+10_000/float64(period), 1e9/float64(period)
		r.Overhead.Points = append(r.Overhead.Points, calibrate.OverheadPoint{
			PeriodNs: period, Slowdown: calibrate.Estimate{Value: ratio, Low: ratio, High: ratio},
			ByStatistics: ratio, AskedHz: hz, AchievedHz: hz,
		})
	}
	return r
}

// calibrationEnv is an env with a home of its own, whose record only notes.
func calibrationEnv(t *testing.T) (e *env, out, errs *bytes.Buffer, recorded *recordOptions) {
	t.Helper()
	home := t.TempDir()
	out, errs, recorded = &bytes.Buffer{}, &bytes.Buffer{}, &recordOptions{}
	e = newEnv(out, errs)
	e.getenv = func(name string) string { return map[string]string{"HOME": home}[name] }
	e.lookPath = func(name string) (string, error) { return "/bin/" + name, nil }
	e.calibrate = func(context.Context, calibration) (calibrate.Result, error) { return sampleResult(), nil }
	e.record = func(_ context.Context, opt recordOptions) (summary, error) {
		*recorded = opt
		return summary{}, errors.New("not recorded")
	}
	return e, out, errs, recorded
}

func TestCalibrateStoresAndRecordUses(t *testing.T) {
	e, out, errs, recorded := calibrationEnv(t)
	ctx := context.Background()
	margin := []string{"record", "-p", "1", "--margin", "5%", "--segment", "500ms"}
	if status := e.run(ctx, margin); status != 1 || !strings.Contains(errs.String(), "run pathprof calibrate") {
		t.Fatalf("without a calibration: status %d, %s", status, errs)
	}
	if n := strings.Count(errs.String(), "\n"); n != 1 {
		t.Errorf("without a calibration: %d lines, want 1", n)
	}
	if status := e.run(ctx, []string{"calibrate"}); status != 0 {
		t.Fatalf("calibrate: status %d, %s", status, errs)
	}
	if !strings.Contains(out.String(), "stored in ") {
		t.Errorf("does not say where it is stored:\n%s", out)
	}
	e.run(ctx, margin)
	// 381 samples in 500 ms: at most 1.31 ms; 10 µs each below 10 %: at least 100 µs.
	if p := recorded.period.Value; p < 200_000 || p > 500_000 || recorded.calibrated == nil {
		t.Errorf("period: got %d, want about 360000; %s", p, errs)
	}
	errs.Reset()
	if status := e.run(ctx, []string{"record", "-p", "1", "--margin", "1%", "--segment", "1ms"}); status != 1 ||
		!strings.Contains(errs.String(), "none; the overhead wants") {
		t.Errorf("impossible wish: status %d, %s", status, errs)
	}
	for _, wrong := range [][]string{
		{"--margin", "5%", "--period", "1ms"}, {"--margin", "x"}, {"--segment", "-1s"},
		{"--margin", "5%", "--event", "page-faults"}, {"--jitter", "--freq", "100"},
	} {
		if status := e.run(ctx, append([]string{"record", "-p", "1"}, wrong...)); status != 2 {
			t.Errorf("%q: status %d, want 2", wrong, status)
		}
	}
}

// TestCalibrationOfAnother: what was measured elsewhere, or is damaged, is not used.
func TestCalibrationOfAnother(t *testing.T) {
	e, _, _, _ := calibrationEnv(t)
	good := sampleResult()
	for name, change := range map[string]func(*calibrate.Result){
		"kernel":  func(r *calibrate.Result) { r.Machine.Kernel += "x" },
		"CPUs":    func(r *calibrate.Result) { r.Machine.CPUs++ },
		"format":  func(r *calibrate.Result) { r.Format++ },
		"nothing": func(r *calibrate.Result) { r.Overhead.Points = nil },
		"period":  func(r *calibrate.Result) { r.Overhead.Points[0].PeriodNs = -1 },
	} {
		r := sampleResult()
		change(&r)
		dir, err := stateDir(e.getenv)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err := errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, calibrationFile(good.Machine)), text, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := loadCalibration(e.getenv); !errors.Is(err, errNoCalibration) {
			t.Errorf("%s: got %v, want none", name, err)
		}
	}
	path, err := storeCalibration(&good, e.getenv)
	if err != nil {
		t.Fatal(err)
	}
	if r, err := loadCalibration(e.getenv); err != nil || len(r.Overhead.Points) != 4 {
		t.Errorf("got %v, %v", r, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode: got %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadCalibration(e.getenv); err == nil {
		t.Error("half a file: want an error")
	}
}

// TestJitterIsHandedOn: the recorder varies the period only where it was asked to.
func TestJitterIsHandedOn(t *testing.T) {
	for _, want := range []bool{false, true} {
		e, _, _, recorded := calibrationEnv(t)
		args := []string{"record", "-p", "1"}
		if want {
			args = append(args, "--jitter")
		}
		if e.run(context.Background(), args); recorded.jitter != want {
			t.Errorf("%q: jitter %v", args, recorded.jitter)
		}
	}
}

func TestCalibrateJSON(t *testing.T) {
	e, out, errs, _ := calibrationEnv(t)
	if status := e.run(context.Background(), []string{"calibrate", "--json"}); status != 0 {
		t.Fatalf("status %d: %s", status, errs)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(out.Bytes(), &keys); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"accuracy", "cost", "overhead", "phase", "advice", "machine", "python"} {
		if keys[want] == nil {
			t.Errorf("no key %q", want)
		}
	}
}

func TestStateDir(t *testing.T) {
	for _, test := range []struct {
		env  map[string]string
		want string
	}{
		{map[string]string{"HOME": "/h"}, "/h/.local/state/pathprof"},
		{map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s"}, "/s/pathprof"},
		{map[string]string{"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/pathprof"},
		{map[string]string{}, ""},
	} {
		got, _ := stateDir(func(name string) string { return test.env[name] })
		if got != test.want {
			t.Errorf("%v: got %q, want %q", test.env, got, test.want)
		}
	}
	if os.Geteuid() == 0 {
		// Root by sudo keeps it with the user who typed it.
		got, err := stateDir(func(name string) string {
			return map[string]string{"HOME": "/h", "XDG_STATE_HOME": "/s", "SUDO_UID": "0"}[name]
		})
		if err != nil || !slices.Contains(strings.Split(got, "/"), ".local") || strings.HasPrefix(got, "/s") {
			t.Errorf("under sudo: got %q, %v", got, err)
		}
	}
}
