// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
	"testing"

	"pathprof/calibrate"
	"pathprof/perfevent/perftest"
)

// TestLivePhase records a program whose rounds are as long as the period, again and
// again. In step, single recordings are far off, but the random phase leaves their
// mean right; out of step, and with a varied period, each is right. One way takes
// three minutes, so it is for PATHPROF_FULL only; what it shows of the periods
// themselves, perfevent.TestPhase shows by simulation.
func TestLivePhase(t *testing.T) {
	if os.Getenv("PATHPROF_FULL") == "" {
		t.Skip("records for minutes; PATHPROF_FULL=1 runs it")
	}
	needRecorder(t)
	const runs = 40
	for _, tt := range []struct {
		name        string
		args        []string
		least, most float64 // standard deviation of a recording's error, points
	}{
		{"in step", []string{"--period", "1000000"}, 15, 100}, // a count is used as it is
		{"out of step", []string{"--period", "1ms"}, 0, 2.5},
		{"jitter", []string{"--period", "1000000", "--jitter"}, 0, 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var errs []float64
			var squares float64
			for len(errs) < runs {
				if e, n := phaseError(t, tt.args); n >= leastPhaseSamples {
					errs, squares = append(errs, e), squares+e*e/runs
				}
			}
			mean := calibrate.MeanEstimate(errs, 0.999)
			t.Logf("%d recordings: mean error %.2f [%.2f, %.2f] points, standard deviation %.2f",
				runs, mean.Value, mean.Low, mean.High, math.Sqrt(squares))
			if !mean.Holds(0) {
				t.Errorf("biased: the mean error is not 0 with 99.9 %%")
			}
			if sd := math.Sqrt(squares); sd < tt.least || sd > tt.most {
				t.Errorf("standard deviation %.2f, want %v to %v", sd, tt.least, tt.most)
			}
		})
	}
}

// leastPhaseSamples a recording must have; on a busy machine some have not.
const leastPhaseSamples = 200

// phaseError records periodic.py for two seconds of its rounds and returns the error
// of the marked function's share, in points, and the samples it rests on.
func phaseError(t *testing.T, args []string) (points float64, samples int) {
	t.Helper()
	child := perftest.Start(t, perftest.PythonPath(t, "3.11"), workload(t, "periodic.py"), "2", "1000000", "0.3", "--on-line")
	rec, dir := startRecorder(t, append([]string{"-p", strconv.Itoa(child.PID)}, args...)...)
	child.Say("go")
	var truth struct {
		Begin     int64              `json:"begin_ns"`
		End       int64              `json:"end_ns"`
		Functions map[string]float64 `json:"functions"`
	}
	if err := json.Unmarshal([]byte(child.Line()), &truth); err != nil {
		t.Fatal(err)
	}
	child.CloseStdin()
	if err := errors.Join(child.Wait(), rec.Wait()); err != nil {
		t.Fatal(err)
	}
	var marked float64
	times, stacks := samplesOf(t, dir, child.PID)
	for i, at := range times {
		if at < truth.Begin || at >= truth.End || len(stacks[i]) == 0 {
			continue
		}
		switch stacks[i][len(stacks[i])-1] {
		case "marked":
			marked++
			samples++
		case "rest":
			samples++
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
	share := truth.Functions["marked"] / (truth.Functions["marked"] + truth.Functions["rest"])
	return 100 * (marked/float64(samples) - share), samples
}
