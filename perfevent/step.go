// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"math/rand/v2"
	"time"
)

// Programs and kernels do things every 1, 4, 5 or 10 ms. A sampler with such a
// period always meets them at the same place of theirs: it sees nothing of what
// they do, or nothing else. A little more than the round number drifts through
// them instead; how evenly depends on the number. This one was searched for, from
// 1.004 to 1.034: within 200 samples of any period from 0.1 to 10 ms it leaves no
// more than 2.8 % of any round of 0.1 to 100 ms out of proportion, against 100 %
// for the round number itself. It only adds, since the kernel's clocks take no
// less than 10 µs.
const (
	stepNumerator   = 100_985
	stepDenominator = 100_000
)

// OutOfStep is the period for one that was asked for as a time: some 1 % longer,
// and odd.
func OutOfStep(asked time.Duration) time.Duration {
	return time.Duration(int64(asked)/stepDenominator*stepNumerator+
		int64(asked)%stepDenominator*stepNumerator/stepDenominator) | 1
}

// jitterPart is how far a varied period is from its mean at most, as a part of it.
const jitterPart = 8

// Jittered draws a period around a mean: evenly within an eighth of it to both
// sides, and never below what the kernel's clocks take.
func Jittered(mean uint64) uint64 {
	part := mean / jitterPart
	return max(minClockPeriodNanos, mean-part+rand.Uint64N(2*part+1))
}
