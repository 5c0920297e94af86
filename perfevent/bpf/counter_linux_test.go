// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"math"
	"testing"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// The counter's own value grows with the time for cpu-clock, and never beyond what
// the counter says itself afterwards.
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
	perCPU := map[int32][]Record{}
	if err := c.Poll(new(Record), func(r *Record) error {
		if r.Sample {
			perCPU[r.Event.CPU] = append(perCPU[r.Event.CPU], *r)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	counts, err := counters.Counts()
	if err != nil || len(perCPU) == 0 {
		t.Fatalf("samples of %d CPUs, %v", len(perCPU), err)
	}
	for _, n := range counts {
		list := perCPU[int32(n.CPU)]
		if len(list) < 2 {
			continue
		}
		checkCounter(t, list)
		if last := list[len(list)-1].Counter; last <= 0 || uint64(last) > n.Value {
			t.Errorf("CPU %d: a sample says %d, the counter %d", n.CPU, last, n.Value)
		}
	}
}

// checkCounter holds the counter of a CPU's samples against their times. It counts
// the time since some beginning and is read after the time of its own sample and
// before that of the next, however long the processor stops in between.
func checkCounter(t *testing.T, list []Record) {
	t.Helper()
	earliest, latest := int64(math.MinInt64), int64(math.MaxInt64)
	for i := range list[1:] {
		if list[i+1].Counter <= list[i].Counter {
			t.Errorf("the counter was %d and then %d", list[i].Counter, list[i+1].Counter)
		}
		earliest = max(earliest, list[i].Event.Time-list[i].Counter)
		latest = min(latest, list[i+1].Event.Time-list[i].Counter)
	}
	span := list[len(list)-1].Event.Time - list[0].Event.Time
	// The kernel keeps the two clocks apart: they drift, by percents where a busy
	// host emulates the one by which the other's rate is found, and are a tick or
	// two apart where it trusts neither (sched_clock_local in kernel/sched/clock.c).
	if earliest > latest+span/10+2*int64(10*time.Millisecond) {
		t.Errorf("%d samples in %d ns: counting began after %d and before %d", len(list), span, earliest, latest)
	}
}
