// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// Within every fsync a request of the file's device completes, and lasted no
// longer than fsync. Kernel workers end what they begin, after it was queued.
func TestWork(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	device := int32(unix.Major(st.Dev)<<20 | unix.Minor(st.Dev))
	if _, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d/queue", unix.Major(st.Dev), unix.Minor(st.Dev))); err != nil {
		t.Skip("the temporary folder lies on no whole block device")
	}
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var syncs [][2]int64
	for range 20 {
		begin := perfevent.MonotonicNow()
		if _, err := file.WriteString("some bytes"); err != nil {
			t.Fatal(err)
		}
		if err := file.Sync(); err != nil {
			t.Fatal(err)
		}
		syncs = append(syncs, [2]int64{begin, perfevent.MonotonicNow()})
	}
	var events []sched.Event
	var rec Record
	if err := c.Poll(&rec, func(r *Record) error {
		if r.Event.Kind == sched.KindWork && r.Value == 0 {
			t.Errorf("work without a function: %v", r.Event)
		}
		events = append(events, r.Event)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// A worker of no CPU of its own may change CPUs meanwhile.
	slices.SortStableFunc(events, func(a, b sched.Event) int { return cmp.Compare(a.Time, b.Time) })
	for _, s := range syncs {
		if !completed(events, device, s) {
			t.Errorf("no request of device %d:%d within fsync", device>>20, device&(1<<20-1))
		}
	}
	checkWorkers(t, events)
}

func completed(events []sched.Event, device int32, within [2]int64) bool {
	for i := range events {
		ev := &events[i]
		if ev.Kind == sched.KindIO && ev.Vector == device && ev.Count > 0 &&
			ev.Time-ev.Count >= within[0] && ev.Time <= within[1] {
			return true
		}
	}
	return false
}

// checkWorkers checks that items begin and end in turn in each worker.
func checkWorkers(t *testing.T, events []sched.Event) {
	t.Helper()
	busy := map[int32]uint64{}
	ends := 0
	for i := range events {
		switch ev := &events[i]; ev.Kind {
		case sched.KindWork:
			busy[ev.Task.TID] = ev.Object
		case sched.KindWorkEnd:
			if was, ok := busy[ev.Task.TID]; ok && was != ev.Object {
				t.Errorf("worker %d ends %#x, not %#x", ev.Task.TID, ev.Object, was)
			}
			delete(busy, ev.Task.TID)
			ends++
		}
	}
	if ends == 0 {
		t.Error("no worker did anything")
	}
}
