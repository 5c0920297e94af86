// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// usualWishes are those of the thesis (figure 6.5): a segment of 50 ms, once and
// repeated.
func usualWishes() []Wish {
	var list []Wish
	for _, n := range []int{1, 10, 100} {
		list = append(list, Wish{SegmentNs: 50_000_000, Repetitions: n, MaxOverhead: 0.10, MaxMargin: 0.05})
	}
	return list
}

// wholeTime and quickTime are what a calibration may take; the promise is two
// minutes and half a minute, also where the last part finds no time left.
const (
	wholeTime = 105 * time.Second
	quickTime = 23 * time.Second
)

// The weights of the parts: their seconds of a hundred.
const (
	weightAccuracy = 16
	weightCProfile = 4
	weightCost     = 11
	weightOverhead = 52
	weightEvents   = 3
	weightPhase    = 11
	weightSkid     = 3
)

// Run calibrates.
func Run(ctx context.Context, opt Options) (r Result, err error) {
	begin := time.Now()
	r = Result{Format: FormatVersion, Machine: ReadMachine(), TakenAt: begin.UTC().Truncate(time.Second), Quick: opt.Quick, Warnings: []string{}}
	if r.Python, err = askPython(ctx, opt.Python); err != nil {
		return r, err
	}
	b, err := newBench(opt)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	back, err := KeepOff(b.cpu)
	if err != nil {
		return r, err
	}
	defer back()
	if err := b.measure(ctx, &r); err != nil {
		return r, err
	}
	if r.Cost.Interrupt, _ = interruptNs(r.Overhead.Points); r.Cost.Interrupt.Value == 0 {
		r.Warnings = append(r.Warnings, "the cost of an interrupt was not seen: the kernel may not count interrupts as time "+
			"of threads (CONFIG_IRQ_TIME_ACCOUNTING), or the machine is too busy")
	}
	if opt.Wishes == nil {
		opt.Wishes = usualWishes()
	}
	model := NewModel(r.Overhead)
	for _, w := range opt.Wishes {
		r.Advice = append(r.Advice, model.Advise(w))
	}
	r.Warnings = append(r.Warnings, b.warnings...)
	r.warn()
	r.TookNs = time.Since(begin).Nanoseconds()
	return r, nil
}

// measure runs the parts one after the other.
func (b *bench) measure(ctx context.Context, r *Result) error {
	whole, asked := wholeTime, accuracyRun{}
	if b.opt.Quick {
		whole = quickTime
	}
	if b.opt.Samples > 0 {
		var err error
		if asked, err = runFor(b.opt.Samples); err != nil {
			return err
		}
		whole += asked.length
	}
	const parts = weightAccuracy + weightCProfile + weightCost + weightOverhead + weightEvents + weightPhase + weightSkid
	s := newSchedule(time.Now, whole, parts)
	defer s.tell(b.opt.Progress)()
	for _, part := range []struct {
		name    string
		weight  float64
		measure func(time.Duration) error
	}{
		{"accuracy", weightAccuracy, func(d time.Duration) (err error) {
			run := asked
			if run.length == 0 {
				run = runWithin(b.within(d, leastAccuracy))
			}
			r.Accuracy, err = b.measureAccuracy(ctx, run)
			return err
		}},
		{"cProfile", weightCProfile, func(d time.Duration) error { return b.measureCProfile(ctx, &r.Accuracy, d) }},
		{"cost of a sample", weightCost, func(d time.Duration) (err error) { r.Cost, err = b.measureCost(ctx, d); return err }},
		{"overhead", weightOverhead, func(d time.Duration) (err error) { r.Overhead, err = b.measureOverhead(ctx, d); return err }},
		{"events", weightEvents, func(d time.Duration) (err error) { r.Overhead.Events, err = b.measureEvents(ctx, d); return err }},
		{"phase", weightPhase, func(d time.Duration) (err error) { r.Phase, err = b.measurePhase(ctx, d); return err }},
		{"skid", weightSkid, func(d time.Duration) (err error) { r.Phase.Skid, err = b.measureSkid(ctx, d); return err }},
	} {
		if err := part.measure(s.part(part.name, part.weight)); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// warn says in words what the numbers show that should not be.
func (r *Result) warn() {
	say := func(format string, args ...any) { r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...)) }
	if r.Accuracy.Biased {
		say("the mean error of a function is not chance: shares are biased")
	}
	for i := range r.Overhead.Points {
		p := &r.Overhead.Points[i]
		if p.AchievedHz < 0.95*p.AskedHz {
			say("a period of %v is not reached: %.0f of %.0f samples a second (kernel.perf_event_max_sample_rate=%d)",
				time.Duration(p.PeriodNs), p.AchievedHz, p.AskedHz, r.Machine.MaxSampleRate)
		}
		if p.Throttled > 0 {
			say("a period of %v: the kernel throttled %d times (kernel.perf_event_max_sample_rate=%d, kernel.perf_cpu_time_max_percent=%d)",
				time.Duration(p.PeriodNs), p.Throttled, r.Machine.MaxSampleRate, r.Machine.CPUTimeMaxPercent)
		}
	}
}

func askPython(ctx context.Context, path string) (Python, error) {
	out, err := exec.CommandContext(ctx, path, "-S", "-E", "-c",
		`import sys; print("%d.%d.%d" % sys.version_info[:3])`).Output()
	if err != nil {
		return Python{}, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return Python{Path: path, Version: strings.TrimSpace(string(out))}, nil
}
