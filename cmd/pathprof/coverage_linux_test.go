// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/calibrate"
	"pathprof/join"
	"pathprof/perfevent/perftest"
)

// coins is what coins.py says of itself.
type coins struct {
	TID    int32
	Shares map[string]float64
}

// coverage counts stated intervals, and those that hold the truth.
type coverage struct{ stated, inside int }

func (c *coverage) add(holds bool) {
	c.stated++
	if holds {
		c.inside++
	}
}

// String is how many hold of how many.
func (c *coverage) String() string { return fmt.Sprintf("%d/%d", c.inside, c.stated) }

func (c *coverage) part() float64 { return float64(c.inside) / float64(c.stated) }

// wrong tells whether it is no chance that the part is not in [low, high]: counts
// is how many of the intervals are independent of each other.
func (c *coverage) wrong(low, high float64, counts int) bool {
	chance := 4 * math.Sqrt(0.95*0.05/float64(counts))
	return c.stated == 0 || c.part() < low-chance || c.part() > high+chance
}

// coverages of the intervals of one program.
type coverages struct {
	runs      int
	truth     coins
	functions map[string]*coverage
	one       map[string]*coverage // of the longest segment alone
	changes   coverage             // of differences of shares between two recordings, which are none
	sum       map[string]float64   // of shares
	segments  []float64            // of the thread's class, in each recording
	methods   map[join.Method]int
}

// TestLiveCoverage records a program of known shares many times, briefly: the
// intervals have to hold the truth as often as they say, of one segment and of a class of
// many, whether these are alike or differ; and the interval of what changed
// between two recordings of it has to hold nothing. Five recordings of each kind tell gross errors
// only; with PATHPROF_FULL it makes 210 of each, and intervals that are too wide fail, too.
func TestLiveCoverage(t *testing.T) {
	needRecorder(t)
	runs, widest := 5, 1.0
	if os.Getenv("PATHPROF_FULL") != "" {
		runs, widest = 210, 0.97
	}
	for _, mode := range []string{"alike", "differ"} {
		t.Run(mode, func(t *testing.T) {
			child := perftest.Start(t, perftest.PythonPath(t, "3.11"), workload(t, "coins.py"), mode)
			c := coverages{
				runs: runs, sum: map[string]float64{}, methods: map[join.Method]int{},
				functions: map[string]*coverage{"a": {}, "b": {}, "c": {}, "d": {}},
				one:       map[string]*coverage{"a": {}, "b": {}, "c": {}, "d": {}},
			}
			if err := json.Unmarshal([]byte(child.Line()), &c.truth); err != nil {
				t.Fatal(err)
			}
			before := ""
			for tries := 0; len(c.segments) < runs && tries < 2*runs; tries++ {
				dir, ok := c.record(t, child.PID)
				if !ok {
					continue // others had the CPU
				}
				if len(c.segments)%2 == 0 {
					c.compare(t, before, dir)
					os.RemoveAll(before)
					os.RemoveAll(dir)
				}
				before = dir
				if len(c.segments)%50 == 0 {
					t.Logf("after %d: %v, of one segment %v", len(c.segments), c.functions, c.one)
				}
			}
			c.judge(t, widest)
		})
	}
}

// record makes one recording and counts what it states, if there is anything.
func (c *coverages) record(t *testing.T, pid int) (dir string, ok bool) {
	t.Helper()
	cmd, dir := startRecorder(t, "-p", fmt.Sprint(pid), "--scope", "process", "--period", "250us", "-d", "700ms")
	// Others would cut it into pieces too short to tell anything.
	undo := uninterrupted(t, pid)
	time.Sleep(700 * time.Millisecond)
	undo()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	r := report(t, dir, "--segments")
	p := pathOf(t, &r, c.truth.TID)
	class := ownRunning(p)
	if class == nil || class.Samples < 200 {
		return dir, false
	}
	c.segments = append(c.segments, float64(class.Segments))
	for _, f := range class.Functions {
		if c.functions[f.Name] != nil {
			c.methods[f.Method]++
		}
	}
	for name, f := range sharesOf(class) {
		c.sum[name] += f.Share
		c.functions[name].add(f.Low <= c.truth.Shares[name] && c.truth.Shares[name] <= f.High)
	}
	c.longest(t, dir, p)
	return dir, true
}

// uninterrupted has the kernel prefer a thread to all others, until undo.
func uninterrupted(t *testing.T, tid int) (undo func()) {
	t.Helper()
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
	if err := unix.SchedSetAttr(tid, &attr, 0); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := unix.SchedSetAttr(tid, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// longest counts what the longest segment states by itself.
func (c *coverages) longest(t *testing.T, dir string, p *join.PathReport) {
	t.Helper()
	longest := join.SegmentReport{} // of mode "differ" some 10 ms, and too few samples
	for _, s := range p.Segments {
		if s.Depth == 0 && s.State == "running" && s.EndNs-s.BeginNs > longest.EndNs-longest.BeginNs {
			longest = s
		}
	}
	at := func(ns int64) string { return time.Duration(ns - p.BeginNs).String() }
	r := report(t, dir, "--from", at(longest.BeginNs), "--to", at(longest.EndNs))
	class := ownRunning(pathOf(t, &r, p.TID))
	if class == nil || class.Samples < 30 {
		return
	}
	for name, f := range sharesOf(class) {
		c.one[name].add(f.Low <= c.truth.Shares[name] && c.truth.Shares[name] <= f.High)
	}
}

// sharesOf are the functions of coins.py in a class; one without a sample has
// the interval of none.
func sharesOf(class *join.ClassReport) map[string]join.Estimate {
	out := map[string]join.Estimate{}
	for _, name := range []string{"a", "b", "c", "d"} {
		e := join.Estimate{}
		e.Low, e.High = join.Wilson(0, class.Samples)
		out[name] = e
	}
	for _, f := range class.Functions {
		if _, ok := out[f.Name]; ok {
			out[f.Name] = f.Estimate
		}
	}
	return out
}

// compare counts the differences of two recordings. Of the time on a CPU there may
// be some: others leave more of it or less.
func (c *coverages) compare(t *testing.T, a, b string) {
	t.Helper()
	var diff join.Comparison
	if err := json.Unmarshal([]byte(mustRun(t, "diff", "--json", a, b)), &diff); err != nil {
		t.Fatal(err)
	}
	for _, d := range diff.Threads[0].Rows {
		if c.functions[d.Function] != nil && d.Wait == "" && d.State == "running" && d.Points.Low != nil {
			c.changes.add(*d.Points.Low <= 0 && 0 <= *d.Points.High)
		}
	}
}

// judge demands what the intervals state.
func (c *coverages) judge(t *testing.T, widest float64) {
	t.Helper()
	all, one, made := coverage{}, coverage{}, len(c.segments)
	if made < c.runs {
		t.Skipf("%d recordings of %d: others have the CPUs", made, c.runs)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		f, o := c.functions[name], c.one[name]
		t.Logf("%s: true share %.4f, mean of %d recordings %.4f; %d intervals stated, %d hold it (%.3f); of one segment %d, %d (%.3f)",
			name, c.truth.Shares[name], made, c.sum[name]/float64(made), f.stated, f.inside, f.part(), o.stated, o.inside, o.part())
		all.stated, all.inside = all.stated+f.stated, all.inside+f.inside
		one.stated, one.inside = one.stated+o.stated, one.inside+o.inside
		if made >= 50 && f.wrong(0.93, widest, made) {
			t.Errorf("%s: %d of %d intervals hold the truth", name, f.inside, f.stated)
		}
	}
	// Four functions of a recording depend on each other: as good as two.
	if all.stated < 2*c.runs || all.wrong(0.93, widest, 2*c.runs) {
		t.Errorf("%d of %d intervals hold the truth", all.inside, all.stated)
	}
	if one.stated > 0 && one.wrong(0.93, widest, one.stated/2) {
		t.Errorf("%d of %d intervals of one segment hold the truth", one.inside, one.stated)
	}
	t.Logf("%d of %d hold (%.3f); methods %v; a median of %g segments", all.inside, all.stated, all.part(), c.methods, calibrate.Median(c.segments))
	t.Logf("of one segment, %d of %d hold (%.3f)", one.inside, one.stated, one.part())
	t.Logf("between two recordings, %d of %d intervals hold no change (%.3f)", c.changes.inside, c.changes.stated, c.changes.part())
	if c.changes.wrong(0.93, 1, c.runs/2) {
		t.Errorf("between two recordings, %d of %d intervals hold no change", c.changes.inside, c.changes.stated)
	}
}

// ownRunning is the class of what a path's thread ran itself, nil if there is none.
func ownRunning(p *join.PathReport) *join.ClassReport {
	for i := range p.Classes {
		if c := &p.Classes[i]; c.Wait == nil && c.State == "running" && c.TID == p.TID {
			return c
		}
	}
	return nil
}
