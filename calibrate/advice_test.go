// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// constantCost is a machine on which every sample costs the same.
func constantCost(sampleNs float64, periods ...int64) Overhead {
	var o Overhead
	for _, p := range periods {
		ratio := 1 + sampleNs/float64(p)
		hz := 1e9 / float64(p)
		o.Points = append(o.Points, OverheadPoint{
			PeriodNs: p, Slowdown: Estimate{ratio, ratio, ratio}, ByStatistics: ratio, AskedHz: hz, AchievedHz: hz,
		})
	}
	return o
}

// TestThesisAdvice: with the thesis' overheads (its table 6.3, combined) and 50 ms,
// its figure 6.5.
func TestThesisAdvice(t *testing.T) {
	var o Overhead
	for _, p := range []struct {
		period int64
		over   float64
	}{{10_000, 3.348}, {100_000, 0.353}, {1_000_000, 0.030}, {10_000_000, 0.012}} {
		r := 1 + p.over
		hz := 1e9 / float64(p.period)
		o.Points = append(o.Points, OverheadPoint{
			PeriodNs: p.period, Slowdown: Estimate{r, r, r}, ByStatistics: r, AskedHz: hz, AchievedHz: hz,
		})
	}
	a := NewModel(o).Advise(Wish{SegmentNs: 50_000_000, Repetitions: 1, MaxOverhead: 0.10, MaxMargin: 0.05})
	// The figure's lower end is 3.5e5 ns. Its upper end rests on counts of cycles;
	// in time 50 ms hold the samples for 5 points up to 50 ms / 381.
	if a.Possible || a.ShortestNs < 300_000 || a.ShortestNs > 400_000 || a.LongestNs < 125_000 || a.LongestNs > 132_000 {
		t.Errorf("got %+v", a)
	}
	if a.LeastRepetitions != 3 {
		t.Errorf("repetitions: got %d, want 3", a.LeastRepetitions)
	}
}

// TestAdviceKeepsItsWord: whatever the machine and the wish, the ends of the range
// keep both limits, and outside of it one is broken.
func TestAdviceKeepsItsWord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	possible := 0
	for range 500 {
		cost := math.Exp(rng.Float64()*5 + 6) // 0.4 to 60 µs
		m := NewModel(constantCost(cost, 10_000_000, 1_000_000, 100_000, 10_000))
		w := Wish{
			SegmentNs: int64(math.Exp(rng.Float64()*9 + 13)), Repetitions: 1 + rng.IntN(50),
			MaxOverhead: 0.01 + rng.Float64()/3, MaxMargin: 0.005 + rng.Float64()/10,
		}
		a := m.Advise(w)
		if !a.Possible {
			if a.AdvisedNs != 0 {
				t.Fatalf("%+v: advises though nothing is possible", a)
			}
			continue
		}
		possible++
		for _, period := range []int64{a.ShortestNs, a.AdvisedNs, a.LongestNs} {
			over := cost / float64(period)
			n := math.Floor(float64(w.SegmentNs) * float64(w.Repetitions) / float64(period))
			if over > w.MaxOverhead || Margin(n) > w.MaxMargin*1.0001 {
				t.Errorf("cost %.0f ns, %+v: period %d gives overhead %.4f, margin %.4f", cost, a, period, over, Margin(n))
			}
		}
		if over := cost / float64(a.ShortestNs) * 1.02; a.ShortestNs > shortestPeriod && over < w.MaxOverhead {
			t.Errorf("cost %.0f, %+v: the shortest period could be shorter", cost, a)
		}
	}
	if possible < 100 {
		t.Errorf("only %d wishes possible: the test says little", possible)
	}
}

func TestAdviseNothingKnown(t *testing.T) {
	if a := NewModel(Overhead{}).Advise(usual()); a.Possible {
		t.Errorf("got %+v", a)
	}
	// A counter that the kernel holds back gives no more samples when asked for
	// more: the rate counts, not the wish.
	o := constantCost(100, 10_000_000, 1_000_000, 100_000)
	o.Points[2].AchievedHz = 1000
	if a := NewModel(o).Advise(usual()); a.Possible {
		t.Errorf("throttled: got %+v", a)
	}
}

func usual() Wish {
	return Wish{SegmentNs: 50_000_000, Repetitions: 1, MaxOverhead: 0.1, MaxMargin: 0.05}
}

func TestMargin(t *testing.T) {
	// 7140 samples for one point is the thesis' count, by the normal form of the
	// interval; Wilson's needs z² less.
	if got := Margin(7140); math.Abs(got-0.0116) > 0.0001 {
		t.Errorf("7140 samples: got %.5f", got)
	}
	for _, margin := range []float64{0.001, 0.01, 0.05, 0.2} {
		if got := Margin(samplesFor(margin)); math.Abs(got-margin) > 1e-9 {
			t.Errorf("margin %v: got %v", margin, got)
		}
	}
}
