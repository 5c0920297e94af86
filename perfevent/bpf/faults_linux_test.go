// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// Who waits for a page of a mapped file is in a page fault, in that page.
func TestPageFaults(t *testing.T) {
	perftest.Require(t, perftest.BPF, perftest.Python("3.11"))
	dir := t.TempDir()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(fmt.Sprintf("/sys/dev/block/%d:%d/queue", unix.Major(st.Dev), unix.Minor(st.Dev))); err != nil {
		t.Skip("the temporary folder lies on no whole block device")
	}
	child := perftest.Start(t, perftest.PythonPath(t, "3.11"), filepath.Join("testdata", "faults.py"), filepath.Join(dir, "file"))
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(strings.Join(c.Missing(), "\n"), "page faults") {
		t.Skip("this kernel does not tell of page faults")
	}
	lines, events := captureRun(t, c, child)
	if len(lines) == 0 {
		t.Skip("the file stays in memory")
	}
	named, waits := 0, 0
	for _, line := range lines {
		f := strings.Fields(line)
		tid, begin, end, address := int32(parseInt(t, f[0])), parseInt(t, f[1]), parseInt(t, f[2]), uint64(parseInt(t, f[3]))
		for i := range events {
			ev := &events[i]
			if ev.Kind != sched.KindSwitch || ev.Task.TID != tid || ev.Time < begin || ev.Time > end ||
				!sched.Blocked(ev.State, ev.Preempt) || ev.Call != 0 && ev.Call != sched.CallFault {
				continue
			}
			waits++
			if ev.Call == sched.CallFault && ev.Object == address {
				named++
			} else if ev.Call != sched.CallFault || ev.Object != 0 {
				t.Errorf("not a fault at %#x: %v", address, ev)
			}
		}
	}
	// The disk may be faster than the way to sleep, and a task that loses its CPU on
	// that way has no page.
	if waits == 0 || named < waits/2 {
		t.Errorf("%d waits, %d of them in the page, of %d reads", waits, named, len(lines))
	}
}
