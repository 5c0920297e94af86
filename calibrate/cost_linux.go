// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"time"

	"pathprof/perfevent/bpf"
)

// framesBelow is how many Python frames a unit has beside the depth that was
// asked for: the module, main, the first deep, and unit.
const framesBelow = 4

// costDepths are the depths, as asked of units.py, 0 to 100 frames in all.
var costDepths = [...]int{0, 6, 16, 31, 46, 71, 96}

// costPeriod is the default period: what a sample costs depends on how cold the
// caches are, so on the time since the one before.
const costPeriod = 1_000_000

// costRounds is how often each depth gets a window; the intervals rest on them.
const costRounds = 6

// leastCost gives each window ten samples or so.
const leastCost = costRounds * time.Duration(len(costDepths)) * 10 * time.Millisecond

// measureCost measures the parts of a sample by depth; each round visits every
// depth, so that a slow second falls on all.
func (b *bench) measureCost(ctx context.Context, d time.Duration) (c Cost, err error) {
	c.PeriodNs = costPeriod
	u, err := b.startUnits(ctx, 0)
	if err != nil {
		return c, err
	}
	defer u.close()
	s, _, err := b.record(ctx, Request{PID: u.PID, PeriodNs: costPeriod, Costs: true})
	if err != nil {
		return c, err
	}
	defer stopAfter(s, &err)
	width := b.within(d, leastCost) / time.Duration(costRounds*len(costDepths))
	windows := make([][]bpf.Costs, len(costDepths))
	for range costRounds {
		for i, depth := range costDepths {
			w, err := costWindow(ctx, u, s, depth, width)
			if err != nil {
				return c, err
			}
			if w.Samples > 0 {
				windows[i] = append(windows[i], w)
			}
		}
	}
	for i, depth := range costDepths {
		c.Depths = append(c.Depths, depthCost(depth+framesBelow, windows[i]))
	}
	c.fit(windows)
	return c, nil
}

// costWindow is what the samples of one window cost. The depth changes with the
// next unit, a fraction of a millisecond later.
func costWindow(ctx context.Context, u *units, s *Session, depth int, width time.Duration) (bpf.Costs, error) {
	if err := u.SetDepth(uint64(depth)); err != nil {
		return bpf.Costs{}, err
	}
	if err := sleep(ctx, 5*time.Millisecond); err != nil {
		return bpf.Costs{}, err
	}
	before, err := s.Capture.Costs()
	if err != nil {
		return bpf.Costs{}, err
	}
	if err := sleep(ctx, width); err != nil {
		return bpf.Costs{}, err
	}
	after, err := s.Capture.Costs()
	return after.Sub(before), err
}

// The parts of a cost, as means over its samples in nanoseconds.
func totalNs(c bpf.Costs) float64  { return float64(c.Total) / float64(c.Samples) }
func kernelNs(c bpf.Costs) float64 { return float64(c.Kernel) / float64(c.Samples) }
func nativeNs(c bpf.Costs) float64 { return float64(c.Native) / float64(c.Samples) }
func pythonNs(c bpf.Costs) float64 { return float64(c.Python) / float64(c.Samples) }
func restNs(c bpf.Costs) float64 {
	return totalNs(c) - kernelNs(c) - nativeNs(c) - pythonNs(c)
}

func depthCost(depth int, windows []bpf.Costs) DepthCost {
	out := DepthCost{Depth: depth}
	for _, w := range windows {
		out.Samples += w.Samples
	}
	median := func(part func(bpf.Costs) float64) Estimate {
		var list []float64
		for _, w := range windows {
			list = append(list, part(w))
		}
		return MedianEstimate(list)
	}
	out.Total, out.Kernel, out.Native = median(totalNs), median(kernelNs), median(nativeNs)
	out.Python, out.Rest = median(pythonNs), median(restNs)
	return out
}

// fit draws lines through all windows.
func (c *Cost) fit(windows [][]bpf.Costs) {
	line := func(part func(bpf.Costs) float64) Fit {
		var x, y []float64
		for i, list := range windows {
			for _, w := range list {
				x = append(x, float64(costDepths[i]+framesBelow))
				y = append(y, part(w))
			}
		}
		return FitLine(x, y)
	}
	c.Total, c.Native, c.Python = line(totalNs), line(nativeNs), line(pythonNs)
}
