// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pathprof/join"
	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// inWindow calls f for each segment of a path in [begin, end), with its time there.
func inWindow(p *join.PathReport, begin, end int64, f func(s *join.SegmentReport, ns int64)) {
	for i := range p.Segments {
		s := &p.Segments[i]
		if ns := min(s.EndNs, end) - max(s.BeginNs, begin); ns > 0 {
			f(s, ns)
		}
	}
}

// near tells whether a time is another one within 2 % and some slack.
func near(got, want, slack int64) bool {
	return max(got-want, want-got) <= want/50+slack
}

// barrierTask is what a process of the barrier's says: its number, the begin of
// its first stage, when it came to and left each barrier.
type barrierTask struct {
	pid    int32
	begin  int64
	stages [4][2]int64
}

func (b *barrierTask) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&b.pid, &b.begin, &b.stages})
}

// Table 4.3 of the thesis: of A's path through four stages of uneven work 62.5 % are
// A's, 6.3 % B's, 12.5 % C's and 18.8 % D's. While it waits, the path is with the last one
// to come. What a busy machine changes the processes see, too.
func TestUnevenWork(t *testing.T) {
	needRecorder(t)
	unit := "40"
	if os.Getenv("PATHPROF_FULL") != "" {
		unit = "100"
	}
	var truth struct {
		Tasks []barrierTask `json:"tasks"`
	}
	dir := recordProgram(t, perftest.PythonPath(t, "3.11"), &truth, "testdata/usecases.py", "barrier", unit)
	r := report(t, dir, "--segments")
	a := &truth.Tasks[0]
	p := pathOf(t, &r, a.pid)
	begin, end := a.begin, a.stages[3][0]
	want, got := make(map[int32]int64), make(map[int32]int64)
	slack := int64(0) // nobody works
	for s := range a.stages {
		last := slices.MaxFunc(truth.Tasks, func(x, y barrierTask) int { return int(x.stages[s][0] - y.stages[s][0]) })
		want[last.pid] += max(last.stages[s][0]-a.stages[s][0], 0)
		// On its way into the wait A can lose its CPU, too.
		inWindow(p, a.stages[s][0], last.stages[s][0], func(s *join.SegmentReport, ns int64) {
			if s.Depth == 0 && s.State != "blocked" {
				slack += ns
			}
		})
		if s < 3 {
			slack += a.stages[s][1] - last.stages[s][0]
		}
	}
	inWindow(p, begin, end, func(s *join.SegmentReport, ns int64) { got[s.TID] += ns })
	total := end - begin
	want[a.pid] = total
	for i, task := range truth.Tasks {
		if i > 0 {
			want[a.pid] -= want[task.pid]
		}
	}
	for i, task := range truth.Tasks {
		t.Logf("%c: %.1f %%, by the program %.1f %%, nominal %.1f %%", 'A'+i, share(got[task.pid], total), share(want[task.pid], total),
			[]float64{62.5, 6.25, 12.5, 18.75}[i])
		if math.Abs(share(got[task.pid], total)-share(want[task.pid], total)) > 1+share(slack, total) {
			t.Errorf("%c has %d ns of the path, want %d, between them %d", 'A'+i, got[task.pid], want[task.pid], slack)
		}
	}
}

func share(part, whole int64) float64 { return 100 * float64(part) / float64(whole) }

// UC2, a convoy: C has the lock, A and then B queue for it. A waits for C; B for C, who
// kept A from it, then for A; C for nobody. B's profile shows the functions in
// which the others had the lock.
func TestConvoy(t *testing.T) {
	needRecorder(t)
	var truth map[string]struct {
		TID   int32 `json:"tid"`
		Begin int64 `json:"begin_ns"`
		Got   int64 `json:"got_ns"`
		End   int64 `json:"end_ns"`
	}
	dir := recordProgram(t, perftest.PythonPath(t, "3.11"), &truth, "testdata/usecases.py", "convoy", "300")
	r := report(t, dir, "--segments")
	a, b, c := truth["A"], truth["B"], truth["C"]
	for _, k := range []struct {
		who            string
		tid, waker     int32
		begin, end     int64
		function, name string
	}{
		{"A", a.TID, c.TID, a.Begin, c.End, "hold_c", "C"},
		{"B", b.TID, c.TID, b.Begin, c.End, "hold_c", "C"},
		{"B", b.TID, a.TID, a.Got, a.End, "hold_a", "A"},
	} {
		var own, others, right int64
		p := pathOf(t, &r, k.tid)
		inWindow(p, k.begin, k.end, func(s *join.SegmentReport, ns int64) {
			switch s.TID {
			case k.tid:
				own += ns
			case k.waker:
				right += ns
			default:
				others += ns
			}
		})
		t.Logf("%s's wait for %s: %d ns lead to it, %d to others, %d its own", k.who, k.name, right, others, own)
		// What the holder waits for itself, as the GIL, is others' time.
		if !near(right+others, k.end-k.begin-own, 1e6) || others*10 > right {
			t.Errorf("%s waits %d ns for %s, %d lead there", k.who, k.end-k.begin-own, k.name, right)
		}
		if !slices.ContainsFunc(p.Classes, func(class join.ClassReport) bool {
			return class.Wait != nil && class.TID == k.waker && slices.ContainsFunc(class.Functions, func(f join.Function) bool {
				return strings.HasSuffix(f.Name, k.function) && f.TotalShare > 0.5
			})
		}) {
			t.Errorf("%s is not in the profile of %s's wait", k.function, k.who)
		}
	}
	for _, w := range pathOf(t, &r, c.TID).Waits {
		if w.Lock != "gil" && w.BeginNs >= c.Got && w.EndNs <= c.End && w.EndNs-w.BeginNs > 5e6 {
			t.Errorf("C waits while it has the lock: %+v", w)
		}
	}
}

// Table 4.4: an O_SYNC writer waits for the journal's thread, and that for the disk.
// The file system is one in a file, so that there is a journal.
func TestSynchronousWrites(t *testing.T) {
	if os.Getenv("PATHPROF_FULL") == "" {
		t.Skip("mounts a file system; PATHPROF_FULL=1 runs it")
	}
	needRecorder(t)
	perftest.Require(t, perftest.Tool("mkfs.ext4"), perftest.Tool("mount"))
	dir := t.TempDir()
	image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "fs")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 128<<20), os.Mkdir(mount, 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, mount}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", c, err, out)
		}
	}
	t.Cleanup(func() { exec.Command("umount", mount).Run() })
	var truth struct {
		TID   int32 `json:"tid"`
		Begin int64 `json:"begin_ns"`
		End   int64 `json:"end_ns"`
	}
	rec := recordProgram(t, perftest.PythonPath(t, "3.11"), &truth, "testdata/usecases.py", "osync", filepath.Join(mount, "f"), "150")
	r := report(t, rec, "--segments")
	times := make(map[string]int64)
	inWindow(pathOf(t, &r, truth.TID), truth.Begin, truth.End, func(s *join.SegmentReport, ns int64) {
		who := "writer"
		switch {
		case s.State == "blocked" && s.Cause != nil && s.Cause.Kind == "disk":
			who = "disk"
		case s.State == "unknown" || s.State == "blocked" && s.Cause != nil && s.Cause.Kind == "unknown":
			who = "unknown"
		case strings.HasPrefix(s.Thread, "jbd2/"):
			who = "journal"
		case s.TID != truth.TID:
			who = "others"
		}
		times[who] += ns
	})
	total := truth.End - truth.Begin
	t.Logf("of %d ms: %v", total/1e6, times)
	if times["journal"]*50 < total || times["disk"]*50 < total || times["unknown"]*200 > total {
		t.Errorf("of %d ns: %v, want the journal's thread and the disk on the path", total, times)
	}
}

// limitGroup puts a process into a control group of its own, v1 or v2, and returns how
// to set a quota of every 100 ms there.
func limitGroup(t *testing.T, pid int) (limit func(us int)) {
	t.Helper()
	for base, file := range map[string]string{"/sys/fs/cgroup/cpu": "cpu.cfs_quota_us", "/sys/fs/cgroup": "cpu.max"} {
		dir := filepath.Join(base, fmt.Sprintf("pathprof-uc-%d", pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) }) // the process has ended then
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0); err != nil {
			continue
		}
		return func(us int) {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(strconv.Itoa(us)), 0); err != nil {
				t.Error(err)
			}
		}
	}
	t.Skip("no control group with a CPU limit can be made here")
	return nil
}

// UC1 and a part of UC5: requests under a CPU limit wait for it, on an idle machine and on
// a busy one; requests beside busy neighbours, without a limit, wait for these.
func TestLimitedRequests(t *testing.T) {
	if os.Getenv("PATHPROF_FULL") == "" {
		t.Skip("takes a minute; PATHPROF_FULL=1 runs it")
	}
	needRecorder(t)
	for _, c := range []struct {
		name           string
		limited, loops bool
	}{{"limit", true, false}, {"limit and neighbours", true, true}, {"neighbours", false, true}} {
		t.Run(c.name, func(t *testing.T) { limitedRequests(t, c.limited, c.loops) })
	}
}

func limitedRequests(t *testing.T, limited, loops bool) {
	python := perftest.PythonPath(t, "3.11")
	if loops {
		for range 4 {
			loop := perftest.StartSource(t, python, "neighbour", "print('ready', flush=True)\nwhile True: pass\n")
			t.Cleanup(func() { loop.Kill(); loop.Wait() })
		}
	}
	child := perftest.Start(t, python, "testdata/usecases.py", "serve", "5", "6", "--on-line")
	limit := limitGroup(t, child.PID)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "1ms")
	child.Say("go")
	time.Sleep(2 * time.Second)
	from := perfevent.MonotonicNow()
	if limited {
		limit(2000)
	}
	var truth struct {
		TID      int32      `json:"tid"`
		Requests [][2]int64 `json:"requests"`
	}
	if err := json.Unmarshal([]byte(child.Line()), &truth); err != nil {
		t.Fatal(err)
	}
	child.CloseStdin()
	if err := errors.Join(child.Wait(), cmd.Wait()); err != nil {
		t.Fatal(err)
	}
	r := report(t, dir, "--segments")
	p := pathOf(t, &r, truth.TID)
	var before, held, others, words = 0, int64(0), int64(0), ""
	for _, q := range truth.Requests {
		inWindow(p, q[0], q[1], func(s *join.SegmentReport, ns int64) {
			switch {
			case s.State != "preempted" || s.Cause == nil:
			case s.Cause.Kind != "cpu-limit":
				if q[0] >= from || !limited {
					others += ns
				}
			case q[1] < from:
				before++
			default:
				held += ns
				words = s.Cause.Detail
			}
		})
	}
	t.Logf("%d ms for the limit (%s), %d ms for others", held/1e6, words, others/1e6)
	switch {
	case before > 0:
		t.Errorf("%d segments before the limit was set", before)
	case limited && (held < 9*others || !strings.Contains(words, "2ms of every 100ms") || !strings.Contains(words, "periods throttled")):
		t.Errorf("%d ns for the limit %q, %d for others", held, words, others)
	case !limited && (held > 0 || others < 100e6):
		t.Errorf("%d ns for the limit %q, %d for others", held, words, others)
	}
}
