// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/bpf"
)

// benchDepth is the depth, in frames below the program's main function, of the
// overhead measurements.
const benchDepth = 8

// overheadPeriods are the thesis' (its table 6.3).
var overheadPeriods = []int64{10_000_000, 1_000_000, 100_000, 10_000}

// floorCounters are counters with an empty program.
type floorCounters struct {
	*perfevent.Counters
	program *bpf.Empty
}

func openFloor(periodNs int64, cpus []int) (f floorCounters, err error) {
	if f.program, err = bpf.OpenEmpty(); err != nil {
		return f, err
	}
	f.Counters, err = perfevent.Open(perfevent.Config{
		Event: perfevent.CPUClock, Period: perfevent.Period{Value: uint64(periodNs)}, CPUs: cpus,
	})
	if err != nil {
		return f, errors.Join(err, f.program.Close())
	}
	for _, c := range f.FDs() {
		if err := f.program.AttachCounter(c.FD); err != nil {
			return f, errors.Join(err, f.close())
		}
	}
	return f, nil
}

func (f floorCounters) close() error { return errors.Join(f.Counters.Close(), f.program.Close()) }

// round is one comparison: the mean cost of a unit with the recorder's program,
// with an empty one, each over the mean of the windows without around it.
type round struct{ full, floor float64 }

// leastRounds are needed for any interval. On a busy machine, or where no time is
// left, they may take leastPatience.
const (
	leastRounds   = 3
	leastPatience = 5 * time.Second
)

// overheadMeter holds what a period's rounds need.
type overheadMeter struct {
	bench   *bench
	units   *units
	session *Session
	floor   floorCounters
	width   time.Duration // of a window
	on      time.Duration // sum of windows with the recorder's program
}

// measurePoint measures one period for a while, with a session whose counters are
// disabled.
func (b *bench) measurePoint(ctx context.Context, u *units, s *Session, periodNs int64, d time.Duration) (p OverheadPoint, err error) {
	p = OverheadPoint{PeriodNs: periodNs, AskedHz: 1e9 / float64(periodNs)}
	if err := s.Counters.SetPeriod(uint64(periodNs)); err != nil {
		return p, err
	}
	floor, err := openFloor(periodNs, b.counted())
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, floor.close()) }()
	m := overheadMeter{bench: b, units: u, session: s, floor: floor, width: 60 * time.Millisecond}
	// At least some ten samples in a window.
	m.width = max(m.width, time.Duration(12*periodNs))
	before, err := m.read()
	if err != nil {
		return p, err
	}
	rounds, err := m.rounds(ctx, d)
	if err != nil {
		return p, fmt.Errorf("at %v: %w", time.Duration(periodNs), err)
	}
	after, err := m.read()
	if err != nil {
		return p, err
	}
	p.Windows = len(rounds)
	p.estimate(rounds)
	p.count(before, after, m.on)
	return p, nil
}

// rounds alternates until the time is over.
func (m *overheadMeter) rounds(ctx context.Context, d time.Duration) ([]round, error) {
	begin := time.Now()
	var rounds []round
	before, err := m.plain(ctx)
	if err != nil {
		return nil, err
	}
	for time.Since(begin) < d || len(rounds) < leastRounds && time.Since(begin) < max(d, leastPatience) {
		var r round
		order := []bool{true, false}
		if rand.IntN(2) == 0 {
			order = []bool{false, true}
		}
		for _, full := range order {
			cost, err := m.with(ctx, full)
			if err != nil {
				return nil, err
			}
			after, err := m.plain(ctx)
			if err != nil {
				return nil, err
			}
			ratio := cost / ((before + after) / 2)
			before = after
			if full {
				r.full = ratio
			} else {
				r.floor = ratio
			}
		}
		if !math.IsNaN(r.full) && !math.IsNaN(r.floor) {
			rounds = append(rounds, r)
		}
	}
	if len(rounds) < leastRounds {
		return nil, fmt.Errorf("%w: interrupts or other programs keep CPU %d busy", errFewUnits, m.bench.cpu)
	}
	return rounds, nil
}

// plain is a window without a counter; NaN if the program hardly ran.
func (m *overheadMeter) plain(ctx context.Context) (float64, error) {
	cost, err := m.units.Window(ctx, m.width)
	if errors.Is(err, errFewUnits) {
		return math.NaN(), nil
	}
	return cost.CPUNs, err
}

// with is a window with the recorder's program, or with the empty one.
func (m *overheadMeter) with(ctx context.Context, full bool) (float64, error) {
	counters := m.floor.Counters
	if full {
		counters = m.session.Counters
	}
	if err := counters.Enable(); err != nil {
		return 0, err
	}
	begin := time.Now()
	cost, err := m.plain(ctx)
	err = errors.Join(err, counters.Disable())
	if full {
		m.on += time.Since(begin)
	}
	return cost, err
}

// readings are sums at some moment.
type readings struct {
	sample                 bpf.RunTime
	overflows, lost, taken uint64 // on the program's CPU
	throttled              uint64
}

func (m *overheadMeter) read() (readings, error) {
	sample, _, err1 := m.session.Capture.RunTimes()
	losses, err2 := m.session.Capture.Losses()
	throttles, err3 := m.session.Counters.Throttles()
	r := readings{sample: sample, throttled: throttles.Throttled}
	for cpu, l := range losses {
		if m.bench.cpu < 0 || cpu == m.bench.cpu {
			r.overflows += l.Overflows + l.Idle
			r.taken += l.Overflows
			r.lost += l.Samples
		}
	}
	return r, errors.Join(err1, err2, err3)
}

func (p *OverheadPoint) estimate(rounds []round) {
	pick := func(value func(round) float64) []float64 {
		var list []float64
		for _, r := range rounds {
			list = append(list, value(r))
		}
		return list
	}
	p.Slowdown = MedianEstimate(pick(func(r round) float64 { return r.full }))
	p.Floor = MedianEstimate(pick(func(r round) float64 { return r.floor }))
	if p.Floor.Low <= 1 || len(rounds) < fewValues {
		return
	}
	over := bootstrap(len(rounds), func(at func(int) int) float64 {
		full, floor := make([]float64, len(rounds)), make([]float64, len(rounds))
		for i := range rounds {
			k := at(i)
			full[i], floor[i] = rounds[k].full, rounds[k].floor
		}
		return (Median(full) - 1) / (Median(floor) - 1)
	})
	p.OverFloor = &over
}

func (p *OverheadPoint) count(before, after readings, on time.Duration) {
	p.Samples = after.taken - before.taken - (after.lost - before.lost)
	p.Lost = after.lost - before.lost
	p.Throttled = after.throttled - before.throttled
	p.AchievedHz = float64(after.overflows-before.overflows) / on.Seconds()
	if run := after.sample.Sub(before.sample); run.Runs > 0 {
		p.ProgramNs = float64(run.Time.Nanoseconds()) / float64(run.Runs)
	}
}

// interruptNs is the cost of an interrupt with an empty program, from the period
// at which windows see it best.
func interruptNs(points []OverheadPoint) (e Estimate, ok bool) {
	for i := range points {
		p := &points[i]
		if p.Floor.Low <= 1 || p.AchievedHz < 0.9*p.AskedHz {
			continue // not seen, or so many that there was no time for anything else
		}
		scale := func(ratio float64) float64 { return (ratio - 1) * 1e9 / p.AchievedHz }
		one := Estimate{scale(p.Floor.Value), scale(p.Floor.Low), scale(p.Floor.High)}
		if !ok || one.High-one.Low < e.High-e.Low {
			e, ok = one, true
		}
	}
	return e, ok
}

// measureOverhead measures the slowdown at the periods, each for its part of the
// time. One program and one recording serve all: their starts take longer than a
// window.
func (b *bench) measureOverhead(ctx context.Context, d time.Duration) (o Overhead, err error) {
	o.Depth = benchDepth
	end := time.Now().Add(d - b.around)
	u, err := b.startUnits(ctx, benchDepth)
	if err != nil {
		return o, err
	}
	defer u.close()
	s, _, err := b.record(ctx, Request{PID: u.PID, PeriodNs: overheadPeriods[0], CPUs: b.counted()})
	if err != nil {
		return o, err
	}
	defer stopAfter(s, &err)
	if err := s.Counters.Disable(); err != nil {
		return o, err
	}
	stats, err := bpf.EnableRunTimes()
	if err != nil {
		return o, err
	}
	defer stats.Close()
	for i, period := range overheadPeriods {
		part := max(0, time.Until(end)) / time.Duration(len(overheadPeriods)-i)
		p, err := b.measurePoint(ctx, u, s, period, part)
		if errors.Is(err, errFewUnits) {
			b.warnings = append(b.warnings, fmt.Sprintf("overhead not measured %v", err))
			continue
		}
		if err != nil {
			return o, err
		}
		o.Points = append(o.Points, p)
	}
	if len(o.Points) == 0 {
		return o, fmt.Errorf("%w: interrupts or other programs keep CPU %d busy", errFewUnits, b.cpu)
	}
	if e, ok := interruptNs(o.Points); ok {
		for i := range o.Points {
			p := &o.Points[i]
			p.ByStatistics = 1 + (p.ProgramNs+e.Value)*p.AchievedHz/1e9
		}
	}
	return o, nil
}
