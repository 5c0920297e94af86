// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// simulatedTruth is a run of 20 slices in which each function has its nominal share.
func simulatedTruth() *TenTruth {
	// Reading the clock takes a fifth of the time of a function of one per cent.
	t := &TenTruth{Begin: 0, End: 20_000_000_000, Rounds: 10_000, ClockNs: 4000, Functions: map[string]int64{}}
	for s := range 21 {
		row := []int64{int64(s) * 1_000_000_000}
		for _, share := range nominalShares {
			row = append(row, int64(float64(s)*share*1e7)+int64(s)*500*t.ClockNs)
		}
		t.Slices = append(t.Slices, append(row, int64(s)*500))
	}
	t.Slices = append(t.Slices, t.Slices[20]) // the end, where a slice ended
	for i, share := range nominalShares {
		t.Functions[tenName(i)] = int64(20*share*1e7) + t.Rounds*t.ClockNs
	}
	return t
}

// drawn are samples with given shares, in per cent.
func drawn(n int, shares []float64) []seen {
	rng := rand.New(rand.NewPCG(9, 10))
	list := make([]seen, n)
	for i := range list {
		x := rng.Float64() * 100
		k := 0
		for k < len(shares)-1 && x >= shares[k] {
			x -= shares[k]
			k++
		}
		list[i] = seen{time: int64(i) * 20_000_000_000 / int64(n), function: tenName(k)}
	}
	return list
}

func TestAccuracy(t *testing.T) {
	var a Accuracy
	if err := a.compare(drawn(50_000, nominalShares), simulatedTruth()); err != nil {
		t.Fatal(err)
	}
	if a.Biased || a.RMS > 3*a.ExpectedRMS || a.Missed > 3 || a.Samples != 50_000 {
		t.Errorf("a perfect sampler: %+v", a)
	}
	// sqrt(mean(p(1-p))/n), by hand: sqrt(0.0682/50000).
	if math.Abs(a.ExpectedRMS-0.1168) > 0.001 {
		t.Errorf("expected RMS: got %v", a.ExpectedRMS)
	}
}

// TestAccuracySeesBias: a profiler that gives one point of f0 to f5, and one that
// never sees f9.
func TestAccuracySeesBias(t *testing.T) {
	for name, shares := range map[string][]float64{
		"moved":  {49, 20, 15, 5, 5, 2, 1, 1, 1, 1},
		"unseen": {51, 20, 15, 5, 5, 1, 1, 1, 1, 0},
	} {
		var a Accuracy
		if err := a.compare(drawn(50_000, shares), simulatedTruth()); err != nil {
			t.Fatal(err)
		}
		want := math.Sqrt(2.0 / 10) // one point each of two functions
		if !a.Biased || math.Abs(a.RMS-want) > 0.2 {
			t.Errorf("%s: biased %v, RMS %.3f, want %.3f", name, a.Biased, a.RMS, want)
		}
	}
	var a Accuracy
	if a.compare([]seen{{function: "main"}}, simulatedTruth()) == nil {
		t.Error("no sample of the ten: want an error")
	}
}

// TestLateness reads how late samples of a grid are.
func TestLateness(t *testing.T) {
	var list []seen
	for i := range 1000 {
		late := int64(i%10) * 100 // 0 to 900 ns
		list = append(list, seen{time: 1_000_003 + int64(i)*200_000 + late})
	}
	median, p99 := lateness(list, 200_000)
	if median < 400 || median > 500 || p99 != 900 {
		t.Errorf("got %v and %v, want about 450 and 900", median, p99)
	}
}
