// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// The bytes that wake a receiver left as the program says: by whom, when and how
// many. The wake-up comes right after their arrival, on the same CPU. On a busy
// machine the receiver may not be asleep yet: then nobody wakes it.
func TestPackets(t *testing.T) {
	perftest.Require(t, perftest.BPF, perftest.Python("3.11"))
	child, process := startPython(t, "3.11", "echo.py")
	c, err := Open(Config{BufferBytes: 64 << 20})
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
	slices.SortStableFunc(events, func(a, b sched.Event) int { return cmp.Compare(a.Time, b.Time) })
	wrong, asleep := 0, 0
	for _, line := range lines {
		p := followPacket(t, line, events)
		if p.asleep {
			asleep++
		}
		// The server's last message may already be followed by its FIN, which counts.
		if p.sent < p.size || p.sent > p.size+1 || p.asleep && !p.linked {
			wrong++
			t.Logf("%s: %d bytes sent, asleep %v, woken by their arrival %v", line, p.sent, p.asleep, p.linked)
		}
	}
	if len(lines) != 120 || wrong > 1 || asleep < 12 { // 99 %
		t.Errorf("%d of %d waits without their sender; asleep in %d", wrong, len(lines), asleep)
	}
}

// packet is what became of one line of testdata/echo.py.
type packet struct {
	size, sent int64
	// asleep: the receiver was when the first byte left. linked: it was woken by
	// the arrival of one.
	asleep, linked bool
}

// followPacket follows one line of testdata/echo.py.
func followPacket(t *testing.T, line string, events []sched.Event) (p packet) {
	t.Helper()
	f := strings.Fields(line)
	sender, receiver := int32(parseInt(t, f[0])), int32(parseInt(t, f[1]))
	begin, end := parseInt(t, f[2]), parseInt(t, f[3])
	p.size = parseInt(t, f[4])
	var conn uint64
	var seq uint32
	asleep := false
	arrived := map[int32]sched.Event{} // by CPU, the latest
	for i := range events {
		ev := &events[i]
		if ev.Time > end {
			break
		}
		switch {
		case ev.Kind == sched.KindSwitch && ev.Task.TID == receiver:
			asleep = sched.Blocked(ev.State, ev.Preempt)
		case ev.Kind == sched.KindSwitch && ev.Other.TID == receiver:
			asleep = false
		case ev.Kind == sched.KindWaking && ev.Task.TID == receiver:
			r := arrived[ev.CPU]
			p.linked = p.linked || conn != 0 && ev.Ctx == sched.ContextSoftirq &&
				r.Conn == conn && int64(r.Seq-seq) < p.size && r.Ctx == sched.ContextSoftirq
			asleep = false
		case ev.Time < begin:
		case ev.Kind == sched.KindSend && conn == 0 && ev.Ctx == sched.ContextTask && ev.Other.TID == sender:
			conn, seq, p.sent, p.asleep = ev.Conn, ev.Seq, ev.Count, asleep
		case ev.Kind == sched.KindSend && conn != 0 && ev.Conn == conn: // the rest may leave later
			p.sent = max(p.sent, int64(ev.Seq-seq)+ev.Count)
		case ev.Kind == sched.KindReceive:
			arrived[ev.CPU] = *ev
		}
	}
	return p
}
