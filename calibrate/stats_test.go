// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"pathprof/join"
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

// TestFewValues: intervals of few values hold the median, too: they are wide.
func TestFewValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	const trials = 100
	for _, n := range []int{2, 3, 6} {
		held := 0
		for range trials {
			list := make([]float64, n)
			for i := range list {
				list[i] = 1 + rng.NormFloat64()/10
			}
			if MedianEstimate(list).Holds(1) {
				held++
			}
		}
		if share := float64(held) / trials; share < 0.90 {
			t.Errorf("%d values: 95 %% intervals hold the truth in %.1f %%", n, 100*share)
		}
	}
	if e := MedianEstimate([]float64{3}); !e.Holds(1e300) || e.Value != 3 {
		t.Errorf("one value: %+v", e)
	}
}

func TestEstimateJSON(t *testing.T) {
	for _, e := range []Estimate{{1.5, 1, 2}, {7, math.Inf(-1), math.Inf(1)}, {math.NaN(), math.Inf(-1), math.Inf(1)}} {
		text, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Estimate
		if err := json.Unmarshal(text, &back); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(back) != fmt.Sprint(e) {
			t.Errorf("%v became %s and %v", e, text, back)
		}
	}
	if text, _ := json.Marshal(MedianEstimate(nil)); string(text) != `{"value":null,"low":null,"high":null}` {
		t.Errorf("of nothing: %s", text)
	}
}

// TestSliceShare: samples that resemble their neighbours widen the interval, so that
// it still holds the truth; independent ones leave it as it is.
func TestSliceShare(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	const trials, truth = 200, 0.3
	for _, alike := range []int{1, 20} { // so many samples in a row are the same
		held, wilson := 0, 0
		for range trials {
			c := sliceCounts{}
			marked := false
			for i := range 3000 {
				if i%alike == 0 {
					marked = rng.Float64() < truth
				}
				c.add(int64(i)*1_000_000, marked)
			}
			n, e := c.share()
			if n != 3000 {
				t.Fatalf("%d samples", n)
			}
			if e.Holds(truth) {
				held++
			}
			if l, h := join.Wilson(int64(math.Round(e.Value*3000)), 3000); l <= truth && truth <= h {
				wilson++
			}
		}
		if held < trials*90/100 || alike > 1 && wilson > trials*70/100 {
			t.Errorf("%d alike: %d of %d intervals hold the truth, Wilson's %d", alike, held, trials, wilson)
		}
	}
	if n, e := (sliceCounts{}).share(); n != 0 || !math.IsNaN(e.Value) || e.Low != 0 || e.High != 1 {
		t.Errorf("of nothing: %d, %+v", n, e)
	}
}

// TestMedianCoverage: the bootstrap interval of a median holds the true one about
// as often as it says.
func TestMedianCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const trials = 60
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
	if share := float64(held) / trials; share < 0.85 || share > 0.995 {
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
