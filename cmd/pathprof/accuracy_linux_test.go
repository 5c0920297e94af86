// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"testing"

	"pathprof/calibrate"
	"pathprof/perfevent/perftest"
)

// needFull skips what takes long.
func needFull(t *testing.T) {
	t.Helper()
	if os.Getenv("PATHPROF_FULL") == "" {
		t.Skip("takes long: PATHPROF_FULL=1")
	}
}

// TestAccuracy: the root mean square error of ten shares, against the program's own
// clock, is below one point with the 7140 samples of the thesis and below a tenth
// with 300,000, and the mean error of each is chance, on every interpreter. One in
// twenty runs shows a mean error that is chance but looks like none, so two of
// all may.
func TestAccuracy(t *testing.T) {
	needFull(t)
	needRecorder(t)
	biased := 0
	for _, minor := range []string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13"} {
		for _, aim := range []struct {
			samples int
			rms     float64
		}{{7140, 1}, {300_000, 0.1}} {
			t.Run(fmt.Sprintf("%s/%d", minor, aim.samples), func(t *testing.T) {
				var a calibrate.Accuracy
				for range 3 { // others may leave it too little time
					if a = accuracyOf(t, minor, aim.samples); a.Samples >= int64(aim.samples) {
						break
					}
				}
				t.Logf("%s: %d samples, RMS error %.4f points, by chance %.4f; %d of 10 intervals miss, biased %v; %d lost, throttled %d times",
					minor, a.Samples, a.RMS, a.ExpectedRMS, a.Missed, a.Biased, a.Lost, a.Throttled)
				for _, f := range a.Functions {
					t.Logf("  %s: true %.4f, error %+.4f points, mean of slices [%+.4f, %+.4f]", f.Name, 100*f.Truth,
						100*(f.Share.Value-f.Truth), f.MeanError.Low, f.MeanError.High)
				}
				if a.RMS >= aim.rms || a.Samples < int64(aim.samples) {
					t.Errorf("%d samples, RMS error %.4f points, want less than %g", a.Samples, a.RMS, aim.rms)
				}
				if a.Biased {
					biased++
				}
			})
		}
	}
	if biased > 2 {
		t.Errorf("%d of 12 runs are biased", biased)
	}
}

// accuracyOf measures with so many samples at least: some are between the functions,
// or the host takes them.
func accuracyOf(t *testing.T, minor string, samples int) calibrate.Accuracy {
	t.Helper()
	a, err := calibrate.MeasureAccuracy(t.Context(), calibrate.Options{
		Python: perftest.PythonPath(t, minor), Samples: samples * 5 / 4, Record: startSession, OddPeriod: outOfStep,
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}
