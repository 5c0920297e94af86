// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"sync"
	"time"
)

// schedule divides the time of a calibration among its parts by weight. Each gets
// its part of what is left, so one that took longer leaves less to those after it,
// and the whole ends in time. Its methods may be called from several goroutines.
type schedule struct {
	now        func() time.Time
	begin, end time.Time

	mu   sync.Mutex
	what string
	left float64 // weight of this part and of those to come
	own  float64 // weight of this part
}

// newSchedule begins now; weights of all parts must sum to weight.
func newSchedule(now func() time.Time, d time.Duration, weight float64) *schedule {
	begin := now()
	return &schedule{now: now, begin: begin, end: begin.Add(d), left: weight}
}

// part begins the next part and returns how long it may take; zero where nothing
// is left.
func (s *schedule) part(what string, weight float64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left -= s.own
	s.what, s.own = what, weight
	rest := s.end.Sub(s.now())
	if s.left <= 0 || rest <= 0 {
		return 0
	}
	return time.Duration(float64(rest) * weight / s.left)
}

// state is what is measured, and the passed part of the time.
func (s *schedule) state() (what string, done float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.what, min(1, float64(s.now().Sub(s.begin))/float64(s.end.Sub(s.begin)))
}

// tickEvery is how often the progress is told.
const tickEvery = 200 * time.Millisecond

// tell has somebody told the state now and then, until stop is called.
func (s *schedule) tell(progress func(what string, done float64)) (stop func()) {
	if progress == nil {
		return func() {}
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(tickEvery)
		defer tick.Stop()
		for {
			progress(s.state())
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() { close(quit); <-done }
}
