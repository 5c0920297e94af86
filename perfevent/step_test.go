// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"math"
	"math/rand/v2"
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

func TestJitter(t *testing.T) {
	j := NewJitter(1_000_000, 1000, rand.NewPCG(1, 2))
	var sum, times float64
	const draws = 10000
	for range draws {
		p, lasts := j.Next()
		if p < 875_000 || p > 1_125_000 || lasts < 20*time.Millisecond || lasts >= 40*time.Millisecond {
			t.Fatalf("got %d for %v", p, lasts)
		}
		sum += float64(p)
		times += lasts.Seconds()
	}
	if mean := sum / draws; math.Abs(mean-1_000_000) > 5000 || math.Abs(times/draws-0.03) > 0.001 {
		t.Errorf("means: got %.0f and %.4f s, want 1000000 and 0.03 s", mean, times/draws)
	}
	if p, lasts := NewJitter(10_000, 0, rand.NewPCG(1, 2)).Next(); p < 10_000 || lasts < leastChange {
		t.Errorf("got %d for %v, below what the kernel takes", p, lasts)
	}
	if _, lasts := NewJitter(1e9, 1, rand.NewPCG(1, 2)).Next(); lasts < 20*time.Second {
		t.Errorf("long periods: changed after %v", lasts)
	}
}

// sampler says when samples of a recording are, ns.
type sampler func(rng *rand.Rand, length int64) []int64

// fixed samples with a fixed period from a random phase on, as Counters.Enable does.
func fixed(period int64) sampler {
	return func(rng *rand.Rand, length int64) (at []int64) {
		for t := rng.Int64N(period); t < length; t += period {
			at = append(at, t)
		}
		return at
	}
}

// jittered varies the period; a change begins it anew.
func jittered(mean uint64) sampler {
	return func(rng *rand.Rand, length int64) (at []int64) {
		j := NewJitter(mean, 1e9/float64(mean), rng)
		for change := int64(0); change < length; {
			period, lasts := j.Next()
			end := min(change+lasts.Nanoseconds(), length)
			for t := change + int64(period); t < end; t += int64(period) {
				at = append(at, t)
			}
			change = end
		}
		return at
	}
}

// TestPhase samples programs that spend the first 30 % of each of their rounds in one
// function, for a second and again and again. The random phase takes the bias from the
// mean of recordings; the period that is out of step, and the varied one, also from
// each recording: its error is about what chance gives independent samples.
func TestPhase(t *testing.T) {
	const (
		share      = 0.3
		recordings = 400
		length     = int64(time.Second)
	)
	ms := int64(time.Millisecond)
	for _, tt := range []struct {
		name    string
		sampler sampler
		rounds  []int64
		// least and most of the error's variance, in units of chance's.
		least, most float64
	}{
		{"in step", fixed(ms), []int64{ms}, 100, 2000},
		{"out of step", fixed(int64(OutOfStep(time.Millisecond))), []int64{ms / 2, ms, 2 * ms, 4 * ms, 5 * ms, 10 * ms}, 0, 1.2},
		{"jitter", jittered(uint64(ms)), []int64{ms / 2, ms, 2 * ms, 4 * ms, 5 * ms, 10 * ms, ms * 15 / 16}, 0, 6},
		{"jitter out of step", jittered(uint64(OutOfStep(time.Millisecond))), []int64{ms, int64(OutOfStep(time.Millisecond))}, 0, 6},
	} {
		for _, round := range tt.rounds {
			rng := rand.New(rand.NewPCG(uint64(round), 3))
			var sum, squares, samples float64
			for range recordings {
				at := tt.sampler(rng, length)
				seen, phase := 0.0, rng.Int64N(round)
				for _, ns := range at {
					if (ns+phase)%round < round*3/10 {
						seen++
					}
				}
				p := seen / float64(len(at))
				sum, squares = sum+p, squares+(p-share)*(p-share)
				samples += float64(len(at)) / recordings
			}
			mean, variance := sum/recordings, squares/recordings
			if off := math.Abs(mean - share); off > 4*math.Sqrt(variance/recordings)+0.001 {
				t.Errorf("%s, rounds of %v: mean share %.4f, want %.4f", tt.name, time.Duration(round), mean, share)
			}
			if effect := variance / (share * (1 - share) / samples); effect < tt.least || effect > tt.most {
				t.Errorf("%s, rounds of %v: the error's variance is %.2f of chance's, want %v to %v",
					tt.name, time.Duration(round), effect, tt.least, tt.most)
			}
		}
	}
}

// TestJitterBlindness: changes of the period hide no place of a program's rounds,
// though what had passed of a period stays without a sample. Here rounds begin with
// the recording.
func TestJitterBlindness(t *testing.T) {
	for _, round := range []time.Duration{4 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond} {
		at := jittered(1_000_000)(rand.New(rand.NewPCG(5, 6)), int64(200*time.Second))
		places := make([]float64, 0, len(at))
		for _, ns := range at {
			places = append(places, float64(time.Duration(ns)%round)/float64(round))
		}
		slices.Sort(places)
		worst := 0.0
		for i, x := range places {
			worst = max(worst, math.Abs(x-float64(i)/float64(len(places))))
		}
		if worst > 0.004 {
			t.Errorf("rounds of %v: %.4f of a round is out of proportion", round, worst)
		}
	}
}
