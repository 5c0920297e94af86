// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"slices"
)

// Bounds of the periods that are advised: the kernel's least for clocks, and the
// longest [perfevent.ParsePeriod] takes.
const (
	shortestPeriod = 10_000
	longestPeriod  = 10_000_000_000
)

// Wish is what a person wants of a period.
type Wish struct {
	SegmentNs   int64   `json:"segment_ns"`   // running time of one segment
	Repetitions int     `json:"repetitions"`  // of it that are looked at together
	MaxOverhead float64 `json:"max_overhead"` // slowdown minus one
	MaxMargin   float64 `json:"max_margin"`   // half of the 95 % interval of a share of a half
}

// Advice is the range of periods that grant a wish.
type Advice struct {
	Wish
	// Possible: some period does.
	Possible bool `json:"possible"`
	// ShortestNs keeps the overhead, LongestNs the margin, 0 if no period does;
	// where the former is longer, nothing does both. AdvisedNs lies between them, 0 if not Possible.
	ShortestNs int64 `json:"shortest_ns"`
	LongestNs  int64 `json:"longest_ns"`
	AdvisedNs  int64 `json:"advised_ns"`
	// Overhead and Margin to expect with AdvisedNs.
	Overhead float64 `json:"overhead"`
	Margin   float64 `json:"margin"`
	// LeastRepetitions make it possible; 0 if no number does.
	LeastRepetitions int `json:"least_repetitions"`
}

// Model predicts overhead and rate of any period from the measured ones.
type Model struct{ points []OverheadPoint } // shortest period first

// NewModel builds on measured points; without any it knows nothing.
func NewModel(o Overhead) Model {
	m := Model{points: slices.Clone(o.Points)}
	slices.SortFunc(m.points, func(a, b OverheadPoint) int { return int(a.PeriodNs - b.PeriodNs) })
	return m
}

// SampleNs is the cost of one sample at a period, interrupt included. Between
// measured periods it is interpolated over the logarithm of the period, beyond
// them it is that of the nearest. It is never below zero.
func (m Model) SampleNs(periodNs float64) float64 {
	return max(0, m.at(periodNs, func(p *OverheadPoint) float64 { return p.Best() * float64(p.PeriodNs) }))
}

// Overhead is the slowdown, minus one, at a period.
func (m Model) Overhead(periodNs float64) float64 { return m.SampleNs(periodNs) / periodNs }

// Reached is the achieved part of the asked rate at a period, at most 1. Where a
// measured period was not reached, no period gives more samples than the best did.
func (m Model) Reached(periodNs float64) float64 {
	reached := func(p *OverheadPoint) float64 {
		return p.AchievedHz * (1 - float64(p.Lost)/math.Max(1, float64(p.Samples+p.Lost))) / p.AskedHz
	}
	limit, best := false, 0.0
	for i := range m.points {
		p := &m.points[i]
		limit = limit || reached(p) < 0.9
		best = math.Max(best, reached(p)*p.AskedHz)
	}
	part := math.Min(1, m.at(periodNs, reached))
	if limit {
		part = math.Min(part, best*periodNs/1e9)
	}
	return part
}

func (m Model) at(periodNs float64, value func(*OverheadPoint) float64) float64 {
	if len(m.points) == 0 {
		return math.NaN()
	}
	i, _ := slices.BinarySearchFunc(m.points, periodNs, func(p OverheadPoint, want float64) int {
		return int(math.Copysign(1, float64(p.PeriodNs)-want))
	})
	switch {
	case i == 0:
		return value(&m.points[0])
	case i == len(m.points):
		return value(&m.points[i-1])
	}
	a, b := &m.points[i-1], &m.points[i]
	part := math.Log(periodNs/float64(a.PeriodNs)) / math.Log(float64(b.PeriodNs)/float64(a.PeriodNs))
	return value(a) + part*(value(b)-value(a))
}

// Margin is half of Wilson's 95 % interval of a share of a half seen in n
// samples: no other share is known worse.
func Margin(n float64) float64 { return z95 / (2 * math.Sqrt(n+z95*z95)) }

// samplesFor is the least number of samples for a margin.
func samplesFor(margin float64) float64 {
	return math.Max(1, z95*z95/(4*margin*margin)-z95*z95)
}

// Advise finds the periods that grant a wish.
func (m Model) Advise(w Wish) Advice {
	a := Advice{Wish: w}
	if s := m.shortest(w.MaxOverhead); !math.IsInf(s, 0) {
		a.ShortestNs = int64(math.Ceil(s))
	}
	a.LongestNs = int64(math.Floor(m.longest(w, w.Repetitions)))
	if need := samplesFor(w.MaxMargin); a.ShortestNs > 0 {
		// One sample more than needed may fall outside of the segment.
		per := float64(w.SegmentNs) * m.Reached(float64(a.ShortestNs)) / float64(a.ShortestNs)
		if least := (need + 1) / per; least < 1e6 {
			a.LeastRepetitions = int(math.Ceil(least))
		}
	}
	if a.ShortestNs <= 0 || a.ShortestNs > a.LongestNs {
		return a
	}
	a.Possible = true
	// In the middle, so that neither limit is near.
	a.AdvisedNs = int64(math.Sqrt(float64(a.ShortestNs) * float64(a.LongestNs)))
	a.Overhead = m.Overhead(float64(a.AdvisedNs))
	a.Margin = Margin(m.samples(w, float64(a.AdvisedNs)))
	return a
}

// samples is the number to expect in all repetitions.
func (m Model) samples(w Wish, periodNs float64) float64 {
	return float64(w.SegmentNs) * float64(w.Repetitions) * m.Reached(periodNs) / periodNs
}

// shortest is the shortest period from which on the overhead stays within a limit;
// it goes down from the longest, so a period at which the kernel's throttling
// makes sampling cheap again is not taken for a good one.
func (m Model) shortest(limit float64) float64 {
	const step = 1.01
	best := 0.0
	for p := float64(longestPeriod); p >= shortestPeriod/step; p /= step {
		q := math.Max(p, shortestPeriod)
		if over := m.Overhead(q); math.IsNaN(over) || over > limit {
			break
		}
		best = q
	}
	if best == 0 {
		return math.Inf(1)
	}
	return best
}

// longest is the longest period that still gives the samples for the margin.
func (m Model) longest(w Wish, repetitions int) float64 {
	w.Repetitions = repetitions
	need := samplesFor(w.MaxMargin) + 1 // where the phase takes one away
	const step = 1.01
	for p := float64(longestPeriod); p >= shortestPeriod; p /= step {
		if m.samples(w, p) >= need {
			return p
		}
	}
	return 0
}
