// SPDX-License-Identifier: Apache-2.0

package pyframes

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pathprof/perfevent/perftest"
	"pathprof/unwind/proc"
)

// waitNames waits until a thread has frames of these names, innermost first.
func waitNames(t *testing.T, p *Process, tid int, want ...string) {
	t.Helper()
	var got []string
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		frames, err := p.Frames(tid, 0, nil)
		got = nil
		for _, f := range frames {
			c, err := p.ReadCode(f.Code)
			if err != nil {
				got = append(got, err.Error())
				continue
			}
			got = append(got, c.Name)
		}
		if slices.Equal(got, want) {
			return
		}
		if err != nil {
			got = append(got, err.Error())
		}
	}
	t.Errorf("got %q, want %q", got, want)
}

// A process in a pid namespace of its own knows its threads by other numbers
// than we do.
func TestFramesInPIDNamespace(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.Tool("unshare"))
	const source = `
import threading, time
def other():
    time.sleep(10000)
def first():
    print("ready", flush=True)
    time.sleep(10000)
threading.Thread(target=other, daemon=True).start()
first()
`
	script := t.TempDir() + "/sleeps.py"
	if err := os.WriteFile(script, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	supported(t, func(t *testing.T, python perftest.Interpreter) {
		shell := perftest.Start(t, "unshare", "--pid", "--fork", "--kill-child", python.Path, script)
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", shell.PID, shell.PID))
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		p := openProcess(t, pid)
		waitNames(t, p, pid, "first", "<module>")
		tids, err := proc.Tasks(pid)
		if err != nil || len(tids) != 2 {
			t.Fatalf("threads %v, %v, want 2", tids, err)
		}
		waitNames(t, p, tids[1], "other", "Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap")
	})
}

// A thread that made a sub-interpreter has two thread states, and its frames are
// those of the one it runs.
func TestFramesOfSubInterpreters(t *testing.T) {
	const source = `
import threading, time
try:
    import _interpreters as sub
    run = sub.exec
except ImportError:
    import _xxsubinterpreters as sub
    run = sub.run_string
tids = []
def idle():
    sub.create()
    tids.append(threading.get_native_id())
    time.sleep(10000)
def busy():
    other = sub.create()
    tids.append(threading.get_native_id())
    run(other, "import time\ndef inside():\n    time.sleep(10000)\ninside()\n")
def start(work):
    threading.Thread(target=work, daemon=True).start()
    while not tids:
        time.sleep(0.01)
    return tids.pop()
print("ready", start(idle), start(busy), sep="\n", flush=True)
time.sleep(10000)
`
	supported(t, func(t *testing.T, python perftest.Interpreter) {
		child := perftest.StartSource(t, python.Path, "sub", source)
		var idle, busy int
		if _, err := fmt.Sscan(child.Line(), &idle); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Sscan(child.Line(), &busy); err != nil {
			t.Fatal(err)
		}
		p := openProcess(t, child.PID)
		waitNames(t, p, idle, "idle", "Thread.run", "Thread._bootstrap_inner", "Thread._bootstrap")
		waitNames(t, p, busy, "inside", "<module>")
	})
}
