// SPDX-License-Identifier: Apache-2.0

package join

import "math"

// evidence is what the shares of a class, or of alike classes together, rest on:
// its stacks, in clusters.
type evidence struct {
	stacks map[*Stack]Values
	units  []unit
	hits   []hit
	blocks []block
	in     []int32 // by unit: its block
	draws  *resampling
	// What the clusters hold: samples, and the time these stand for.
	samples, times ratio
}

// unit is a segment.
type unit struct {
	wait  int // of the target's, -1 if none
	ns, n int64
}

// hit is a stack with samples in a unit.
type hit struct {
	unit  int32
	stack *Stack
	n     int64
}

// block is a cluster: units next to each other in time.
type block struct {
	ns, n  int64
	weight float64 // ns that a sample stands for
}

// minWaits is how many waits there have to be for a wait to be a cluster.
const minWaits = 10

// minBlockSamples for a block to tell what a sample in it stands for.
const minBlockSamples = 10

// gather collects what lies on the classes of each group. A class belongs to
// one group at most.
func (t *ThreadPath) gather(groups [][]int) []*evidence {
	of := make([]*evidence, len(t.Classes))
	out := make([]*evidence, len(groups))
	for i, group := range groups {
		out[i] = &evidence{stacks: make(map[*Stack]Values)}
		for _, class := range group {
			of[class] = out[i]
		}
	}
	for i := 0; i < len(t.Entries); {
		segment := t.Entries[i].Segment
		from := i
		for i < len(t.Entries) && t.Entries[i].Segment == segment {
			i++
		}
		if e := of[t.ClassOf[segment]]; e != nil {
			e.add(t.Path.Segments[segment].Wait, onCPU(t.Path.Segments[segment].State), t.Entries[from:i])
		}
	}
	for _, e := range out {
		e.cut()
	}
	return out
}

// add counts the entries of a segment.
func (e *evidence) add(wait int, sampled bool, entries []Entry) {
	u := unit{wait: wait}
	for _, entry := range entries {
		u.ns += entry.Values.PathNs
		u.n += entry.Values.Samples
		if sampled && entry.Values.Samples == 0 {
			continue // [unsampled] is no function
		}
		v := e.stacks[entry.Stack]
		v.Samples += entry.Values.Samples
		v.PathNs += entry.Values.PathNs
		e.stacks[entry.Stack] = v
		if sampled {
			e.hits = append(e.hits, hit{int32(len(e.units)), entry.Stack, entry.Values.Samples})
		}
	}
	e.units = append(e.units, u)
}

// cut joins units to clusters. The segments within one wait of the target belong
// together, as do those of a request, so a wait is a cluster if there are enough
// of them; else a segment is. Neighbours are joined until each cluster has a
// sample and there are no more than maxClusters.
func (e *evidence) cut() {
	if len(e.hits) == 0 {
		return
	}
	waits := 0
	for i := range e.units {
		if e.starts(i) {
			waits++
		}
	}
	byWait := waits >= minWaits
	clusters := len(e.units)
	if byWait {
		clusters = waits
	}
	quota := (clusters + maxClusters - 1) / maxClusters
	e.in = make([]int32, len(e.units))
	held := 0
	for i := range e.units {
		u := &e.units[i]
		if !byWait || e.starts(i) {
			if last := len(e.blocks) - 1; last < 0 || held >= quota && e.blocks[last].n > 0 {
				e.blocks, held = append(e.blocks, block{}), 0
			}
			held++
		}
		b := &e.blocks[len(e.blocks)-1]
		b.ns += u.ns
		b.n += u.n
		e.in[i] = int32(len(e.blocks) - 1)
	}
	if last := len(e.blocks) - 1; last > 0 && e.blocks[last].n == 0 {
		e.blocks[last-1].ns += e.blocks[last].ns
		e.blocks = e.blocks[:last]
		for i := len(e.in) - 1; e.in[i] == int32(last); i-- {
			e.in[i]--
		}
	}
	e.weigh()
}

// starts tells whether a unit is the first of its wait of the target. Outside of
// waits each is the first.
func (e *evidence) starts(i int) bool {
	return i == 0 || e.units[i].wait < 0 || e.units[i].wait != e.units[i-1].wait
}

// weigh says what a sample stands for: its part of its block's time. Where a
// block has so few that chance decides, it is the part of all such blocks' time.
// Segments without a sample are in the time, so that short ones do not count less.
func (e *evidence) weigh() {
	var rest block
	for _, b := range e.blocks {
		if b.n < minBlockSamples {
			rest.ns += b.ns
			rest.n += b.n
		}
	}
	m := len(e.blocks)
	e.samples, e.times = ratio{whole: make([]float64, m)}, ratio{whole: make([]float64, m)}
	var sum, squares float64
	for i := range e.blocks {
		b := &e.blocks[i]
		b.weight = float64(b.ns) / float64(b.n)
		if b.n < minBlockSamples {
			b.weight = float64(rest.ns) / float64(rest.n)
		}
		n := float64(b.n)
		e.samples.size += n
		e.samples.whole[i], e.times.whole[i] = n, n*b.weight
		sum += n * b.weight
		squares += n * b.weight * b.weight
	}
	e.times.size = sum * sum / squares // Kish's effective size of a weighted sample
	if m >= minResampled {
		e.draws = newResampling(e.blocks)
		e.samples.drawn, e.times.drawn = e.draws.sums(e.samples.whole), e.draws.sums(e.times.whole)
	}
}

// estimate says how well the samples of a function, by cluster, tell its share
// and its time. Resampling is for what is worth a statement.
func (e *evidence) estimate(samples []float64, doubt Doubt, resample bool) Estimate {
	bySamples, byTime := e.samples, e.times
	bySamples.part, byTime.part = samples, make([]float64, len(samples))
	for i, b := range e.blocks {
		byTime.part[i] = samples[i] * b.weight
	}
	s, t := bySamples.spread(), byTime.spread()
	var k, n, ns int64
	for i, b := range e.blocks {
		k += int64(samples[i])
		n += b.n
		ns += b.ns
	}
	out := Estimate{Samples: k, Share: s.share}
	out.TooFew = TooFew(k, n) || float64(k)/max(s.effect, 1) < minFunctionSamples
	var draws *resampling
	if resample && !out.TooFew {
		draws = e.draws
	}
	low, high, method := bySamples.interval(s, draws)
	out.Method = method
	// Loss widens both by as many points.
	wl, wh := Wilson(k, n)
	il, ih := Interval(k, n, doubt)
	wide := func(low, high float64) (float64, float64) {
		return max(low-(wl-il), 0), min(high+(ih-wh), 1)
	}
	out.Low, out.High = wide(low, high)
	low, high, _ = byTime.interval(t, draws)
	low, high = wide(low, high)
	all := float64(ns)
	out.Ns = int64(math.Round(t.share * all))
	out.NsLow = min(int64(math.Round(low*all)), out.Ns)
	out.NsHigh = max(int64(math.Round(high*all)), out.Ns)
	return out
}
