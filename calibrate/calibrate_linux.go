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

// times is how long each part takes.
type times struct {
	accuracySamples         int
	cprofile, cost          time.Duration
	overhead, events, phase time.Duration // overhead: of each period
}

func (o *Options) times() times {
	t := times{
		accuracySamples: 30_000, cprofile: 4 * time.Second, cost: 10 * time.Second,
		overhead: 12 * time.Second, events: 2 * time.Second, phase: 3 * time.Second,
	}
	if o.Quick {
		t = times{
			accuracySamples: 8000, cprofile: 1500 * time.Millisecond, cost: 3500 * time.Millisecond,
			overhead: 2 * time.Second, events: 500 * time.Millisecond, phase: time.Second,
		}
	}
	if o.Samples > 0 {
		t.accuracySamples = o.Samples
	}
	return t
}

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
	back, err := b.keepOff()
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
	r.warn()
	r.TookNs = time.Since(begin).Nanoseconds()
	return r, nil
}

// measure runs the parts one after the other.
func (b *bench) measure(ctx context.Context, r *Result) (err error) {
	t := b.opt.times()
	period, length, err := accuracyRun(t.accuracySamples)
	if err != nil {
		return err
	}
	n := time.Duration(len(overheadPeriods))
	total := length + t.cprofile + t.cost + n*t.overhead + t.events + 4*t.phase
	var done time.Duration
	part := func(what string, d time.Duration) func(float64) {
		begin := done
		done += d
		tick := func(x float64) {
			if b.opt.Progress != nil {
				b.opt.Progress(what, (float64(begin)+x*float64(d))/float64(total))
			}
		}
		tick(0)
		return tick
	}
	part("accuracy", length+t.cprofile)
	if r.Accuracy, err = b.measureAccuracy(ctx, period, length, t.cprofile); err != nil {
		return fmt.Errorf("accuracy: %w", err)
	}
	if r.Cost, err = b.measureCost(ctx, t.cost, part("cost of a sample", t.cost)); err != nil {
		return fmt.Errorf("cost of a sample: %w", err)
	}
	if r.Overhead, err = b.measureOverhead(ctx, t.overhead, part("overhead", n*t.overhead)); err != nil {
		return fmt.Errorf("overhead: %w", err)
	}
	part("events", t.events)
	if r.Overhead.Events, err = b.measureEvents(ctx, t.events); err != nil {
		return fmt.Errorf("events: %w", err)
	}
	if r.Phase, err = b.measurePhase(ctx, t.phase, part("phase", 4*t.phase)); err != nil {
		return fmt.Errorf("phase: %w", err)
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
