// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"math"
	"testing"
	"time"
)

// TestSchedule: parts get their shares of the time; after one that took longer,
// the others divide what is left, and the end stays.
func TestSchedule(t *testing.T) {
	now := time.Unix(0, 0)
	s := newSchedule(func() time.Time { return now }, 100*time.Second, 10)
	for i, step := range []struct {
		weight     float64
		got, takes time.Duration
		done       float64 // at its end
	}{
		{2, 20 * time.Second, 20 * time.Second, 0.2},
		{4, 40 * time.Second, 60 * time.Second, 0.8},
		{3, 15 * time.Second, 14 * time.Second, 0.94},
		{1, 6 * time.Second, 9 * time.Second, 1}, // late: never more than all
	} {
		if got := s.part("x", step.weight); got.Round(time.Microsecond) != step.got {
			t.Errorf("part %d: got %v, want %v", i, got, step.got)
		}
		now = now.Add(step.takes)
		if what, done := s.state(); what != "x" || math.Abs(done-step.done) > 1e-9 {
			t.Errorf("part %d: %q, %v done, want %v", i, what, done, step.done)
		}
	}
	if got := s.part("more", 1); got != 0 {
		t.Errorf("after the end: got %v", got)
	}
}

// TestTell: progress is told at once, in order, and not after stop.
func TestTell(t *testing.T) {
	s := newSchedule(time.Now, time.Hour, 1)
	s.part("first", 1)
	told := make(chan string, 1000)
	stop := s.tell(func(what string, done float64) { told <- what })
	if got := <-told; got != "first" {
		t.Errorf("got %q", got)
	}
	stop()
	for len(told) > 0 {
		<-told
	}
	time.Sleep(2 * tickEvery)
	if len(told) > 0 {
		t.Error("told after stop")
	}
	newSchedule(time.Now, time.Hour, 1).tell(nil)()
}
