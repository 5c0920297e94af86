// SPDX-License-Identifier: Apache-2.0

package join

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Expected values: the roots of (k/n - p)² = z²·p(1-p)/n, solved as a quadratic in
// 40 decimal digits; where k is 0 that is z²/(n+z²).
func TestWilson(t *testing.T) {
	tests := []struct {
		name      string
		k, n      int64
		low, high float64
	}{
		{"nothing known", 0, 0, 0, 1},
		{"none of ten", 0, 10, 0, 0.2775328},
		{"all of ten", 10, 10, 0.7224672, 1},
		{"half of ten", 5, 10, 0.2365931, 0.7634069},
		{"one of a hundred", 1, 100, 0.0017674, 0.0544862},
		{"more than all", 11, 10, 0.7224672, 1},
		{"less than none", -1, 10, 0, 0.2775328},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			low, high := Wilson(tt.k, tt.n)
			if math.Abs(low-tt.low) > 1e-6 || math.Abs(high-tt.high) > 1e-6 {
				t.Errorf("Wilson(%d, %d) = %.7f, %.7f, want %.7f, %.7f", tt.k, tt.n, low, high, tt.low, tt.high)
			}
		})
	}
}

// The thesis' form and the large-n form must be the same thing.
func TestWilsonLargeN(t *testing.T) {
	for _, p := range []float64{0.5, 0.2, 0.05, 0.01} {
		const n = 10_000_000
		low, high := Wilson(int64(p*n), n)
		half := z95 * math.Sqrt(p*(1-p)/n)
		if math.Abs(low-(p-half)) > half/100 || math.Abs(high-(p+half)) > half/100 {
			t.Errorf("p=%v: Wilson [%v, %v], want about [%v, %v]", p, low, high, p-half, p+half)
		}
	}
	// 9,604 samples give a half to ±1 point.
	if low, high := Wilson(4802, 9604); math.Abs(high-low-0.02) > 1e-5 {
		t.Errorf("width of a half of 9604: %v, want 0.02", high-low)
	}
}

// TestWilsonCoverage draws binomial samples of known shares: the truth has to
// lie inside 93 to 97 % of the intervals. The generator's seed is fixed.
func TestWilsonCoverage(t *testing.T) {
	runs := often(1000, 10_000)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range []float64{0.5, 0.05, 0.01} {
		for _, n := range []int64{1000, 5000} {
			inside := 0
			for range runs {
				if low, high := Wilson(binomial(rng, n, p), n); low <= p && p <= high {
					inside++
				}
			}
			if c := float64(inside) / float64(runs); c < leastRate(0.93, runs) || c > mostRate(0.97, runs) {
				t.Errorf("p=%v n=%d: coverage %.3f, want 0.93 to 0.97", p, n, c)
			}
		}
	}
}

// binomial draws by waiting times between successes, O(n·p).
func binomial(rng *rand.Rand, n int64, p float64) int64 {
	var k int64
	at := int64(0)
	for {
		at += 1 + int64(math.Log(1-rng.Float64())/math.Log1p(-p))
		if at > n {
			return k
		}
		k++
	}
}

// Whatever the lost samples were, the interval holds the one the full data
// would have given.
func TestIntervalHoldsEveryLoss(t *testing.T) {
	const n, lost, unknown = 200, 17, 9
	for _, k := range []int64{0, 1, 50, 150, n - unknown} {
		low, high := Interval(k, n, Doubt{Lost: lost, Unknown: unknown})
		for extra := int64(0); extra <= lost+unknown; extra++ {
			l, h := Wilson(k+extra, n+lost)
			if l < low || h > high {
				t.Errorf("k=%d extra=%d: [%v, %v] is not inside [%v, %v]", k, extra, l, h, low, high)
			}
		}
	}
	low, high := Interval(3, 10, Doubt{})
	if l, h := Wilson(3, 10); l != low || h != high {
		t.Errorf("Interval without doubt = %v, %v, want Wilson's %v, %v", low, high, l, h)
	}
	if low, high := Interval(3, 10, Doubt{Lost: -4, Unknown: -1}); low > 0.3 || high < 0.3 {
		t.Errorf("Interval with negative doubt = %v, %v", low, high)
	}
}

func TestTooFew(t *testing.T) {
	tests := []struct {
		k, n int64
		want bool
	}{{15, 29, true}, {15, 30, false}, {4, 1000, true}, {5, 1000, false}, {0, 0, true}}
	for _, tt := range tests {
		if got := TooFew(tt.k, tt.n); got != tt.want {
			t.Errorf("TooFew(%d, %d) = %v, want %v", tt.k, tt.n, got, tt.want)
		}
	}
}
