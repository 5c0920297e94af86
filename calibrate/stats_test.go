// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestRMS(t *testing.T) {
	// A mean, and nothing of the truth is left out: the two mistakes of its
	// ancestor, which summed and skipped.
	if got := RMS([]float64{3, -4, 0, 0}); got != 2.5 {
		t.Errorf("got %v, want 2.5", got)
	}
	if got := RMS(nil); !math.IsNaN(got) {
		t.Errorf("nothing: got %v, want NaN", got)
	}
}

func TestMeanEstimate(t *testing.T) {
	// Student's table: t(0.975, 4) = 2.776.
	e := MeanEstimate([]float64{1, 2, 3, 4, 5}, 0.95)
	half := 2.776 * math.Sqrt(2.5) / math.Sqrt(5)
	if e.Value != 3 || math.Abs(e.High-3-half) > 1e-3 || math.Abs(3-e.Low-half) > 1e-3 {
		t.Errorf("got %+v, want 3 ± %.3f", e, half)
	}
	if e := MeanEstimate([]float64{7}, 0.95); !e.Holds(1e300) || e.Value != 7 {
		t.Errorf("one value: got %+v", e)
	}
}

// TestMedianCoverage: the bootstrap interval of a median holds the true one about
// as often as it says.
func TestMedianCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const trials = 300
	held := 0
	for range trials {
		list := make([]float64, 30)
		for i := range list {
			list[i] = rng.ExpFloat64()
		}
		if MedianEstimate(list).Holds(math.Ln2) {
			held++
		}
	}
	if share := float64(held) / trials; share < 0.90 || share > 0.99 {
		t.Errorf("95 %% intervals hold the truth in %.1f %%", 100*share)
	}
}

func TestFitLine(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var x, y []float64
	for i := range 60 {
		x = append(x, float64(i%10)*10)
		y = append(y, 155+11.4*x[i]+rng.NormFloat64()*20) // the thesis' traceback
	}
	f := FitLine(x, y)
	if !f.Base.Holds(155) || !f.Slope.Holds(11.4) || f.Slope.High-f.Slope.Low > 1 {
		t.Errorf("got %+v", f)
	}
}
