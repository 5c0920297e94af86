// SPDX-License-Identifier: Apache-2.0

package join

import "math"

// z95 is the 97.5 % point of the standard normal distribution.
const z95 = 1.959963984540054

// Wilson returns the 95 % score interval of a share of which k out of n
// independent samples were seen (E. B. Wilson, 1927), in 0…1.
//
// For large n it is p ± z·sqrt(p(1-p)/n). Unlike that form it keeps its coverage
// where p is near 0 or 1 and never leaves [0, 1], and those are the functions of
// interest: a tenth of a percent here, nearly everything there. Without samples
// nothing is known and the interval is [0, 1].
func Wilson(k, n int64) (low, high float64) {
	if n <= 0 {
		return 0, 1
	}
	k = min(max(k, 0), n)
	return wilson(float64(k)/float64(n), float64(n), z95)
}

// wilson is the score interval of a share p of so many samples, which need not be
// whole numbers, that is z standard errors wide each way.
func wilson(p, size, z float64) (low, high float64) {
	p = min(max(p, 0), 1)
	z2 := z * z
	scale := 1 / (1 + z2/size)
	mid := (p + z2/(2*size)) * scale
	half := z * scale * math.Sqrt(p*(1-p)/size+z2/(4*size*size))
	low, high = max(mid-half, 0), min(mid+half, 1)
	// Exact at the ends, where rounding would leave 1e-19 or 0.9999…
	if p == 0 {
		low = 0
	}
	if p == 1 {
		high = 1
	}
	return low, high
}

// Doubt counts samples whose function nobody knows.
type Doubt struct {
	// Lost samples were taken but never reached the recording.
	Lost int64
	// Unknown samples are among the n, but the top of their stack is unknown.
	Unknown int64
}

// Interval returns the 95 % interval of the share of a function that k of n
// samples show, widened by what is known to be missing.
//
// Chance is one doubt, loss another, and loss is not random: a ring overflows
// when the machine is busy with something particular. So each missing sample may
// have been this function or may not: the low end is Wilson's for k of n+Lost,
// the high end Wilson's for k+Unknown+Lost of n+Lost. Without loss this is
// [Wilson] itself.
func Interval(k, n int64, d Doubt) (low, high float64) {
	lost, unknown := max(d.Lost, 0), max(d.Unknown, 0)
	low, _ = Wilson(k, n+lost)
	_, high = Wilson(k+unknown+lost, n+lost)
	return low, high
}

// The least that makes an interval worth reading; see [TooFew].
const (
	minClassSamples    = 30
	minFunctionSamples = 5
)

// TooFew reports whether the interval of k out of n samples says too little to
// be printed as a finding. Below 30 samples in all, a half is known to no better
// than ±18 points; below 5 of the function's own, its share is not even known
// within a factor of two either way. The interval itself stays right.
func TooFew(k, n int64) bool {
	return n < minClassSamples || k < minFunctionSamples
}
