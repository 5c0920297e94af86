// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// The counter's own value grows with the time for cpu-clock, from sample to
// sample of a CPU, and never beyond what the counter says itself afterwards.
func TestCounterInSample(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.BPF, perftest.PerfEvents)
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	counters, err := perfevent.Open(perfevent.Config{
		Event: perfevent.CPUClock, Period: perfevent.Period{Value: uint64(2 * time.Millisecond), Time: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer counters.Close()
	for _, fd := range counters.FDs() {
		if err := c.AttachCounter(fd.FD); err != nil {
			t.Fatal(err)
		}
	}
	if err := counters.Enable(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	if err := counters.Disable(); err != nil {
		t.Fatal(err)
	}
	last, samples, off := map[int32]Record{}, 0, 0
	if err := c.Poll(new(Record), func(r *Record) error {
		if !r.Sample {
			return nil
		}
		if before, ok := last[r.Event.CPU]; ok {
			passed, counted := r.Event.Time-before.Event.Time, r.Counter-before.Counter
			if diff := counted - passed; diff < -passed/100-100_000 || diff > passed/100+100_000 {
				off++ // a virtual CPU may stop between the two readings
			}
		}
		last[r.Event.CPU] = *r
		samples++
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	counts, err := counters.Counts()
	if err != nil || samples < 5 || 2*off > samples {
		t.Fatalf("%d samples, of which %d counted something else than the time, %v", samples, off, err)
	}
	for _, n := range counts {
		if r, ok := last[int32(n.CPU)]; ok && (r.Counter <= 0 || uint64(r.Counter) > n.Value) {
			t.Errorf("CPU %d: a sample says %d, the counter %d", n.CPU, r.Counter, n.Value)
		}
	}
}
