// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// busySource computes on n threads until its input closes.
const busySource = `
import sys, threading
def busy():
    x = 0
    while True:
        for i in range(1000):
            x = (x * 31 + i) % 1000003
for _ in range(int(sys.argv[1])):
    threading.Thread(target=busy, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
`

func startBusy(t testing.TB, threads int) *perftest.Child {
	t.Helper()
	return perftest.StartSource(t, perftest.PythonPath(t, "3.11"), "busy.py", busySource, strconv.Itoa(threads))
}

// waitFor waits for a condition that a busy machine may delay.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func size(path string) int64 {
	st, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return st.Size()
}

// A killed recorder leaves a recording that says so.
func TestRecorderKilled(t *testing.T) {
	needRecorder(t)
	child := startBusy(t, 2)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID))
	samples := filepath.Join(dir, "samples.arrow")
	empty := size(samples)
	waitFor(t, "samples on disk", func() bool { return size(samples) > empty })
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	r := report(t, dir, "--segments")
	if len(r.Paths) < 3 || r.Recording.Samples == 0 {
		t.Errorf("%d paths, %d samples", len(r.Paths), r.Recording.Samples)
	}
	if text := strings.Join(r.Warnings, "\n"); !strings.Contains(text, "killed") {
		t.Errorf("got warnings %q, want one that says the recorder was killed", text)
	}
}

// An interrupt finishes the recording in good order.
func TestRecorderInterrupted(t *testing.T) {
	needRecorder(t)
	child := startBusy(t, 1)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "-d", "1h")
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("recorder: %v", err)
	}
	report(t, dir)
}

func TestTargetExits(t *testing.T) {
	needRecorder(t)
	child := startBusy(t, 1)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID))
	child.CloseStdin()
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("recorder: %v", err)
	}
	report(t, dir, "--segments")
}

// A target that becomes another program keeps its path; the new program's
// Python frames are found.
func TestTargetExecs(t *testing.T) {
	needRecorder(t)
	const source = `
import os, sys, time
def first():
    end = time.monotonic() + 0.3
    while time.monotonic() < end: pass
def second():
    end = time.monotonic() + 0.3
    while time.monotonic() < end: pass
if len(sys.argv) > 1:
    second()
else:
    print("ready", flush=True)
    sys.stdin.readline()
    first()
    os.execv(sys.executable, [sys.executable, __file__, "again"])
`
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.12"), "execs.py", source)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID))
	child.Say("go")
	if err := cmd.Wait(); err != nil {
		t.Errorf("recorder: %v", err)
	}
	r := report(t, dir, "--segments")
	text := mustText(*pathOf(t, &r, int32(child.PID)))
	for _, name := range []string{`"first"`, `"second"`} {
		if !strings.Contains(text, name) {
			t.Errorf("%s is not on the path", name)
		}
	}
}

// A thread that is not the first executes another program: it goes on under the
// process' number, and nothing of its time is unknown.
func TestThreadExecs(t *testing.T) {
	needRecorder(t)
	const source = `
import os, sys, threading, time
def second():
    end = time.monotonic() + 0.3
    while time.monotonic() < end: pass
def other():
    sys.stdin.readline()
    os.execv(sys.executable, [sys.executable, __file__, "again"])
if len(sys.argv) > 1:
    second()
else:
    print("ready", flush=True)
    threading.Thread(target=other).start()
    time.sleep(60)
`
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.12"), "thread_execs.py", source)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID))
	child.Say("go")
	if err := cmd.Wait(); err != nil {
		t.Errorf("recorder: %v", err)
	}
	r := report(t, dir)
	for _, p := range r.Paths {
		if p.TID != int32(child.PID) || !strings.Contains(mustText(p), `"second"`) {
			continue
		}
		for _, c := range p.Classes {
			if c.State == "unknown" {
				t.Errorf("%d ns are unknown: %+v", c.Ns, c.Cause)
			}
		}
		return
	}
	t.Errorf("no path of the number %d shows the second program", child.PID)
}

func TestDiskFull(t *testing.T) {
	needRecorder(t)
	child := startBusy(t, 2)
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount a small file system: %v", err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH)
	dir := filepath.Join(mount, "r.pathprof")
	got := runProgram(t, "record", "-p", strconv.Itoa(child.PID), "--period", "500us", "-d", "120s", "-o", dir)
	if got.status != 1 || strings.Count(strings.TrimSpace(got.stderr), "\n") != 0 || !strings.Contains(got.stderr, "no space") {
		t.Errorf("status %d, stderr %q; want 1 and one line that names the full disk", got.status, got.stderr)
	}
	r := report(t, dir)
	if len(r.Warnings) == 0 || r.Recording.Samples == 0 {
		t.Errorf("%d samples, warnings %q", r.Recording.Samples, r.Warnings)
	}
}

// Five hundred short-lived children and two hundred threads: a readable
// recording, nothing hung.
func TestCrowds(t *testing.T) {
	needRecorder(t)
	for _, c := range []struct {
		name string
		args []string
	}{
		{"children500.py", []string{"500"}},
		{"threads200.py", []string{"1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var truth map[string]any
			dir := recordWorkload(t, perftest.PythonPath(t, "3.11"), &truth, c.name, c.args...)
			r := report(t, dir, "--segments")
			if r.Recording.Lost != 0 {
				t.Errorf("%d lost", r.Recording.Lost)
			}
			if c.name == "threads200.py" && len(r.Paths) < 200 {
				t.Errorf("%d paths", len(r.Paths))
			}
		})
	}
}

// With --children, a child's threads have paths, too.
func TestChildren(t *testing.T) {
	needRecorder(t)
	const source = `
import subprocess, sys
print("ready", flush=True)
sys.stdin.readline()
subprocess.run([sys.executable, "-c", "def child_sum():\n  return sum(i * i for i in range(3000000))\nchild_sum()"])
`
	child := perftest.StartSource(t, perftest.PythonPath(t, "3.11"), "parent.py", source)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--children")
	child.Say("go")
	if err := cmd.Wait(); err != nil {
		t.Errorf("recorder: %v", err)
	}
	r := report(t, dir)
	for _, p := range r.Paths {
		if p.PID != int32(child.PID) && strings.Contains(mustText(p), "child_sum") {
			return
		}
	}
	t.Errorf("no path of the child with its function, of %d", len(r.Paths))
}

// Everything that cannot be recorded is one clear line, and status 1.
func TestRecordErrors(t *testing.T) {
	needRecorder(t)
	sleeper := exec.Command("sleep", "600")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { sleeper.Process.Kill(); sleeper.Wait() }()
	python := startBusy(t, 1)
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		name   string
		args   []string
		status int
		want   string
	}{
		{"no such process", []string{"-p", "4194303"}, 1, "no process 4194303"},
		{"no Python", []string{"-p", strconv.Itoa(sleeper.Process.Pid)}, 1, "no CPython"},
		{"kernel thread", []string{"-p", "2"}, 1, "2"},
		{"a used folder", []string{"-p", strconv.Itoa(python.PID), "-o", full}, 1, "not empty"},
		{"no such program", []string{"--", "no-such-program"}, 1, "no-such-program"},
		{"nothing to record", nil, 2, "nothing to record"},
		{"bad number", []string{"-p", "abc"}, 2, "abc"},
		{"bad period", []string{"-p", "1", "--period", "x"}, 2, "period"},
		{"time for a count", []string{"-p", "1", "--event", "page-faults", "--period", "1ms"}, 2, "period"},
		{"bad event", []string{"-p", "1", "--event", "nonsense"}, 2, "nonsense"},
		{"bad flag", []string{"--nonsense"}, 2, "nonsense"},
	}
	for _, in := range perftest.Interpreters() {
		if strings.HasPrefix(in.Version, "2.7") {
			old := perftest.StartSource(t, in.Path, "old.py", "import sys\nprint('ready')\nsys.stdout.flush()\nsys.stdin.readline()\n")
			cases = append(cases, struct {
				name   string
				args   []string
				status int
				want   string
			}{"CPython " + in.Version, []string{"-p", strconv.Itoa(old.PID)}, 1, "not supported"})
		}
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			args := append([]string{"record", "-d", "100ms"}, c.args...)
			if !strings.Contains(strings.Join(c.args, " "), "-o") {
				args = append([]string{"record", "-o", filepath.Join(t.TempDir(), "r")}, args[1:]...)
			}
			got := runProgram(t, args...)
			lines := strings.Count(strings.TrimSpace(got.stderr), "\n") + 1
			if got.status != c.status || !strings.Contains(got.stderr, c.want) || lines > c.status {
				t.Errorf("status %d, stderr %q; want status %d, %q", got.status, got.stderr, c.status, c.want)
			}
		})
	}
}

// Without privilege there is one line that says what helps.
func TestRecordWithoutRoot(t *testing.T) {
	needRecorder(t)
	child := startBusy(t, 1)
	path := filepath.Join(t.TempDir(), "pathprof")
	text, err := os.ReadFile(builtProgram(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := path; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, "record", "-p", strconv.Itoa(child.PID), "-o", "/nonexistent/r")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err == nil || cmd.ProcessState.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "CAP_BPF") {
		t.Errorf("got %q, %v", out, err)
	}
}

// A damaged recording is one line and status 1, or is read with a warning.
func TestDamagedRecording(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{{"report", dir}, {"report", dir + "/none"}, {"pprof", dir, "-o", dir + "/out"}, {"dump", dir}} {
		got := runProgram(t, args...)
		if got.status != 1 || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v: status %d, %q", args, got.status, got.stderr)
		}
	}
}

// At 1 ms on busy CPUs nothing is lost.
func TestNothingLost(t *testing.T) {
	needRecorder(t)
	for range 2 {
		startBusy(t, 2) // other processes keep both CPUs busy
	}
	child := startBusy(t, 2)
	cmd, dir := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "1ms", "-d", "5s")
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	r, err := recording.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	m := r.Meta()
	// Ours make some thousand events a second.
	if rate := float64(m.Events+m.Loss.Events) / (float64(m.EndNs-m.BeginNs) / 1e9); m.Loss.Events > 0 && rate > 100_000 {
		t.Skipf("others make %.0f events a second here", rate)
	}
	if m.Loss.Events+m.Loss.Samples != 0 || m.Samples == 0 {
		t.Errorf("%d lost of %d samples, %d of %d events", m.Loss.Samples, m.Samples, m.Loss.Events, m.Events)
	}
}
