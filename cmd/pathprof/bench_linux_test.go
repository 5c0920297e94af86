// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pathprof/calibrate"
	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// BenchmarkSlowdown reports by how much a computing thread at depth 10 is slowed
// while it is recorded at 1 ms, see [slowdown].
func BenchmarkSlowdown(b *testing.B) {
	needRecorder(b)
	log := unitLog(b)
	if err := log.SetDepth(8); err != nil {
		b.Fatal(err)
	}
	child := perftest.Start(b, perftest.PythonPath(b, "3.11"), workload(b, "units.py"), log.Path(), "3600")
	slowdown(b, child.PID, log)
}

// BenchmarkSwitching reports by how much two threads are slowed that switch a
// hundred thousand times a second, by semaphores, and as often as they can, by
// semaphores and by 32 bytes of TCP: the worst that can be recorded.
func BenchmarkSwitching(b *testing.B) {
	needRecorder(b)
	library := filepath.Join(b.TempDir(), "switches.so")
	if out, err := exec.Command("gcc", "-O2", "-shared", "-fPIC", "-pthread", "-o", library, "testdata/switches.c").CombinedOutput(); err != nil {
		b.Skipf("needs gcc: %v\n%s", err, out)
	}
	for _, kind := range [][]string{{"ping", "2000", "20000"}, {"echo", "2000", "0"}, {"ping", "10000", "0"}} {
		b.Run(strings.Join(kind, "-"), func(b *testing.B) {
			log := unitLog(b)
			args := slices.Concat([]string{"testdata/switches.py", library}, kind, []string{log.Path()})
			slowdown(b, perftest.Start(b, perftest.PythonPath(b, "3.11"), args...).PID, log)
		})
	}
}

// benchWindow is long against the start of the recorder, which is not in it.
const benchWindow = time.Second

// slowdown reports the median of the ratios of windows with the recorder to those
// around them, a pair an iteration (-benchtime=20x). low and high are its 95 %
// interval; lost is the most a recorder lost.
func slowdown(b *testing.B, pid int, log *calibrate.UnitLog) {
	path := builtProgram(b)
	var lost []float64
	s := calibrate.Slowdown{Log: log, Width: benchWindow}
	for b.Loop() {
		dir := filepath.Join(b.TempDir(), strconv.Itoa(len(lost)))
		err := s.Pair(b.Context(), func() (off func() error, err error) {
			cmd := exec.Command(path, "record", "-p", strconv.Itoa(pid), "--period", "1ms", "-o", dir, "-d", "1h")
			if err := cmd.Start(); err != nil {
				return nil, err
			}
			time.Sleep(600 * time.Millisecond)
			return func() error {
				return errors.Join(cmd.Process.Signal(os.Interrupt), cmd.Wait())
			}, nil
		})
		if err != nil {
			b.Fatal(err)
		}
		m := openRecording(b, dir).Meta()
		lost = append(lost, float64(m.Loss.Samples+m.Loss.Events))
	}
	e := s.CPU()
	b.ReportMetric(e.Value, "ratio")
	if !math.IsInf(e.High, 0) { // one pair tells no interval
		b.ReportMetric(e.Low, "low")
		b.ReportMetric(e.High, "high")
	}
	b.ReportMetric(slices.Max(lost), "lost")
	b.ReportMetric(0, "ns/op")
}

func unitLog(b testing.TB) *calibrate.UnitLog {
	b.Helper()
	log, err := calibrate.CreateUnitLog(filepath.Join(b.TempDir(), "units.log"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { log.Close() })
	return log
}

// BenchmarkRecorder reports the CPU time the recorder itself takes at 1 ms with
// all CPUs busy, in per cent of one CPU: of the time between two lengths, so that
// its start does not count. lost is what it lost.
func BenchmarkRecorder(b *testing.B) {
	needRecorder(b)
	for range 2 {
		startBusy(b, 1)
	}
	child := startBusy(b, 2)
	for b.Loop() {
		short, _ := recorderCPU(b, child.PID, 2*time.Second)
		long, dir := recorderCPU(b, child.PID, 10*time.Second)
		r := openRecording(b, dir)
		m := r.Meta()
		b.ReportMetric(100*(long-short).Seconds()/8, "%CPU")
		b.ReportMetric(float64(m.Loss.Samples+m.Loss.Events), "lost")
		b.ReportMetric(float64(m.Samples)/10, "samples/s")
		b.ReportMetric(float64(m.Events)/10, "events/s")
	}
}

func recorderCPU(b *testing.B, pid int, d time.Duration) (cpu time.Duration, dir string) {
	b.Helper()
	dir = filepath.Join(b.TempDir(), "r"+d.String())
	cmd := exec.Command(builtProgram(b), "record", "-p", strconv.Itoa(pid), "--period", "1ms", "-o", dir, "-d", d.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), dir
}

func openRecording(b testing.TB, dir string) *recording.Reader {
	b.Helper()
	r, err := recording.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return r
}

// BenchmarkAttach reports the time from the start of the program to the first
// sample of the target, and to the first whose stack is complete: without unwind
// tables from earlier recordings, and with them.
func BenchmarkAttach(b *testing.B) {
	needRecorder(b)
	child := startBusy(b, 1)
	builtProgram(b) // while the cache of its compiler is where it was
	for _, kind := range []string{"cold", "warm"} {
		b.Run(kind, func(b *testing.B) {
			b.Setenv("XDG_CACHE_HOME", b.TempDir())
			if kind == "warm" {
				attach(b, child.PID)
			}
			var first, whole []float64
			for b.Loop() {
				if kind == "cold" {
					b.Setenv("XDG_CACHE_HOME", b.TempDir())
				}
				seen, complete := attach(b, child.PID)
				first, whole = append(first, seen), append(whole, complete)
			}
			b.ReportMetric(calibrate.Median(first), "ms-to-sample")
			b.ReportMetric(calibrate.Median(whole), "ms-to-complete")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// attach records a process, and returns how many ms after the start of the program its
// first sample was taken, and its first with a complete stack; 0 if there was none.
func attach(b *testing.B, pid int) (seen, complete float64) {
	b.Helper()
	dir, path := filepath.Join(b.TempDir(), "r"), builtProgram(b)
	begin := perfevent.MonotonicNow()
	if out, err := exec.Command(path, "record", "-p", strconv.Itoa(pid), "-o", dir, "-d", "300ms").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	r := openRecording(b, dir)
	stacks, err := r.Stacks()
	if err != nil {
		b.Fatal(err)
	}
	for s, err := range r.Samples() {
		if err != nil {
			b.Fatal(err)
		}
		if int(s.PID) != pid {
			continue
		}
		ms := float64(s.Time-begin) / 1e6
		if seen == 0 {
			seen = ms
		}
		st := &stacks[s.Stack]
		if st.PythonStop == recording.StopComplete && st.NativeStop == recording.StopComplete {
			return seen, ms
		}
	}
	return seen, 0
}
