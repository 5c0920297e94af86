// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"time"
)

// Slowdown compares windows of one running program while something is switched on
// with the windows around them while it is not: two starts of a program differ by
// more than what is to be seen.
type Slowdown struct {
	Log   *UnitLog
	Width time.Duration // of a window

	before    UnitCost
	cpu, wall []float64 // ratios
}

// Pair adds one window between on and off and one after it. on returns when all is
// running, with what switches it off again: that neither start nor end are in the
// window.
func (s *Slowdown) Pair(ctx context.Context, on func() (off func() error, err error)) error {
	if s.before == (UnitCost{}) {
		var err error
		if s.before, err = s.Log.Window(ctx, s.Width); err != nil {
			return err
		}
	}
	off, err := on()
	if err != nil {
		return err
	}
	with, err := s.Log.Window(ctx, s.Width)
	if err := errors.Join(err, off()); err != nil {
		return err
	}
	after, err := s.Log.Window(ctx, s.Width)
	if err != nil {
		return err
	}
	s.cpu = append(s.cpu, 2*with.CPUNs/(s.before.CPUNs+after.CPUNs))
	s.wall = append(s.wall, 2*with.WallNs/(s.before.WallNs+after.WallNs))
	s.before = after
	return nil
}

// CPU is the median ratio of the CPU time of a unit.
func (s *Slowdown) CPU() Estimate { return MedianEstimate(s.cpu) }

// Wall is the median ratio of the time of a unit by the clock.
func (s *Slowdown) Wall() Estimate { return MedianEstimate(s.wall) }
