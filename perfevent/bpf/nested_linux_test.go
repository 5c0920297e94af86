// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"pathprof/join/sched"
	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// Samples at the highest rate interrupt the other programs at every place: no
// record is torn, and each CPU's are in order. The events are those of tasks that
// wake each other all the time.
func TestNested(t *testing.T) {
	if os.Getenv("PATHPROF_FULL") == "" {
		t.Skip("keeps all CPUs busy; PATHPROF_FULL=1 runs it")
	}
	perftest.Require(t, perftest.Root, perftest.BPF, perftest.PerfEvents)
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	period, err := perfevent.ParsePeriod("10us", perfevent.CPUClock)
	if err != nil {
		t.Fatal(err)
	}
	counters, err := perfevent.Open(perfevent.Config{Event: perfevent.CPUClock, Period: period})
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
	stop := pingPong(t)
	defer stop()
	seen, inEvents := map[sched.Kind]int{}, 0
	last := map[int32]int64{}
	var rec Record
	deadline := time.Now().Add(time.Minute)
	enough := errors.New("enough")
	for err == nil {
		err = c.Poll(&rec, func(r *Record) error {
			ev := &r.Event
			if ev.Time < last[ev.CPU]-int64(1e6) {
				t.Errorf("event at %d after %d on CPU %d", ev.Time, last[ev.CPU], ev.CPU)
			}
			last[ev.CPU] = ev.Time
			seen[ev.Kind]++
			if r.Sample && r.KernelMode {
				inEvents++
			}
			// Within a poll: at this rate the rings may never be empty.
			if seen[sched.KindSwitch] >= 100 && seen[sched.KindWaking] >= 100 && inEvents >= 100 || time.Now().After(deadline) {
				return enough
			}
			return nil
		})
	}
	if !errors.Is(err, enough) {
		t.Error(err)
	}
	if c.Undecodable() != 0 {
		t.Errorf("%d records are torn", c.Undecodable())
	}
	if seen[sched.KindSwitch] < 100 || seen[sched.KindWaking] < 100 || inEvents < 100 {
		t.Errorf("events %v, samples in the kernel %d: too few to say anything", seen, inEvents)
	}
	t.Logf("%v, %d samples in the kernel", seen, inEvents)
}

// pingPong keeps two threads of this process waking each other.
func pingPong(t *testing.T) (stop func()) {
	t.Helper()
	r1, w1, err1 := os.Pipe()
	r2, w2, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for _, f := range []*os.File{r1, w1, r2, w2} {
		f.Fd() // blocking from here on: a thread that reads is a thread that waits
	}
	var ended atomic.Bool
	pass := func(r, w *os.File, done chan<- struct{}) {
		runtime.LockOSThread()
		defer close(done)
		ball := make([]byte, 1)
		for !ended.Load() {
			if _, err := r.Read(ball); err != nil {
				return
			}
			if _, err := w.Write(ball); err != nil {
				return
			}
		}
	}
	done1, done2 := make(chan struct{}), make(chan struct{})
	go pass(r1, w2, done1)
	go pass(r2, w1, done2)
	if _, err := w1.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	return func() {
		ended.Store(true)
		for _, f := range []*os.File{w1, w2, r1, r2} {
			f.Close()
		}
		<-done1
		<-done2
	}
}
