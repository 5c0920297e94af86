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

// A change begins the period anew, so what had passed of the last one, half of it on
// average, stays without a sample: so there are many periods between two changes.
// Less than leastChange costs more than it brings.
const (
	periodsPerChange = 20
	leastChange      = 20 * time.Millisecond
)

// Jitter draws periods around a mean, and the times between two changes of them.
// These vary, too: changes in step with a program would hide the same place of its
// rounds each time.
type Jitter struct {
	mean  uint64
	every time.Duration
	rng   *rand.Rand
}

// NewJitter varies a mean, in the event's unit, of which hz pass in a second; 0 if
// that is not known. The draws come from src.
func NewJitter(mean uint64, hz float64, src rand.Source) *Jitter {
	j := &Jitter{mean: mean, every: leastChange, rng: rand.New(src)}
	if hz > 0 {
		j.every = max(j.every, time.Duration(periodsPerChange*float64(time.Second)/hz))
	}
	return j
}

// Next draws a period, evenly within an eighth of the mean to both sides and never
// below what the kernel's clocks take, and how long it is to last.
func (j *Jitter) Next() (period uint64, lasts time.Duration) {
	part := j.mean / jitterPart
	period = max(minClockPeriodNanos, j.mean-part+j.rng.Uint64N(2*part+1))
	return period, j.every + time.Duration(j.rng.Int64N(int64(j.every)))
}
