// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Period is the amount of an event between two samples. The zero value stands
// for the event's default.
type Period struct {
	// Value is the amount: nanoseconds or events.
	Value uint64
	// Time tells that Value was given as a time, which only clock events
	// can keep.
	Time bool
}

// ParsePeriod reads a period for an event: a number with an optional k, M or G,
// or, for the clock events, a time such as 1ms or 100us. A plain number is
// nanoseconds for a clock event. With auto, a time makes [Open] choose
// the clock. An error is a mistake of usage.
func ParsePeriod(text string, e EventSpec) (Period, error) {
	if n, err := parseCount(text); err == nil {
		p := Period{Value: n}
		return p, p.check(e)
	} else if errors.Is(err, strconv.ErrRange) {
		return Period{}, fmt.Errorf("period %q: too large", text)
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return Period{}, fmt.Errorf("period %q: neither a number (1000000, 100k, 1M) nor a time (1ms, 100us)", text)
	}
	if d <= 0 {
		return Period{}, fmt.Errorf("period %q: must be above zero", text)
	}
	p := Period{Value: uint64(d), Time: true}
	return p, p.check(e)
}

// ParseFreq reads a sampling frequency in hertz: a number with an optional k.
// An error is a mistake of usage.
func ParseFreq(text string) (uint64, error) {
	n, err := parseCount(text)
	switch {
	case err != nil:
		return 0, fmt.Errorf("frequency %q: want a number of samples a second, such as 1000 or 4k", text)
	case n == 0:
		return 0, fmt.Errorf("frequency %q: must be above zero", text)
	}
	return n, nil
}

// String is the period in the form [ParsePeriod] reads; empty for the default.
func (p Period) String() string {
	switch {
	case p.Value == 0:
		return ""
	case p.Time && p.Value <= math.MaxInt64:
		return time.Duration(p.Value).String()
	}
	return strconv.FormatUint(p.Value, 10)
}

// check says what makes the period impossible for an event.
func (p Period) check(e EventSpec) error {
	switch {
	case p.Value == 0:
		return errors.New("period 0: must be above zero")
	case p.Time && !e.IsClock() && !e.IsAuto():
		return fmt.Errorf("period %s: %s counts events, not time; give a number of them (such as %d), "+
			"or sample by time with --event cpu-clock", p, e, e.period)
	case p.Value > math.MaxInt64:
		// The kernel refuses the top bit (perf_event_open in
		// kernel/events/core.c).
		return fmt.Errorf("period %s: too large", p)
	case !p.Time && !e.IsClock():
		return nil
	case p.Value < minClockPeriodNanos:
		return fmt.Errorf("period %v: the kernel's clock events take no less than %v",
			time.Duration(p.Value), time.Duration(minClockPeriodNanos))
	case p.Value > maxClockPeriodNanos:
		return fmt.Errorf("period %v: longer than %v (a million events is 1M, a millisecond 1ms)",
			time.Duration(p.Value), time.Duration(maxClockPeriodNanos))
	}
	return nil
}

// parseCount reads digits with an optional k, M or G. It returns an error that
// is [strconv.ErrRange] if the number is one but does not fit.
func parseCount(text string) (uint64, error) {
	digits, scale := text, uint64(1)
	for _, s := range []struct {
		suffix string
		scale  uint64
	}{{"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}} {
		if d, ok := strings.CutSuffix(text, s.suffix); ok {
			digits, scale = d, s.scale
		}
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, err
	}
	if n > math.MaxUint64/scale {
		return 0, strconv.ErrRange
	}
	return n * scale, nil
}
