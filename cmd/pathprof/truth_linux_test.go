// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// versions are the interpreters that the tests of stacks run on.
var versions = []string{"3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"}

// mixSource alternates two chains of short calls, a chain of coroutines,
// generators that delegate, exceptions and recursion. Only stacks that are a
// prefix of one chain can exist.
func mixSource(chainLength, depth int) string {
	var b strings.Builder
	b.WriteString("import sys\n")
	for _, chain := range "ab" {
		for i := range chainLength {
			next := fmt.Sprintf("%c%d(x)", chain, i+1)
			if i == chainLength-1 {
				next = "x + 1"
			}
			fmt.Fprintf(&b, "def %c%d(x):\n    return %s\n", chain, i, next)
		}
	}
	for i := range chainLength {
		next := fmt.Sprintf("await c%d(x)", i+1)
		if i == chainLength-1 {
			next = "b0(x)"
		}
		fmt.Fprintf(&b, "async def c%d(x):\n    return %s\n", i, next)
	}
	fmt.Fprintf(&b, `
def drive(c):
    try:
        c.send(None)
    except StopIteration:
        pass
def gen(n):
    for i in range(n):
        yield a0(i)
def delegate(n):
    yield from gen(n)
def raises(x):
    try:
        thrower(x)
    except ValueError:
        return b0(x)
def thrower(x):
    raise ValueError(x)
def deep(n):
    return b0(n) if n == 0 else deep(n - 1)
def loop():
    while True:
        for i in range(100):
            a0(i); b0(i); raises(i); drive(c0(i))
        for x in gen(50):
            pass
        for x in delegate(50):
            pass
        deep(%d)
print("ready", flush=True)
loop()
`, depth)
	return b.String()
}

// samplesOf returns the Python stacks of a process' samples, outermost first,
// with their times.
func samplesOf(t *testing.T, dir string, pid int) (times []int64, stacks [][]string) {
	t.Helper()
	in := bufio.NewScanner(strings.NewReader(mustRun(t, "dump", "--samples", dir)))
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		f := strings.SplitN(in.Text(), " ", 5)
		if len(f) < 5 || f[1] != strconv.Itoa(pid) {
			continue
		}
		at, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		times, stacks = append(times, at), append(stacks, strings.Split(f[4], ";"))
	}
	return times, stacks
}

// pythonStacks returns the Python functions of a process' samples, outermost
// first, and how many samples say that their stack is cut.
func pythonStacks(t *testing.T, dir string, pid int) (list [][]string, cut int) {
	t.Helper()
	r, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	frames, err1 := r.Frames()
	stacks, err2 := r.Stacks()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for s, err := range r.Samples() {
		if err != nil {
			t.Fatal(err)
		}
		st := &stacks[s.Stack]
		switch {
		case int(s.PID) != pid:
		case st.PythonStop != recording.StopComplete:
			cut++
		default:
			var names []string
			for _, id := range slices.Backward(st.Python) {
				names = append(names, frames[id].Name)
			}
			list = append(list, names)
		}
	}
	return list, cut
}

// No sample shows a stack that never was: a walk in the thread's own context
// cannot tear. Readers from outside get three quarters of these wrong.
func TestImpossibleStacks(t *testing.T) {
	needRecorder(t)
	least, period, length, total := 200, "200us", "3s", 0
	if os.Getenv("PATHPROF_FULL") == "1" {
		least, period, length = 1_000_000/len(versions), "50us", "10s"
	}
	for _, minor := range versions {
		t.Run(minor, func(t *testing.T) {
			child := perftest.StartSource(t, perftest.PythonPath(t, minor), "mix.py", mixSource(8, 500))
			inside, cut := 0, 0
			for round := 0; inside < least && round < 60; round++ {
				cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", period, "-d", length)
				if err := cmd.Wait(); err != nil {
					t.Fatal(err)
				}
				in, short := checkMix(t, dir, child.PID)
				inside, cut = inside+in, cut+short
				os.RemoveAll(dir)
			}
			if inside < least || cut > 1+inside/500 {
				t.Errorf("%d samples in the chains, want %d, %d cut", inside, least, cut)
			}
			t.Logf("%d complete stacks, all possible; %d cut", inside, cut)
			total += inside
		})
	}
	t.Logf("%d complete stacks", total)
}

// checkMix counts the complete stacks of a program of mixSource, and those that
// say that they are cut.
func checkMix(t *testing.T, dir string, pid int) (inside, cut int) {
	t.Helper()
	stacks, cut := pythonStacks(t, dir, pid)
	for _, s := range stacks {
		names := slices.DeleteFunc(slices.Clone(s), func(n string) bool { return !mixFunction(n) })
		if len(names) == 0 {
			continue
		}
		inside++
		if why := impossible(names); why != "" {
			t.Errorf("%s: %s", why, strings.Join(s, ";"))
		}
	}
	return inside, cut
}

// mixFunction tells the program's own functions from native ones.
func mixFunction(name string) bool {
	if slices.Contains([]string{"gen", "delegate", "drive", "raises", "thrower", "deep", "loop"}, name) {
		return true
	}
	return len(name) == 2 && name[0] >= 'a' && name[0] <= 'c' && name[1] >= '0' && name[1] <= '9'
}

// impossible says what is wrong with the functions of a stack, outermost first.
func impossible(names []string) string {
	if names[0] != "loop" {
		return "not under loop"
	}
	for i, name := range names[1:] {
		before := names[i]
		ok := false
		switch {
		case name == "gen":
			ok = before == "loop" || before == "delegate"
		case name == "delegate" || name == "drive" || name == "raises":
			ok = before == "loop"
		case name == "c0":
			// Making a coroutine begins its function.
			ok = before == "drive" || before == "loop" && i+2 == len(names)
		case name == "thrower":
			ok = before == "raises"
		case name == "deep":
			ok = before == "loop" || before == "deep"
		case name == "a0":
			ok = before == "loop" || before == "gen"
		case name == "b0":
			ok = before == "loop" || before == "raises" || before == "deep" || before == "c7"
		default:
			ok = before[0] == name[0] && len(before) == 2 && before[1]+1 == name[1]
		}
		if !ok {
			return name + " called by " + before
		}
	}
	return ""
}

// logSource logs which function runs from when on, by the recorder's own clock.
const logSource = `
import json, random, sys, time
# 3.6 has no monotonic_ns; a double tells nanoseconds for some months.
now = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
def body(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x
functions = []
for k in range(10):
    exec(f"def f{k}(n):\n    x = 0\n    for i in range(n):\n        x = (x * 31 + i) % 1000003\n    return x\nfunctions.append(f{k})")
rng = random.Random(7)
log = []
print("ready", flush=True)
sys.stdin.readline()
end = now() + int(float(sys.argv[1]) * 1e9)
while now() < end:
    k = rng.randrange(10)
    f = functions[k]
    n = rng.randrange(500, 20000)
    begin = now()
    f(n)
    log.append((begin, now(), k))
with open(sys.argv[2], "w") as out:
    json.dump(log, out)
print("done", flush=True)
sys.stdin.readline()
`

// Every sample's innermost Python function is the one the program's own log
// names, but within 50 us of a change of function.
func TestSampleBySample(t *testing.T) {
	needRecorder(t)
	for _, minor := range versions {
		t.Run(minor, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.json")
			child := perftest.StartSource(t, perftest.PythonPath(t, minor), "log.py", logSource, "3", path)
			cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "1ms")
			child.Say("go")
			if line := child.Line(); line != "done" {
				t.Fatalf("got %q", line)
			}
			child.CloseStdin()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			var log [][3]int64
			text, err := os.ReadFile(path)
			if err == nil {
				err = json.NewDecoder(bytes.NewReader(text)).Decode(&log)
			}
			if err != nil {
				t.Fatal(err)
			}
			right, near := compareLog(t, dir, child.PID, log)
			if right < 100 {
				t.Errorf("%d samples agree with the log, %d near a change", right, near)
			}
		})
	}
}

// compareLog counts the samples that agree with the log, and those too near to a
// change to tell; any other is an error, but for one in a hundred: interrupts, and
// what a hypervisor takes, between a reading of the clock and the change have no
// event, and a sample that was due meanwhile comes right behind them. On a quiet
// machine (PATHPROF_FULL) there is one in a thousand at most.
func compareLog(t *testing.T, dir string, pid int, log [][3]int64) (right, near int) {
	t.Helper()
	const margin = 50_000
	ran := ranBetween(t, dir, int32(pid))
	times, stacks := samplesOf(t, dir, pid)
	var wrong []string
	for i, at := range times {
		k := sort.Search(len(log), func(k int) bool { return log[k][1] > at })
		if k == len(log) || at < log[k][0] || ran(log[k][0], at) < margin || ran(at, log[k][1]) < margin {
			near++
			continue
		}
		want := "f" + strconv.FormatInt(log[k][2], 10)
		got := ""
		for _, name := range stacks[i] {
			if name == "<module>" || len(name) == 2 && name[0] == 'f' && name[1] >= '0' && name[1] <= '9' {
				got = name
			}
		}
		if got != want {
			wrong = append(wrong, fmt.Sprintf("sample at %d: %s, the log says %s", at, strings.Join(stacks[i], ";"), want))
			continue
		}
		right++
	}
	most := right / 100
	if os.Getenv("PATHPROF_FULL") != "" {
		most = right / 1000
	}
	if len(wrong) > most {
		t.Errorf("%d samples wrong of %d:\n%s", len(wrong), right, strings.Join(wrong, "\n"))
	}
	return right, near
}

// ranBetween returns a function that says how long a process' first thread had a
// CPU between two times.
func ranBetween(t *testing.T, dir string, tid int32) func(begin, end int64) int64 {
	t.Helper()
	r, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var off [][2]int64 // from, to
	for ev, err := range r.Events() {
		switch {
		case err != nil:
			t.Fatal(err)
		case ev.Kind != sched.KindSwitch:
		case ev.Task.TID == tid:
			off = append(off, [2]int64{ev.Time, math.MaxInt64})
		case ev.Other.TID == tid && len(off) > 0:
			off[len(off)-1][1] = ev.Time
		}
	}
	return func(begin, end int64) int64 {
		ns := end - begin
		for k := sort.Search(len(off), func(k int) bool { return off[k][1] > begin }); k < len(off) && off[k][0] < end; k++ {
			ns -= min(off[k][1], end) - max(off[k][0], begin)
		}
		return ns
	}
}

// blockSource has threads that wait for ever, and says in which function each.
const blockSource = `
import ctypes, sys, threading, time, queue
lock = threading.Lock(); lock.acquire()
q = queue.Queue()
event = threading.Event()
def in_sleep():
    time.sleep(600)
def in_lock():
    lock.acquire()
def in_queue():
    q.get()
def in_event():
    event.wait()
def in_join():
    threads[0].join()
tids = {}
def starts(f):
    # 3.8 has threading.get_native_id; 186 is gettid on x86-64.
    tids[f] = getattr(threading, "get_native_id", lambda: ctypes.CDLL(None).syscall(186))()
    f()
threads, functions = [], (in_sleep, in_lock, in_queue, in_event, in_join)
for f in functions:
    t = threading.Thread(target=starts, args=(f,), daemon=True)
    threads.append(t)
    t.start()
time.sleep(0.2)
print("ready", flush=True)
print(" ".join("%d:%s" % (tids[f], f.__name__) for f in functions), flush=True)
sys.stdin.readline()
`

// Threads that were blocked before the recording began show where, though they
// never run during it.
func TestBlockedBefore(t *testing.T) {
	needRecorder(t)
	for _, minor := range versions {
		t.Run(minor, func(t *testing.T) {
			child := perftest.StartSource(t, perftest.PythonPath(t, minor), "block.py", blockSource)
			threads := child.Line()
			cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "-d", "300ms")
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			r := report(t, dir, "--segments")
			for _, thread := range strings.Fields(threads) {
				tid, function, _ := strings.Cut(thread, ":")
				n, err := strconv.ParseInt(tid, 10, 32)
				if err != nil {
					t.Fatal(err)
				}
				p := pathOf(t, &r, int32(n))
				if !strings.Contains(mustText(*p), `"`+function+`"`) {
					t.Errorf("thread %s: %s is not shown: %s", tid, function, mustText(*p))
				}
			}
		})
	}
}
