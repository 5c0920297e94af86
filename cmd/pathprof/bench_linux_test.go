// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
	"pathprof/perfevent/recording"
)

// unitSource works in equal units and prints, for each, when it ended and the
// CPU time it took: interrupts and BPF programs fall on the interrupted thread's
// clock, so that is where a profiler's cost shows.
const unitSource = `
import sys, threading, time
def unit(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x
def deep(depth, n):
    return unit(n) if depth == 0 else deep(depth - 1, n)
n = 20000
print("ready", flush=True)
while True:
    before = time.thread_time_ns()
    deep(8, n)
    print(time.monotonic_ns(), time.thread_time_ns() - before, flush=True)
`

// BenchmarkSlowdown reports by how much a computing thread at depth 10 is slowed
// while it is recorded at 1 ms, see [slowdown].
func BenchmarkSlowdown(b *testing.B) {
	needRecorder(b)
	slowdown(b, perftest.StartSource(b, perftest.PythonPath(b, "3.11"), "unit.py", unitSource))
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
			args := append([]string{"testdata/switches.py", library}, kind...)
			slowdown(b, perftest.Start(b, perftest.PythonPath(b, "3.11"), args...))
		})
	}
}

// slowdown reports the median of the ratios of windows with the recorder to the
// windows around them, a pair an iteration (-benchtime=20x), in one running
// process, since two starts of one program differ by more than that. low and high
// are the 95 % bootstrap interval of the median; lost is the most a recorder lost.
func slowdown(b *testing.B, child *perftest.Child) {
	path := builtProgram(b)
	var ratios, lost []float64
	before := unitCost(b, child, time.Second)
	for b.Loop() {
		dir := filepath.Join(b.TempDir(), strconv.Itoa(len(ratios)))
		cmd := exec.Command(path, "record", "-p", strconv.Itoa(child.PID), "--period", "1ms", "-o", dir, "-d", "1h")
		if err := cmd.Start(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(600 * time.Millisecond) // its start is not what is measured
		on := unitCost(b, child, time.Second)
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			b.Fatal(err)
		}
		m := openRecording(b, dir).Meta()
		lost = append(lost, float64(m.Loss.Samples+m.Loss.Events))
		after := unitCost(b, child, time.Second)
		ratios = append(ratios, on/((before+after)/2))
		before = after
	}
	low, high := bootstrapMedian(ratios)
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(low, "low")
	b.ReportMetric(high, "high")
	b.ReportMetric(slices.Max(lost), "lost")
	b.ReportMetric(0, "ns/op")
}

// unitCost is the median CPU time of the units that end within a window.
func unitCost(b *testing.B, child *perftest.Child, window time.Duration) float64 {
	b.Helper()
	begin := perfevent.MonotonicNow()
	var costs []float64
	for {
		at, cost, ok := strings.Cut(child.Line(), " ")
		end, err1 := strconv.ParseInt(at, 10, 64)
		ns, err2 := strconv.ParseFloat(cost, 64)
		if !ok || err1 != nil || err2 != nil {
			b.Fatalf("unit: %q %q", at, cost)
		}
		if end < begin {
			continue
		}
		if end > begin+window.Nanoseconds() {
			break
		}
		costs = append(costs, ns)
	}
	if len(costs) == 0 {
		b.Fatal("no unit within the window")
	}
	return median(costs)
}

func median(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

func bootstrapMedian(list []float64) (low, high float64) {
	rng := rand.New(rand.NewPCG(1, 2))
	medians := make([]float64, 2000)
	draw := make([]float64, len(list))
	for i := range medians {
		for j := range draw {
			draw[j] = list[rng.IntN(len(list))]
		}
		medians[i] = median(draw)
	}
	slices.Sort(medians)
	return medians[len(medians)*25/1000], medians[len(medians)*975/1000]
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

func openRecording(b *testing.B, dir string) *recording.Reader {
	b.Helper()
	r, err := recording.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { r.Close() })
	return r
}

// BenchmarkAttach reports the time from the start of the program to the first
// sample of the target, and to the first whose stack is complete.
func BenchmarkAttach(b *testing.B) {
	needRecorder(b)
	child := startBusy(b, 1)
	path := builtProgram(b)
	var first, whole []float64
	for b.Loop() {
		dir := filepath.Join(b.TempDir(), "r"+strconv.Itoa(len(first)))
		begin := perfevent.MonotonicNow()
		if out, err := exec.Command(path, "record", "-p", strconv.Itoa(child.PID), "-o", dir, "-d", "300ms").CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		r := openRecording(b, dir)
		stacks, err := r.Stacks()
		if err != nil {
			b.Fatal(err)
		}
		seen, complete := 0.0, 0.0
		for s, err := range r.Samples() {
			if err != nil {
				b.Fatal(err)
			}
			if int(s.PID) != child.PID {
				continue
			}
			ms := float64(s.Time-begin) / 1e6
			if seen == 0 {
				seen = ms
			}
			st := &stacks[s.Stack]
			if st.PythonStop == recording.StopComplete && st.NativeStop == recording.StopComplete {
				complete = ms
				break
			}
		}
		first, whole = append(first, seen), append(whole, complete)
	}
	b.ReportMetric(median(first), "ms-to-sample")
	b.ReportMetric(median(whole), "ms-to-complete")
	b.ReportMetric(0, "ns/op")
}
