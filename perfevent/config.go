// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"fmt"
	"time"
)

// Config says what to count. The zero value samples [Auto] with its default
// period on all CPUs.
type Config struct {
	// Event to count.
	Event EventSpec
	// Period between samples; the zero value is the event's default.
	Period Period
	// OutOfStep lengthens a period that was given as a time, or the default of a
	// clock, to one that drifts through the rounds of common timers: see the
	// function [OutOfStep].
	OutOfStep bool
	// FreqHz asks for samples a second instead of a period: the kernel then
	// varies the period of all but the clock events, and samples have
	// unequal weights. 0: use the period.
	FreqHz uint64
	// Precise is the attribute precise_ip, 0 to 3, for hardware events. More
	// than the processor can do is lowered. The default is 0, see the
	// package comment.
	Precise int
	// CPUs to count on; nil: all that are online.
	CPUs []int
}

// WithDefaults returns the configuration with what the machine does not decide
// filled in: the period, unless the event is [Auto] or a frequency is asked for.
func (c Config) WithDefaults() Config {
	if c.Period.Value == 0 && c.FreqHz == 0 {
		c.Period.Value = c.Event.DefaultPeriod()
		c.Period.Time = c.Event.IsClock()
	}
	return c
}

// Info says what is really counted.
type Info struct {
	// Event in use, and the one that was asked for.
	Event, AskedEvent EventSpec
	// Note says in words why they differ, or what else is worth knowing;
	// empty if nothing is.
	Note string
	// Period in Event's unit; 0 if the kernel varies it to keep FreqHz.
	Period uint64
	// AskedPeriod is the one that was asked for where Period is another, to keep
	// out of step with timers; else 0.
	AskedPeriod uint64
	// FreqHz that the kernel tries to keep; 0 with a period.
	FreqHz uint64
	// AskedHz is the expected number of overflows a second on a busy CPU; 0
	// where the event has no fixed relation to time.
	AskedHz float64
	// Precise is the precise_ip in use.
	Precise int
	// CPUs with a counter, in order.
	CPUs []int
}

// resolve chooses event and period. noCycles says why hardware cycles cannot be
// had, nil if they can; it is called for auto only, and only if needed.
func (c Config) resolve(noCycles func() error) (Info, error) {
	info := Info{Event: c.Event, AskedEvent: c.Event, Precise: c.Precise}
	switch {
	case c.FreqHz != 0 && c.Period.Value != 0:
		return Info{}, errors.New("both a period and a frequency: choose one")
	case c.Precise < 0 || c.Precise > 3:
		return Info{}, fmt.Errorf("precise %d: must be 0 to 3", c.Precise)
	}
	if c.Event.IsAuto() {
		info.Event, info.Note = c.choose(noCycles)
	}
	if !info.Event.IsHardware() {
		info.Precise = 0
	}
	c.Event = info.Event
	c = c.WithDefaults()
	if c.FreqHz != 0 {
		return info.withFreq(c.FreqHz)
	}
	if err := c.Period.check(info.Event); err != nil {
		return Info{}, err
	}
	info.Period = c.Period.Value
	if c.OutOfStep && c.Period.Time && info.Event.IsClock() {
		info.AskedPeriod = info.Period
		info.Period = uint64(OutOfStep(time.Duration(info.Period)))
	}
	if info.Event.IsClock() {
		info.AskedHz = float64(time.Second) / float64(info.Period)
	}
	return info, nil
}

// choose decides what auto means, and why.
func (c Config) choose(noCycles func() error) (EventSpec, string) {
	if c.Period.Time {
		return CPUClock, "a period in time needs a clock: using cpu-clock"
	}
	if err := noCycles(); err != nil {
		return CPUClock, fmt.Sprintf("no hardware counter here (%v): using cpu-clock", err)
	}
	return Cycles, ""
}

// withFreq sets a frequency. A clock's frequency is a period: the kernel makes
// the same conversion (perf_swevent_init_hrtimer in kernel/events/core.c), but
// done here the samples have a known weight.
func (i Info) withFreq(hz uint64) (Info, error) {
	i.AskedHz = float64(hz)
	if !i.Event.IsClock() {
		i.FreqHz = hz
		return i, nil
	}
	if hz > uint64(time.Second)/minClockPeriodNanos {
		return Info{}, fmt.Errorf("frequency %d: the kernel's clock events take no more than %d",
			hz, uint64(time.Second)/minClockPeriodNanos)
	}
	i.Period = uint64(time.Second) / hz
	return i, Period{Value: i.Period, Time: true}.check(i.Event)
}

// checkRate compares the asked rate with kernel.perf_event_max_sample_rate: the
// kernel refuses a frequency above it, and throttles a period above it.
func (i *Info) checkRate(maxHz uint64) error {
	if i.FreqHz > maxHz {
		return &FeatureError{
			Feature: fmt.Sprintf("sampling at %d Hz", i.FreqHz),
			Hint: fmt.Sprintf("kernel.perf_event_max_sample_rate is %d; ask for less, "+
				"or: sysctl kernel.perf_event_max_sample_rate=%d", maxHz, i.FreqHz),
		}
	}
	if i.AskedHz > float64(maxHz) {
		i.addNote(fmt.Sprintf("%.0f samples a second are above kernel.perf_event_max_sample_rate=%d: "+
			"the kernel will throttle", i.AskedHz, maxHz))
	}
	return nil
}

func (i *Info) addNote(note string) {
	if i.Note != "" {
		i.Note += "; "
	}
	i.Note += note
}
