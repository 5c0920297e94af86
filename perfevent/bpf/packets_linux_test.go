// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"strings"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// The bytes that wake a receiver left as the program says: by whom, when and how
// many. The wake-up comes right after their arrival, on the same CPU.
func TestPackets(t *testing.T) {
	perftest.Require(t, perftest.BPF, perftest.Python("3.11"))
	child, process := startPython(t, "3.11", "echo.py")
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if err := c.SetProcess(int32(child.PID), process); err != nil {
		t.Fatal(err)
	}
	lines, events := captureRun(t, c, child)
	wrong := 0
	for _, line := range lines {
		if why := checkPacket(t, line, events); why != "" {
			wrong++
			t.Logf("%s: %s", line, why)
		}
	}
	if len(lines) != 120 || wrong > 1 { // 99 %
		t.Errorf("%d of %d waits without their sender", wrong, len(lines))
	}
}

// checkPacket follows one line of testdata/echo.py.
func checkPacket(t *testing.T, line string, events []sched.Event) string {
	t.Helper()
	f := strings.Fields(line)
	sender, receiver := int32(parseInt(t, f[0])), int32(parseInt(t, f[1]))
	begin, end, size := parseInt(t, f[2]), parseInt(t, f[3]), parseInt(t, f[4])
	var sent int64
	var conn uint64
	var seq uint32
	arrived := map[int32]sched.Event{} // by CPU, the latest
	linked := false
	for _, ev := range events {
		if ev.Time < begin || ev.Time > end {
			continue
		}
		switch {
		case ev.Kind == sched.KindSend && ev.Ctx == sched.ContextTask && ev.Other.TID == sender:
			if sent == 0 {
				conn, seq = ev.Conn, ev.Seq
			}
			if ev.Conn == conn {
				sent = max(sent, int64(ev.Seq-seq)+ev.Count)
			}
		case ev.Kind == sched.KindReceive:
			arrived[ev.CPU] = ev
		case ev.Kind == sched.KindWaking && ev.Task.TID == receiver && ev.Ctx == sched.ContextSoftirq:
			r := arrived[ev.CPU]
			linked = linked || r.Conn == conn && int64(r.Seq-seq) < size && r.Ctx == sched.ContextSoftirq
		}
	}
	switch {
	case sent != size:
		return "sent another number of bytes"
	case !linked:
		return "not woken by their arrival"
	}
	return ""
}
