// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"math"
	"slices"
	"testing"
	"time"
)

// TestOutOfStep samples rounds of common lengths: every part of them must get
// about its share.
func TestOutOfStep(t *testing.T) {
	const samples = 200
	for _, asked := range []time.Duration{100 * time.Microsecond, 250 * time.Microsecond, time.Millisecond, 2 * time.Millisecond, 10 * time.Millisecond} {
		period := OutOfStep(asked)
		if period < asked || float64(period) > 1.02*float64(asked) || period%2 == 0 {
			t.Errorf("%v: got %v", asked, period)
		}
		for _, round := range []time.Duration{time.Millisecond, 4 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, time.Second / 60} {
			if samples*period < 10*round {
				continue
			}
			if d := unevenness(period, round, samples); d > 0.06 {
				t.Errorf("%v in rounds of %v: %.3f of a round is out of proportion", period, round, d)
			}
		}
		if d := unevenness(asked, asked, samples); d < 0.99 {
			t.Errorf("%v in step with itself: got %.3f, want all", asked, d)
		}
	}
}

// unevenness is the star discrepancy of samples' places within a round.
func unevenness(period, round time.Duration, n int) float64 {
	places := make([]float64, n)
	for i := range places {
		places[i] = float64(time.Duration(i)*period%round) / float64(round)
	}
	slices.Sort(places)
	worst := 0.0
	for i, x := range places {
		worst = max(worst, math.Abs(x-float64(i)/float64(n)), math.Abs(float64(i+1)/float64(n)-x))
	}
	return worst
}

func TestJittered(t *testing.T) {
	var sum float64
	const draws = 10000
	for range draws {
		p := Jittered(1_000_000)
		if p < 875_000 || p > 1_125_000 {
			t.Fatalf("got %d", p)
		}
		sum += float64(p)
	}
	if mean := sum / draws; math.Abs(mean-1_000_000) > 5000 {
		t.Errorf("mean: got %.0f, want 1000000", mean)
	}
	if p := Jittered(10_000); p < 10_000 {
		t.Errorf("got %d, below what the kernel takes", p)
	}
}
