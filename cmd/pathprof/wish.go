// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pathprof/calibrate"
	"pathprof/perfevent"
	"pathprof/perfevent/recording"
)

// calibrate takes the machine's calibration, if there is one, and has it choose
// the period where a margin, a segment or an overhead was asked for.
func (f *recordFlags) calibrate(cmd *cobra.Command, e *env, opt *recordOptions) error {
	opt.warn = func(list []string) {
		for _, w := range list {
			fmt.Fprintf(e.stderr, "pathprof: warning: %s\n", w)
		}
	}
	r, err := loadCalibration(e.getenv)
	if err == nil {
		opt.calibrated = r
	}
	if !f.wish.given() {
		return nil
	}
	w, wrong := f.wish.wish()
	if wrong != nil {
		return usagef(cmd, "%w", wrong)
	}
	if !opt.event.IsAuto() && opt.event.String() != perfevent.CPUClock.String() {
		return usagef(cmd, "--margin and the like are known for cpu-clock, not for %s", opt.event)
	}
	if err != nil {
		return fmt.Errorf("no period chosen: %w", err)
	}
	a := calibrate.NewModel(r.Overhead).Advise(w)
	if !a.Possible {
		return fmt.Errorf("no period for %s", adviceText(&a))
	}
	opt.event = perfevent.CPUClock
	// As it is: it is no round number.
	opt.period = perfevent.Period{Value: uint64(a.AdvisedNs) | 1}
	opt.asked["period"] = opt.period.String()
	fmt.Fprintf(e.stderr, "pathprof: %s\n", adviceText(&a))
	return nil
}

// calibrationOf is what a recording keeps of a calibration: what it says of the
// period in use. nil where it says nothing: without one, or of another event.
func calibrationOf(r *calibrate.Result, info perfevent.Info) *recording.Calibration {
	if r == nil || info.Event.String() != perfevent.CPUClock.String() || info.Period == 0 {
		return nil
	}
	m, period := calibrate.NewModel(r.Overhead), float64(info.Period)
	return &recording.Calibration{
		TakenAt: r.TakenAt.Format(time.RFC3339), Python: r.Python.Version,
		SampleNs: m.SampleNs(period), Overhead: m.Overhead(period), Reached: m.Reached(period),
		RMSError: r.Accuracy.RMS, RMSSamples: r.Accuracy.Samples,
	}
}

// unreachable says, before recording begins, why the asked rate will not be
// reached, as far as that is known.
func unreachable(info perfevent.Info, r *calibrate.Result) []string {
	var list []string
	m := readMachine()
	if m.MaxSampleRate > 0 && info.AskedHz > float64(m.MaxSampleRate) {
		list = append(list, fmt.Sprintf("%.0f samples a second will be throttled (%s)", info.AskedHz, rateLimits()))
	}
	if c := calibrationOf(r, info); c != nil && c.Reached < 0.9 {
		list = append(list, fmt.Sprintf("about %.0f samples a second of %.0f are to be expected on this machine",
			c.Reached*info.AskedHz, info.AskedHz))
	}
	return list
}

// rateLimits names the kernel's limits of sampling. The second one lowers the
// first by itself where interrupts of hardware counters take longer than it.
func rateLimits() string {
	m := readMachine()
	return fmt.Sprintf("kernel.perf_event_max_sample_rate=%d, kernel.perf_cpu_time_max_percent=%d",
		m.MaxSampleRate, m.CPUTimeMaxPercent)
}
