// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

// fakeTB records how Require ends a test. Ending must unwind the goroutine, as
// the real one does.
type fakeTB struct {
	testing.TB
	outcome string
}

func (f *fakeTB) Helper() {}
func (f *fakeTB) Skipf(format string, args ...any) {
	f.outcome = "skip: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.outcome = "fatal: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func outcome(needs ...Need) string {
	f := &fakeTB{outcome: "run"}
	done := make(chan struct{})
	go func() { defer close(done); Require(f, needs...) }()
	<-done
	return f.outcome
}

func TestRequire(t *testing.T) {
	met := Need{name: "air", probe: func() error { return nil }}
	unmet := Need{name: "gold", probe: func() error { return errors.New("none here") }}
	hardware := Need{name: "PMU", probe: unmet.probe, hardware: true}
	tests := []struct {
		name, env string
		needs     []Need
		want      string
	}{
		{"nothing", "all", nil, "run"},
		{"met", "all", []Need{met}, "run"},
		{"unmet", "", []Need{met, unmet}, "skip: needs gold: none here"},
		{"unmet, all", "all", []Need{met, unmet}, "fatal: PATHPROF_REQUIRE demands gold: none here"},
		{"other word", "some", []Need{unmet}, "skip: needs gold: none here"},
		{"hardware", "", []Need{hardware}, "skip: needs PMU: none here"},
		{"hardware, all", "all", []Need{hardware}, "skip: needs PMU: none here (PATHPROF_REQUIRE=all leaves hardware out)"},
		{"hardware demanded", "all, hardware", []Need{hardware}, "fatal: PATHPROF_REQUIRE demands PMU: none here"},
		{"only hardware demanded", "hardware", []Need{unmet}, "skip: needs gold: none here"},
		{"no probe", "", []Need{{name: "x"}}, `skip: needs x: need "x" cannot be probed`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv(RequireEnv, tt.env)
			if got := outcome(tt.needs...); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Every need is either met or says what is missing, whatever the machine.
func TestNeeds(t *testing.T) {
	for _, n := range []Need{Root, BPF, PerfEvents, Tracefs, HardwarePMU, Tool("true"), Python("3.11")} {
		t.Logf("%s: %v", n, n.Unmet())
	}
	if err := Tool("no-such-tool-here").Unmet(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("missing tool: got %v, want %v", err, exec.ErrNotFound)
	}
	if err := Python("2.0").Unmet(); err == nil {
		t.Error("Python 2.0: got found, want missing")
	}
}

func TestPythons(t *testing.T) {
	for version, path := range Pythons(t) {
		out, err := exec.Command(path, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != version {
			t.Errorf("%s: got version %q (%v), want %q", path, got, err, version)
		}
		if got := PythonPath(t, version); got != path {
			t.Errorf("PythonPath(%s): got %s, want %s", version, got, path)
		}
	}
	for _, i := range Interpreters() {
		t.Log(i.Version, i.Path)
	}
	sorted := slices.IsSortedFunc(Interpreters(), func(a, b Interpreter) int {
		return compareVersions(a.Version, b.Version)
	})
	if !sorted {
		t.Errorf("interpreters are not sorted: %v", Interpreters())
	}
}

func TestChild(t *testing.T) {
	python := anyPython(t)
	c := Start(t, python, filepath.Join("testdata", "echo.py"))
	c.Say("hello")
	if got, want := c.Line(), "HELLO"; got != want {
		t.Errorf("line: got %q, want %q", got, want)
	}
	c.Say("more")
	c.CloseStdin()
	if got, want := c.Lines(), []string{"MORE"}; !slices.Equal(got, want) {
		t.Errorf("rest: got %q, want %q", got, want)
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("wait: got %v, want exit status 3", err)
	}
	if got, want := c.Stderr(), "done\n"; got != want {
		t.Errorf("stderr: got %q, want %q", got, want)
	}
}

// A grandchild that keeps the output open must neither outlive the test nor
// keep its cleanup waiting.
func TestChildGroup(t *testing.T) {
	python := anyPython(t)
	var grandchild string
	t.Run("run", func(t *testing.T) {
		c := StartSource(t, python, "parent", `
import subprocess, sys, time
p = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready"); print(p.pid); sys.stdout.flush()
time.sleep(600)
`)
		grandchild = c.Line()
	})
	// The signal is sent; the kernel delivers it when the grandchild runs.
	for deadline := time.Now().Add(patience); alive(grandchild); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("grandchild %s lives", grandchild)
		}
	}
}

func alive(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ") && !strings.Contains(string(stat), ") X ")
}

func TestLeakedFiles(t *testing.T) {
	before := map[string]string{"0": "/dev/null", "3": "pipe:[1]", "4": "/a"}
	after := map[string]string{"0": "/dev/null", "3": "pipe:[2]", "5": "/b"}
	want := []string{"3 -> pipe:[2]", "5 -> /b"}
	if got := leakedFiles(before, after); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCheckLeaks(t *testing.T) {
	var leaked *os.File
	stop := make(chan struct{})
	tests := []struct {
		name string
		run  func() int
		want int
	}{
		{"clean", func() int { return 0 }, 0},
		{"failed", func() int { return 2 }, 2},
		{"file", func() int { leaked, _ = os.Open(os.DevNull); return 0 }, 1},
		{"goroutine", func() int { go func() { <-stop }(); return 0 }, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := checkLeaks(tt.run, 50*time.Millisecond); got != tt.want {
				t.Errorf("got status %d, want %d", got, tt.want)
			}
		})
	}
	close(stop)
	leaked.Close()
}

func anyPython(t *testing.T) string {
	t.Helper()
	for _, path := range Pythons(t) {
		return path
	}
	return ""
}
