// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"sync"
	"time"

	"pathprof/perfevent"
)

// jitter changes the period at random times until stop is called, which says what
// went wrong. It has a clock of its own: the polls are in step with the system's.
func (s *session) jitter() (stop func() error) {
	info := s.counters.Info()
	j := perfevent.NewJitter(info.Period, info.AskedHz, rand.NewPCG(rand.Uint64(), rand.Uint64()))
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			period, lasts := j.Next()
			if err := s.counters.SetPeriod(period); err != nil {
				done <- err
				return
			}
			select {
			case <-quit:
				done <- nil
				return
			case <-time.After(lasts):
			}
		}
	}()
	return sync.OnceValue(func() error {
		close(quit)
		return <-done
	})
}
