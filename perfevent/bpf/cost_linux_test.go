// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
	"pathprof/pyframes"
	"pathprof/unwind"
	"pathprof/unwind/proc"
)

// costShape is a stack to measure: how deep Python, how deep C below it.
type costShape struct{ python, native int }

var costShapes = []costShape{{5, 0}, {20, 0}, {50, 0}, {100, 0}, {5, 20}, {5, 50}, {5, 100}, {100, 100}}

const (
	costRounds = 5
	costWindow = 300 * time.Millisecond
)

// costRow is what was measured of a shape: frames of the stacks, ns a sample.
type costRow struct{ python, native, ns float64 }

// BenchmarkSampleCost reports what a sample costs by the kernel's own clock of
// BPF programs, over the depth of the stack, and fits
// ns = fixed + python·frames + native·frames. Samples of other processes, and of
// the idle task, return early; what they cost is measured and taken off. The
// clock itself, about that of the floor "empty", is in every figure.
func BenchmarkSampleCost(b *testing.B) {
	perftest.Require(b, perftest.Root, perftest.BPF, perftest.PerfEvents)
	for _, version := range []string{"3.8", "3.11", "3.13"} {
		b.Run(version, func(b *testing.B) {
			for b.Loop() {
				rows := sampleCosts(b, perftest.PythonPath(b, version))
				var text strings.Builder
				fmt.Fprintf(&text, "python  native  ns/sample\n")
				for _, r := range rows {
					fmt.Fprintf(&text, "%6.1f  %6.1f  %9.0f\n", r.python, r.native, r.ns)
				}
				b.Log("\n" + text.String())
				fit := fitCost(rows)
				b.ReportMetric(fit[0], "ns-fixed")
				b.ReportMetric(fit[1], "ns/python-frame")
				b.ReportMetric(fit[2], "ns/native-frame")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// sampleCosts measures every shape in rounds and takes the median of each.
func sampleCosts(b *testing.B, python string) []costRow {
	b.Helper()
	child := perftest.Start(b, python, "testdata/depth.py", builtC(b, "chain", "-shared", "-fPIC"))
	const cpu = 1
	var set unix.CPUSet
	set.Set(cpu % onlineCPUs(b))
	if err := unix.SchedSetaffinity(child.PID, &set); err != nil {
		b.Fatal(err)
	}
	c := openFor(b, child.PID)
	startCounter(b, c, cpu%onlineCPUs(b))
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	early := c.earlyCost(b)
	rounds := make([][]costRow, len(costShapes))
	for range costRounds {
		for i, shape := range costShapes {
			rounds[i] = append(rounds[i], c.costOf(b, child, shape, early))
		}
	}
	var rows []costRow
	for _, r := range rounds {
		slices.SortFunc(r, func(a, b costRow) int { return int(a.ns - b.ns) })
		rows = append(rows, r[len(r)/2])
	}
	return rows
}

// earlyCost is what the program costs where it returns early: for the idle task
// and other processes.
func (c *testCapture) earlyCost(b *testing.B) float64 {
	b.Helper()
	if err := c.RemoveProcess(c.pid); err != nil {
		b.Fatal(err)
	}
	before := programStats(b, c.objects.Sample)
	time.Sleep(costWindow)
	after := programStats(b, c.objects.Sample)
	if err := c.SetProcess(c.pid, c.process); err != nil {
		b.Fatal(err)
	}
	return float64(after.Runtime-before.Runtime) / float64(max(1, after.RunCount-before.RunCount))
}

// costOf lets the program descend and measures its samples there.
func (c *testCapture) costOf(b *testing.B, child *perftest.Child, s costShape, early float64) costRow {
	b.Helper()
	child.Say(fmt.Sprintf("%d %d %d", s.python, s.native, (costWindow + 100*time.Millisecond).Milliseconds()))
	if line := child.Line(); line != "there" {
		b.Fatal(line)
	}
	time.Sleep(20 * time.Millisecond)
	c.drain(b)
	taken := c.samples(b)
	before := programStats(b, c.objects.Sample)
	time.Sleep(costWindow)
	after := programStats(b, c.objects.Sample)
	n := float64(c.samples(b) - taken)
	if line := child.Line(); line != "done" {
		b.Fatal(line)
	}
	python, native := c.drain(b)
	others := float64(after.RunCount-before.RunCount) - n
	if n == 0 {
		b.Fatal("no sample of the program")
	}
	return costRow{python, native, (float64(after.Runtime-before.Runtime) - others*early) / n}
}

// drain empties the rings and returns the median depths of the program's samples.
func (c *testCapture) drain(b *testing.B) (python, native float64) {
	b.Helper()
	var pythons, natives []int
	var rec Record
	if err := c.Poll(&rec, func(r *Record) error {
		if r.Sample {
			pythons = append(pythons, len(r.Stack.Python))
			natives = append(natives, len(r.Stack.Native))
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	if len(pythons) == 0 {
		return 0, 0
	}
	slices.Sort(pythons)
	slices.Sort(natives)
	return float64(pythons[len(pythons)/2]), float64(natives[len(natives)/2])
}

// samples counts overflows on the program.
func (c *testCapture) samples(b *testing.B) (n uint64) {
	b.Helper()
	losses, err := c.Losses()
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range losses {
		n += l.Overflows
	}
	return n
}

// fitCost solves the least squares for fixed, per Python frame, per native frame,
// by Gauss' elimination of the normal equations.
func fitCost(rows []costRow) (x [3]float64) {
	var m [3][4]float64
	for _, r := range rows {
		v := [4]float64{1, r.python, r.native, r.ns}
		for i := range m {
			for j := range v {
				m[i][j] += v[i] * v[j]
			}
		}
	}
	for i := range m {
		for k := range m {
			if f := m[k][i] / m[i][i]; k != i {
				for j := range m[k] {
					m[k][j] -= f * m[i][j]
				}
			}
		}
	}
	for i := range x {
		x[i] = m[i][3] / m[i][i]
	}
	return x
}

func programStats(b testing.TB, p *ebpf.Program) *ebpf.ProgramStats {
	b.Helper()
	s, err := p.Stats()
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func onlineCPUs(b testing.TB) int {
	b.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		b.Fatal(err)
	}
	return set.Count()
}

// testCapture is a capture of one Python process with its unwind tables.
type testCapture struct {
	*Capture
	pid     int32
	process Process
	code    []loadedCode
}

// loadedCode is an executable mapping and its table, nil if it has none.
type loadedCode struct {
	CodeMap
	table *unwind.Table
}

// find is the [unwind.Finder] of the same tables.
func (c *testCapture) find(pc uint64) (table *unwind.Table, bias uint64, ok bool) {
	for _, m := range c.code {
		if m.Start <= pc && pc < m.End {
			return m.table, m.Bias, true
		}
	}
	return nil, 0, false
}

// openFor opens a capture that knows a Python process.
func openFor(b testing.TB, pid int) *testCapture {
	b.Helper()
	c, err := Open(Config{OnlyTargets: true, StacksPerSecond: 1 << 20})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	in, err := pyframes.Find(pid, pyframes.NewCache())
	if err != nil {
		b.Fatal(err)
	}
	t := &testCapture{Capture: c, pid: int32(pid)}
	t.process = Process{Target: true, Maps: 1, Python: &Python{RuntimeAddr: in.RuntimeAddr, Offsets: in.Runtime.Offsets, EvalRanges: in.EvalRanges}}
	t.loadCode(b)
	if err := c.SetProcess(t.pid, t.process); err != nil {
		b.Fatal(err)
	}
	return t
}

// loadCode loads the tables of all files the process has mapped.
func (c *testCapture) loadCode(b testing.TB) {
	b.Helper()
	maps, err := proc.Maps(int(c.pid))
	if err != nil {
		b.Fatal(err)
	}
	var list []CodeMap
	for i := range maps {
		if m := &maps[i]; m.Exec {
			c.code = append(c.code, c.codeOf(b, m))
			list = append(list, c.code[len(c.code)-1].CodeMap)
		}
	}
	if _, err := c.SetCodeMaps(1, list); err != nil {
		b.Fatal(err)
	}
}

func (c *testCapture) codeOf(b testing.TB, m *proc.Mapping) loadedCode {
	b.Helper()
	code := loadedCode{CodeMap: CodeMap{Start: m.Start, End: m.End}}
	f, err := proc.OpenMapped(int(c.pid), *m)
	if err != nil {
		return code // no file: no tables
	}
	defer f.Close()
	if table, err := unwind.BuildTable(f); err == nil {
		code.table = table
		if code.Table, err = c.LoadTable(table); err != nil {
			b.Fatal(err)
		}
	}
	segments, err := unwind.Segments(f)
	if err != nil {
		b.Fatal(err)
	}
	if v, ok := unwind.FileOffsetToVaddr(segments, m.Offset); ok {
		code.Bias = m.Start - v
	}
	return code
}

// startCounter lets a CPU's clock take samples every millisecond.
func startCounter(b testing.TB, c *testCapture, cpu int) {
	b.Helper()
	event, err := perfevent.ParseEvent("cpu-clock")
	if err != nil {
		b.Fatal(err)
	}
	period, err := perfevent.ParsePeriod("1ms", event)
	if err != nil {
		b.Fatal(err)
	}
	counters, err := perfevent.Open(perfevent.Config{Event: event, Period: period})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { counters.Close() })
	for _, fd := range counters.FDs() {
		if fd.CPU == cpu {
			if err := c.AttachCounter(fd.FD); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := counters.Enable(); err != nil {
		b.Fatal(err)
	}
}
