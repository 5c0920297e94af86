// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// quotaGroup makes a control group with 20 ms of every 100 ms, v1 or v2.
func quotaGroup(t *testing.T) string {
	t.Helper()
	for base, files := range map[string]map[string]string{
		"/sys/fs/cgroup/cpu": {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
		"/sys/fs/cgroup":     {"cpu.max": "20000 100000"},
	} {
		dir := filepath.Join(base, "pathprof-quota-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		_, err := os.Stat(filepath.Join(dir, "cpu.stat"))
		for name, text := range files {
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0) // exists
			}
		}
		if err == nil {
			return dir
		}
	}
	t.Skip("no control group with a CPU limit can be made here")
	return ""
}

// quotaSource computes in a child that moves itself into the limited group: who
// records the parent meets that group only when its limit takes effect.
const quotaSource = `
import os, sys, time
print("ready", flush=True)
for line in sys.stdin:
    open(sys.argv[1] + "/cgroup.procs", "w").write(str(os.getpid()))
    end = time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        pass
    open(os.path.dirname(sys.argv[1]) + "/cgroup.procs", "w").write(str(os.getpid()))
    print("done", flush=True)
    break
sys.stdin.readline()
`

// Under a limit of 20 % of a CPU almost all of the time off the CPU is said to be
// the limit's, with the group's name, its quota and period and how often it took
// effect. Beside others, of course, they take some of it; then what the kernel
// counts must be there.
func TestQuota(t *testing.T) {
	needRecorder(t)
	perftest.Require(t, perftest.Python("3.11"))
	idle := os.Getenv("PATHPROF_FULL") == "1" // the machine is ours
	seconds, competitors := "1", []int{2}
	if idle {
		seconds, competitors = "5", []int{0, 2}
	}
	for _, others := range competitors {
		t.Run(strconv.Itoa(others)+" others", func(t *testing.T) {
			dir := quotaGroup(t)
			child := perftest.StartSource(t, perftest.PythonPath(t, "3.11"), "quota", quotaSource, dir, seconds)
			t.Cleanup(func() { child.Kill(); child.Wait() }) // before the group is removed
			for range others {
				startBusy(t, 10)
			}
			cmd, rec := startRecorder(t, "-p", strconv.Itoa(child.PID), "--period", "1ms")
			child.Say("go")
			if line := child.Line(); line != "done" {
				t.Fatal(line)
			}
			child.CloseStdin()
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			r := report(t, rec, "--segments")
			limited, off := offCPU(pathOf(t, &r, int32(child.PID)))
			throttled := throttledNs(t, dir)
			t.Logf("%d ms of %d off the CPU because of the limit; the kernel counts %d", limited/1e6, off/1e6, throttled/1e6)
			if throttled == 0 && !idle {
				t.Skip("the machine is so busy that the limit takes no effect")
			}
			if throttled == 0 || limited < throttled*7/10 {
				t.Errorf("%d ns because of the limit, the kernel counts %d", limited, throttled)
			}
			if idle && others == 0 && limited*100 < off*95 {
				t.Errorf("%d ns of %d because of the limit", limited, off)
			}
			text := mustRun(t, "report", rec)
			for _, want := range []string{filepath.Base(dir), "20ms of every 100ms"} {
				if !strings.Contains(text, want) {
					t.Errorf("no %q in\n%s", want, text)
				}
			}
		})
	}
}

// offCPU sums up the time in which a thread could run and did not, and how much of
// it was a limit's.
func offCPU(p *join.PathReport) (limited, off int64) {
	for _, s := range p.Segments {
		if s.Depth != 0 || s.State != "preempted" {
			continue
		}
		off += s.EndNs - s.BeginNs
		if s.Cause != nil && s.Cause.Kind == "cpu-limit" {
			limited += s.EndNs - s.BeginNs
		}
	}
	return limited, off
}

// throttledNs is what the kernel counted of a group.
func throttledNs(t *testing.T, dir string) int64 {
	t.Helper()
	l := newLimits()
	l.add(dir, dir)
	if l.groups[dir] == nil {
		t.Fatal("no counts of the group")
	}
	return l.groups[dir].throttled
}
