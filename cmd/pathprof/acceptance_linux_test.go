// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pathprof/join"
	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// programEnv names a program that was built elsewhere.
const programEnv = "PATHPROF_PROGRAM"

// buildProgram builds the program as users do: without the race detector, which
// would make the recorder many times dearer. A machine without a compiler says
// where the program is.
var buildProgram = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(programEnv); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "pathprof-test")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "pathprof")
	out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if path, err := buildProgram(); err == nil && path != os.Getenv(programEnv) {
		os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(status)
}

func builtProgram(t testing.TB) string {
	t.Helper()
	path, err := buildProgram()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// ran is what a run of the program printed, and its exit status.
type ran struct {
	stdout, stderr string
	status         int
}

func runProgram(t testing.TB, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(builtProgram(t), args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// mustRun runs the program and demands success.
func mustRun(t testing.TB, args ...string) string {
	t.Helper()
	r := runProgram(t, args...)
	if r.status != 0 {
		t.Fatalf("pathprof %s: status %d: %s", strings.Join(args, " "), r.status, r.stderr)
	}
	return r.stdout
}

func needRecorder(t testing.TB) {
	t.Helper()
	perftest.Require(t, perftest.Root, perftest.BPF, perftest.PerfEvents)
}

func workload(t testing.TB, name string) string {
	t.Helper()
	path, err := filepath.Abs("../../calibrate/workloads/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// startRecorder starts a recording and returns when it has begun.
func startRecorder(t testing.TB, args ...string) (cmd *exec.Cmd, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "r.pathprof")
	cmd = exec.Command(builtProgram(t), append([]string{"record", "-o", dir}, args...)...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Join(dir, "meta.json")); err == nil {
			var m recording.Meta
			if json.Unmarshal(text, &m) == nil && m.BeginNs != 0 {
				return cmd, dir
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("the recorder does not begin")
		}
	}
}

// recordWorkload runs a workload under the recorder from its "ready" to its end
// and returns the recording and the workload's last line, its truth.
func recordWorkload(t testing.TB, python string, truth any, name string, args ...string) (dir string) {
	t.Helper()
	return recordProgram(t, python, truth, workload(t, name), args...)
}

// recordProgram does so with a program in a file.
func recordProgram(t testing.TB, python string, truth any, name string, args ...string) (dir string) {
	t.Helper()
	child := perftest.Start(t, python, append([]string{name}, append(args, "--on-line")...)...)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "1ms")
	child.Say("go")
	if err := json.Unmarshal([]byte(child.Line()), truth); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	child.CloseStdin()
	if err := child.Wait(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, child.Stderr())
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("recorder: %v", err)
	}
	return dir
}

func report(t testing.TB, dir string, args ...string) join.Report {
	t.Helper()
	var r join.Report
	if err := json.Unmarshal([]byte(mustRun(t, append([]string{"report", "--json", dir}, args...)...)), &r); err != nil {
		t.Fatal(err)
	}
	checkSums(t, &r)
	return r
}

// checkSums demands that the classes, and the segments if there, make up the
// wall time to the nanosecond, without gap or overlap.
func checkSums(t testing.TB, r *join.Report) {
	t.Helper()
	for _, p := range r.Paths {
		sum := int64(0)
		for _, c := range p.Classes {
			sum += c.Ns
		}
		if sum != p.WallNs {
			t.Errorf("thread %d: classes sum to %d ns of %d", p.TID, sum, p.WallNs)
		}
		at := p.BeginNs
		for _, s := range p.Segments {
			if s.BeginNs != at || s.EndNs <= s.BeginNs {
				t.Fatalf("thread %d: segment [%d, %d) after %d", p.TID, s.BeginNs, s.EndNs, at)
			}
			at = s.EndNs
		}
		if len(p.Segments) > 0 && at != p.EndNs {
			t.Errorf("thread %d: segments end at %d, the path at %d", p.TID, at, p.EndNs)
		}
	}
}

func pathOf(t testing.TB, r *join.Report, tid int32) *join.PathReport {
	t.Helper()
	for i := range r.Paths {
		if r.Paths[i].TID == tid {
			return &r.Paths[i]
		}
	}
	t.Fatalf("no path of thread %d", tid)
	return nil
}

// Ten functions with known shares lie in their intervals, on every interpreter.
// An interval of 95 % is wrong one time in twenty, and there are sixty: the
// count of those outside is held to the binomial's, and none may be far out.
func TestTenFunctions(t *testing.T) {
	needRecorder(t)
	seconds := "10"
	if testing.Short() {
		seconds = "2"
	}
	outside, total := 0, 0
	for _, minor := range []string{"3.8", "3.9", "3.10", "3.11", "3.12", "3.13"} {
		t.Run(minor, func(t *testing.T) {
			var truth struct {
				TID    int32            `json:"tid"`
				Shares map[string]int64 `json:"functions"`
				Other  int64            `json:"other_ns"` // between the functions
			}
			dir := recordWorkload(t, perftest.PythonPath(t, minor), &truth, "profile10.py", seconds)
			r := report(t, dir)
			if r.Recording.Lost != 0 {
				t.Logf("%d lost", r.Recording.Lost) // intervals are wider then
			}
			all := truth.Other // has samples, too
			for _, ns := range truth.Shares {
				all += ns
			}
			found := sampleShares(pathOf(t, &r, truth.TID))
			for name, ns := range truth.Shares {
				want := float64(ns) / float64(all)
				f, ok := found[name]
				if !ok {
					t.Errorf("%s: not in the profile", name)
					continue
				}
				total++
				if want < f.Low || want > f.High {
					outside++
					t.Logf("%s: true %.4f outside [%.4f, %.4f]", name, want, f.Low, f.High)
				}
				if far := 1.2 * (f.High - f.Low); want < f.Low-far || want > f.High+far {
					t.Errorf("%s: true share %.4f, far outside [%.4f, %.4f]", name, want, f.Low, f.High)
				}
			}
		})
	}
	if total > 0 && outside > total/6+1 { // p < 0.001 for 60
		t.Errorf("%d of %d true shares lie outside their 95 %% intervals", outside, total)
	}
}

// sampleShares returns the functions of the thread's own running class.
func sampleShares(p *join.PathReport) map[string]join.Function {
	out := map[string]join.Function{}
	for _, c := range p.Classes {
		if c.Wait != nil || c.State != "running" {
			continue
		}
		for _, f := range c.Functions {
			if f.Kind == "python" {
				out[f.Name] = f
			}
		}
	}
	return out
}

// wait is one wait that waits.py timed itself.
type wait struct {
	Kind     string `json:"kind"`
	TID      int32  `json:"tid"`
	Begin    int64  `json:"begin_ns"`
	End      int64  `json:"end_ns"`
	WakerTID int32  `json:"waker_tid"`
	Function string `json:"function"`
	// Busy is how long the thread ran or stood in the queue for a CPU meanwhile.
	Busy int64 `json:"busy_ns"`
}

// Each wait takes as long as the program's own clock says, leads to whom it
// waited for, and shows that one's functions.
func TestWaits(t *testing.T) {
	needRecorder(t)
	for _, minor := range []string{"3.8", "3.10", "3.11", "3.12", "3.13"} {
		t.Run(minor, func(t *testing.T) {
			var truth struct {
				Waits []wait `json:"waits"`
			}
			dir := recordWorkload(t, perftest.PythonPath(t, minor), &truth, "waits.py", "3")
			r := report(t, dir, "--segments")
			var children, known int
			for _, w := range truth.Waits {
				p := pathOf(t, &r, w.TID)
				checkWait(t, p, w)
				if w.Kind == "child" {
					children++
					if showsFunction(p, w) {
						known++
					}
				}
			}
			// A child lives for a tenth of a second: where others have the CPUs, it takes
			// its names with it.
			if known < children && (known == 0 || os.Getenv("PATHPROF_FULL") != "") {
				t.Errorf("child_work is in the profiles of %d of %d children; unread: %d Python frames",
					known, children, openRecording(t, dir).Meta().Loss.Unresolved)
			}
			t.Logf("child_work is in the profiles of %d of %d children", known, children)
		})
	}
}

func checkWait(t *testing.T, p *join.PathReport, w wait) {
	t.Helper()
	length := w.End - w.Begin
	var waited, own, waker, timer int64
	for _, s := range p.Segments {
		ns := min(s.EndNs, w.End) - max(s.BeginNs, w.Begin)
		if ns <= 0 {
			continue
		}
		if s.Depth == 0 && (s.State == "running" || s.State == "preempted") {
			own += ns // not waiting: on its way into or out of the wait
			continue
		}
		waited += ns
		// Deeper is what the waker itself waited for.
		if s.TID == w.WakerTID || s.Depth > 1 {
			waker += ns
		}
		if s.Cause != nil && s.Cause.Kind == "timer" {
			timer += ns
		}
	}
	// What the thread itself ran or stood in the queue for is no wait.
	tolerance := (length-own)/50 + 1e6
	if diff := length - own - waited; diff > tolerance || diff < -tolerance || own > max(w.Busy+tolerance, length/4+5e6) {
		t.Errorf("%s: waited %d ns of %d, busy for %d, by itself %d", w.Kind, waited, length, own, w.Busy)
	}
	right := waker
	if w.Kind == "sleep" {
		right = timer
	}
	if waited-right > tolerance {
		t.Errorf("%s: %d of %d ns with the right cause", w.Kind, right, waited)
	}
	if w.Kind != "child" && w.Function != "" && !showsFunction(p, w) {
		t.Errorf("%s: %s not in the waker's profile", w.Kind, w.Function)
	}
}

// showsFunction tells whether the waker's classes within waits show a function
// for at least half of their time.
func showsFunction(p *join.PathReport, w wait) bool {
	for _, c := range p.Classes {
		if c.Wait == nil || c.TID != w.WakerTID {
			continue
		}
		if slices.ContainsFunc(c.Functions, func(f join.Function) bool {
			return (f.Name == w.Function || strings.HasSuffix(w.Function, "."+f.Name)) && f.TotalShare > 0.5
		}) {
			return true
		}
	}
	return false
}

// A thread in a long C call without the GIL keeps its Python frames, and so does
// the thread that waits for it.
func TestReleasedGIL(t *testing.T) {
	needRecorder(t)
	for _, minor := range []string{"3.8", "3.10", "3.11", "3.12", "3.13"} {
		t.Run(minor, func(t *testing.T) {
			var truth map[string]any
			dir := recordWorkload(t, perftest.PythonPath(t, minor), &truth, "hashlib_gil.py", "1.5")
			r := report(t, dir)
			for name, want := range map[string]string{"hash": "hash_buffer", "compress": "compress_buffer"} {
				best := 0.0
				for i := range r.Paths {
					for _, c := range r.Paths[i].Classes {
						if c.Wait != nil || c.State != "running" {
							continue
						}
						for _, f := range c.Functions {
							if f.Name == want {
								best = max(best, f.TotalShare)
							}
						}
					}
				}
				if best < 0.98 {
					t.Errorf("%s: %s has %.3f of its thread's samples", name, want, best)
				}
			}
			if !blockedIn(&r, "main") {
				t.Error("the main thread's wait does not show main")
			}
		})
	}
}

func blockedIn(r *join.Report, function string) bool {
	for _, p := range r.Paths {
		if p.TID != p.PID {
			continue
		}
		out := mustText(p)
		if strings.Contains(out, `"`+function+`"`) {
			return true
		}
	}
	return false
}

func mustText(p join.PathReport) string {
	text, err := json.Marshal(p.Classes)
	if err != nil {
		return ""
	}
	return string(text)
}
