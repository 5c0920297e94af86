// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
	"pathprof/pyframes"
)

// The holder of a C mutex is a number of the machine's, also if the process, which
// wrote the number, lives in a pid namespace of its own.
func TestMutexInNamespace(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.BPF, perftest.Python("3.11"), perftest.Tool("unshare"))
	shell := perftest.Start(t, "unshare", "--pid", "--fork", "--kill-child", perftest.PythonPath(t, "3.11"), filepath.Join("testdata", "mutex.py"))
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell.PID, shell.PID))
	if err != nil {
		t.Fatal(err)
	}
	pid := int(parseInt(t, strings.TrimSpace(string(text))))
	in, err := pyframes.Find(pid, pyframes.NewCache())
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{OnlyTargets: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	process := Process{Target: true, Python: &Python{RuntimeAddr: in.RuntimeAddr, Offsets: in.Runtime.Offsets}}
	if err := c.SetProcess(int32(pid), process); err != nil {
		t.Fatal(err)
	}
	shell.Say("go")
	checkMutex(t, c, pid, strings.Fields(shell.Line()))
}

// checkMutex looks for the wait that a line of testdata/mutex.py tells of.
func checkMutex(t *testing.T, c *Capture, pid int, line []string) {
	t.Helper()
	outer := outerTIDs(t, pid)
	waiter, holder := outer[line[0]], outer[line[1]]
	begin, end := parseInt(t, line[2]), parseInt(t, line[3])
	var rec Record
	var holders []int32
	if err := c.Poll(&rec, func(r *Record) error {
		ev := &r.Event
		if ev.Kind == sched.KindSwitch && ev.Task.TID == waiter && ev.Lock == sched.LockMutex && ev.Time > begin && ev.Time < end {
			holders = append(holders, ev.Holder.TID)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if waiter == 0 || holder == 0 || !slices.Equal(slices.Compact(holders), []int32{holder}) {
		t.Errorf("thread %d waits for %v, want %d", waiter, holders, holder)
	}
}

// outerTIDs returns a process' threads by their numbers in its namespace.
func outerTIDs(t *testing.T, pid int) map[string]int32 {
	t.Helper()
	list, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	tids := map[string]int32{}
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "NSpid:" {
				n, err := strconv.ParseInt(f[1], 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				tids[f[len(f)-1]] = int32(n)
			}
		}
	}
	return tids
}
