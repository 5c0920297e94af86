// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
	"pathprof/pyframes"
)

// startPython starts a program that waits for a line before it does anything.
func startPython(t *testing.T, version, name string) (*perftest.Child, Process) {
	t.Helper()
	child := perftest.Start(t, perftest.PythonPath(t, version), filepath.Join("testdata", name))
	in, err := pyframes.Find(child.PID, pyframes.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	return child, Process{Target: true, Python: &Python{RuntimeAddr: in.RuntimeAddr, Offsets: in.Runtime.Offsets}}
}

// captureRun lets the program run and returns its lines and the events.
func captureRun(t *testing.T, c *Capture, child *perftest.Child) (lines []string, events []sched.Event) {
	t.Helper()
	var rec Record
	poll := func() {
		if err := c.Poll(&rec, func(r *Record) error {
			if !r.Sample {
				events = append(events, r.Event)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan []string, 1)
	go func() { done <- child.Lines() }()
	child.Say("go")
	for lines == nil {
		select {
		case lines = <-done:
		case <-time.After(50 * time.Millisecond):
		}
		poll()
	}
	losses, err := c.Losses()
	if err != nil {
		t.Fatal(err)
	}
	for cpu, l := range losses {
		if l.Events > 0 {
			t.Errorf("cpu %d lost %d events", cpu, l.Events)
		}
	}
	return lines, events
}

// Each wait says the call, the object, the timeout, the kind of lock and its
// holder, as the program itself tells them, which also says when it waited.
func TestWaits(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	versions := []string{"3.8", "3.11", "3.14"}
	if os.Getenv("PATHPROF_FULL") == "1" {
		versions = []string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"}
	}
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			perftest.Require(t, perftest.Python(version))
			// On a busy machine what is waited for may be there before the wait
			// begins: only what is wrong every time is an error.
			wrong := failedWaits(t, version)
			for range 4 {
				if len(wrong) == 0 {
					break
				}
				again := failedWaits(t, version)
				maps.DeleteFunc(wrong, func(i int, _ string) bool { return again[i] == "" })
			}
			for _, text := range wrong {
				t.Error(text)
			}
		})
	}
}

// failedWaits runs the program once and returns what is wrong, by the number of
// its line.
func failedWaits(t *testing.T, version string) map[int]string {
	t.Helper()
	child, process := startPython(t, version, "waits.py")
	c, err := Open(Config{OnlyTargets: true})
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
	if len(lines) < 13 {
		t.Fatalf("%d lines: %s", len(lines), child.Stderr())
	}
	wrong := map[int]string{}
	for i, line := range lines {
		if text := checkWait(t, line, events); text != "" {
			wrong[i] = text
		}
	}
	return wrong
}

// checkWait says what is wrong with one wait: tid begin end call object timeout lock
// holder, with - for what the program does not say, and a timeout in ms.
func checkWait(t *testing.T, line string, events []sched.Event) string {
	t.Helper()
	f := strings.Fields(line)
	if len(f) != 8 {
		t.Fatalf("got line %q", line)
	}
	begin, end := parseInt(t, f[1]), parseInt(t, f[2])
	var seen []string
	for i := range events {
		ev := &events[i]
		if ev.Kind != sched.KindSwitch || ev.Time < begin || ev.Time > end ||
			strconv.Itoa(int(ev.Task.TID)) != f[0] || !sched.Blocked(ev.State, ev.Preempt) {
			continue
		}
		if problem := compareWait(t, f[3:], ev); problem != "" {
			seen = append(seen, problem)
			continue
		}
		return ""
	}
	return fmt.Sprintf("no such wait: %s\n%s", line, strings.Join(seen, "\n"))
}

// compareWait says how an event differs from what the program told, "" for not.
func compareWait(t *testing.T, f []string, ev *sched.Event) string {
	t.Helper()
	calls := strings.Split(f[0], "|")
	ok := false
	for _, call := range calls {
		ok = ok || ev.Call.String() == call
	}
	if f[1] != "-" {
		ok = ok && ev.Object == uint64(parseInt(t, f[1]))
	}
	if f[2] != "-" {
		// Relative to when the thread went to sleep, shortly after it was asked to.
		want := parseInt(t, f[2]) * int64(time.Millisecond)
		ok = ok && ev.Timeout > want/2 && ev.Timeout <= want+int64(time.Millisecond)
	}
	if f[3] != "-" {
		ok = ok && ev.Lock.String() == f[3]
	}
	if f[4] != "-" {
		ok = ok && strconv.Itoa(int(ev.Holder.TID)) == f[4]
	}
	if ok {
		return ""
	}
	return fmt.Sprintf("not %v", ev)
}

func parseInt(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
