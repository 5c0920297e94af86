// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"pathprof/calibrate"
)

// calibrationText prints a calibration for people.
type calibrationText struct {
	screen
	r *calibrate.Result
}

func (t calibrationText) write() {
	m := &t.r.Machine
	fmt.Fprintf(t.w, "%s, Linux %s, %s, %d CPUs; CPython %s; %s; %.0f s\n",
		m.Host, m.Kernel, or(m.CPU, m.Arch), m.CPUs, t.r.Python.Version, t.r.Accuracy.Event, float64(t.r.TookNs)/1e9)
	t.accuracy()
	t.cost()
	t.overhead()
	t.phase()
	t.advice()
	for _, w := range t.r.Warnings {
		fmt.Fprintln(t.w, t.warn(t.wrap("warning: "+w, 4)))
	}
}

func (t calibrationText) head(format string, args ...any) {
	fmt.Fprintf(t.w, "\n%s\n", t.bold(t.wrap(fmt.Sprintf(format, args...), 4)))
}

func (t calibrationText) print(g table.Writer) { fmt.Fprintln(t.w, indent(g.Render(), 2)) }

func right(titles ...string) []column {
	var list []column
	for _, s := range titles {
		list = append(list, column{title: s, right: true})
	}
	return list
}

func (t calibrationText) accuracy() {
	a := &t.r.Accuracy
	t.head("Accuracy: ten functions with known shares, %d samples of %v", a.Samples, time.Duration(a.PeriodNs))
	g := t.grid(append([]column{{title: "function"}}, right("truth", "sampled", "95 % interval", "mean error", "cProfile", "its truth")...)...)
	for _, f := range a.Functions {
		row := table.Row{f.Name, points(f.Truth), points(f.Share.Value),
			fmt.Sprintf("%.2f – %.2f", 100*f.Share.Low, 100*f.Share.High),
			interval(f.MeanError, "%+.2f")}
		if f.CProfile != nil {
			row = append(row, points(*f.CProfile), points(*f.CProfileTruth))
		}
		g.AppendRow(row)
	}
	t.print(g)
	verdict := "no bias: every mean error is within its own interval"
	if a.Biased {
		verdict = "biased: a mean error is not within its own interval"
	}
	text := fmt.Sprintf("RMS error %.3f points (chance alone: %.3f)", a.RMS, a.ExpectedRMS)
	if a.CProfileRMS != nil {
		text += fmt.Sprintf(", of cProfile %.3f", *a.CProfileRMS)
	}
	text += fmt.Sprintf("; %s; %d of %d intervals miss the truth; lost %d, throttled %d",
		verdict, a.Missed, len(a.Functions), a.Lost, a.Throttled)
	fmt.Fprintln(t.w, "  "+t.wrap(text, 2))
}

func points(share float64) string { return fmt.Sprintf("%.2f %%", 100*share) }

// nanos is an estimate in nanoseconds.
func nanos(e calibrate.Estimate) string {
	return interval(e, "%.0f")
}

func (t calibrationText) cost() {
	c := &t.r.Cost
	t.head("Cost of a sample by depth, ns, at %v (clock readings included)", time.Duration(c.PeriodNs))
	g := t.grid(right("Python frames", "total", "native walk", "Python walk", "kernel", "rest", "samples")...)
	for _, d := range c.Depths {
		g.AppendRow(table.Row{d.Depth, nanos(d.Total), fmt.Sprintf("%.0f", d.Native.Value), fmt.Sprintf("%.0f", d.Python.Value),
			fmt.Sprintf("%.0f", d.Kernel.Value), fmt.Sprintf("%.0f", d.Rest.Value), d.Samples})
	}
	t.print(g)
	for _, f := range []struct {
		name string
		fit  calibrate.Fit
	}{{"total", c.Total}, {"native", c.Native}, {"Python", c.Python}} {
		fmt.Fprintf(t.w, "  %-7s %.0f + %.1f × depth   (%.0f … %.0f, %.1f … %.1f)\n", f.name, f.fit.Base.Value, f.fit.Slope.Value,
			f.fit.Base.Low, f.fit.Base.High, f.fit.Slope.Low, f.fit.Slope.High)
	}
	if c.Interrupt.Value > 0 {
		fmt.Fprintf(t.w, "  before that, the timer interrupt with an empty program: %s ns\n", nanos(c.Interrupt))
	}
}

func (t calibrationText) overhead() {
	o := &t.r.Overhead
	t.head("Overhead of a computing thread, depth %d: CPU time of equal work with the counter, over without", o.Depth)
	g := t.grid(right("period", "slowdown", "floor", "over floor", "by statistics", "asked /s", "achieved", "throttled", "lost")...)
	for i := range o.Points {
		p := &o.Points[i]
		over, stats := "-", "-"
		if p.OverFloor != nil {
			over = fmt.Sprintf("%.2f [%.2f, %.2f]", p.OverFloor.Value, p.OverFloor.Low, p.OverFloor.High)
		}
		if p.ByStatistics > 0 {
			stats = fmt.Sprintf("%.4f", p.ByStatistics)
		}
		g.AppendRow(table.Row{time.Duration(p.PeriodNs), ratio(p.Slowdown), ratio(p.Floor), over, stats,
			fmt.Sprintf("%.0f", p.AskedHz), fmt.Sprintf("%.0f", p.AchievedHz), p.Throttled, p.Lost})
	}
	t.print(g)
	fmt.Fprintf(t.w, "  floor: the same counter with an empty program; statistics: of the kernel, plus the interrupt\n")
	e := &o.Events
	fmt.Fprintf(t.w, "  switches and wake-ups: %.0f a second at %.0f ns each, %.1f %% of a CPU; lost %d\n",
		e.PerSecond, e.EventNs, 100*e.Share, e.Lost)
}

func ratio(e calibrate.Estimate) string { return interval(e, "%.3f") }

// interval is an estimate with its ends, if they are known.
func interval(e calibrate.Estimate, format string) string {
	switch {
	case math.IsNaN(e.Value):
		return "-"
	case math.IsInf(e.Low, 0) || math.IsInf(e.High, 0):
		return fmt.Sprintf(format+" [too few]", e.Value)
	}
	return fmt.Sprintf(format+" ["+format+", "+format+"]", e.Value, e.Low, e.High)
}

func (t calibrationText) phase() {
	p := &t.r.Phase
	t.head("Phase: a program in step with the clock (%v), sampled", time.Duration(p.RoundNs))
	g := t.grid(append([]column{{title: ""}}, right("period", "truth", "sampled", "95 % interval", "samples")...)...)
	for _, w := range p.Ways {
		g.AppendRow(table.Row{w.Way, time.Duration(w.PeriodNs), points(w.Truth), points(w.Share.Value),
			fmt.Sprintf("%.1f – %.1f", 100*w.Share.Low, 100*w.Share.High), w.Samples})
	}
	t.print(g)
	k := &p.Skid
	fmt.Fprintf(t.w, "  skid: of %d samples %.1f %% show the line that ran, %.1f %% its neighbour, %.1f %% another\n",
		k.Samples, 100*k.Exact, 100*k.Next, 100*k.Far)
	if k.LateNs != nil && k.Late99Ns != nil {
		fmt.Fprintf(t.w, "  the timer is %.1f µs late (median), %.1f µs (99 %%)\n", *k.LateNs/1e3, *k.Late99Ns/1e3)
	}
}

func (t calibrationText) advice() {
	t.head("Advice")
	for _, a := range t.r.Advice {
		fmt.Fprintln(t.w, "  "+t.wrap(adviceText(&a), 4))
	}
}

// adviceText is one advice in a sentence or two.
func adviceText(a *calibrate.Advice) string {
	what := fmt.Sprintf("a segment of %v", time.Duration(a.SegmentNs))
	if a.Repetitions > 1 {
		what = fmt.Sprintf("%d segments of %v", a.Repetitions, time.Duration(a.SegmentNs))
	}
	limits := fmt.Sprintf("overhead below %.3g %% and margin below %.3g points", 100*a.MaxOverhead, 100*a.MaxMargin)
	if a.Possible {
		return fmt.Sprintf("%s, %s: periods from %v to %v; %v gives %.2g %% and ±%.2g points", what, limits,
			roundPeriod(a.ShortestNs), roundPeriod(a.LongestNs), roundPeriod(a.AdvisedNs), 100*a.Overhead, 100*a.Margin)
	}
	if a.ShortestNs == 0 {
		return fmt.Sprintf("%s, %s: no period keeps the overhead", what, limits)
	}
	why := fmt.Sprintf("%s, %s: none; the overhead wants at least %v", what, limits, roundPeriod(a.ShortestNs))
	if a.LongestNs > 0 {
		why += fmt.Sprintf(", the margin at most %v", roundPeriod(a.LongestNs))
	}
	if a.LeastRepetitions > 0 {
		why += fmt.Sprintf("; %d repetitions of it would do", a.LeastRepetitions)
	}
	return why
}

// roundPeriod leaves out what nobody reads.
func roundPeriod(ns int64) time.Duration {
	d := time.Duration(ns)
	for unit := time.Second; unit >= time.Microsecond; unit /= 10 {
		if d >= 100*unit {
			return d.Round(unit)
		}
	}
	return d
}
