// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/perfevent"
	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
)

// probe looks at what this machine allows.
func probe() []perfevent.Feature { return append(perfevent.Probe(), bpf.Probe()...) }

// fillMeta says what is about to be recorded.
func (s *session) fillMeta() {
	m := &s.meta
	info := s.counters.Info()
	m.Format = recording.FormatVersion
	m.Host, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	m.Arch, m.CPUs, m.PageSize = runtime.GOARCH, len(info.CPUs), os.Getpagesize()
	m.Clock, m.ClockSource = "monotonic", perfevent.ClockSource()
	m.Event, m.AskedEvent, m.EventNote = info.Event.String(), info.AskedEvent.String(), info.Note
	m.Unit = "count"
	if info.Event.IsClock() {
		m.Unit = "nanoseconds"
	}
	m.Period, m.FreqHz, m.AskedHz = int64(info.Period), info.FreqHz, info.AskedHz
	m.AskedPeriod, m.Jitter = int64(info.AskedPeriod), s.opt.jitter
	m.Calibration = calibrationOf(s.opt.calibrated, info)
	m.Scope = "system"
	if s.opt.onlyTargets {
		m.Scope = "process"
	}
	m.Version = version()
	m.Options = s.opt.asked
	s.fillTargets()
	if irqs, err := perfevent.IRQNames(); err == nil {
		m.IRQs = irqs
	}
}

// stolenTime is what the host took from the CPUs since boot, negative if that is
// not known.
func stolenTime() time.Duration {
	stolen, err := perfevent.StolenTime()
	if err != nil {
		return -1
	}
	return stolen
}

func (s *session) fillTargets() {
	s.meta.Targets = nil
	for _, t := range s.targets.list() {
		s.meta.Targets = append(s.meta.Targets, recording.Target{PID: t.pid, Name: t.name, Command: t.command})
	}
}

// fillEnd says what was recorded, and what was not.
func (s *session) fillEnd() error {
	m := &s.meta
	s.fillTargets()
	m.Interpreters = s.watch.interpreters()
	m.Samples, m.Events = s.samples, s.events
	losses, err := s.capture.Losses()
	if err != nil {
		return err
	}
	m.Loss = recording.Loss{Unresolved: s.resolve.unresolved, SideBand: s.watch.lost()}
	m.LossPerCPU = nil
	for _, l := range losses {
		one := recording.Loss{Events: l.Events, Samples: l.Samples, ThinnedStacks: l.Thinned, IdleSkipped: l.Idle}
		m.LossPerCPU = append(m.LossPerCPU, one)
		m.Loss.Events += one.Events
		m.Loss.Samples += one.Samples
		m.Loss.ThinnedStacks += one.ThinnedStacks
		m.Loss.IdleSkipped += one.IdleSkipped
	}
	if stolen := stolenTime(); stolen >= 0 && s.stolen >= 0 {
		m.Loss.StolenNs = max(0, int64(stolen-s.stolen))
	}
	if n := s.capture.Undecodable(); n > 0 {
		m.Warnings = append(m.Warnings, fmt.Sprintf("%d records had an unknown form", n))
	}
	m.Warnings = append(m.Warnings, s.watch.notes()...)
	if s.resolve.kernel == nil {
		m.Warnings = append(m.Warnings, "kernel functions have no names: "+perfevent.SymbolsHint())
	}
	s.fillRates()
	return nil
}

// fillRates computes the achieved rate: samples over the time in which tasks of
// the scope ran. Whether an idle CPU's clock overflows at all differs by kernel.
func (s *session) fillRates() {
	m := &s.meta
	var busy int64
	for i := range s.cpus {
		c := &s.cpus[i]
		busy += c.busy
		if !c.switched && c.sampled {
			busy += m.EndNs - m.BeginNs // one task all the time
		}
	}
	if busy > 0 {
		m.AchievedHz = float64(m.Samples+m.Loss.Samples) / (float64(busy) / 1e9)
	}
	s.fillCounting()
}

// fillCounting says for which part of the time the counters counted.
func (s *session) fillCounting() {
	m := &s.meta
	if counts, err := s.counters.Counts(); err != nil {
		m.Warnings = append(m.Warnings, fmt.Sprintf("what the counters counted is not known: %v", err))
	} else if share, ok := counts.RunningShare(); ok {
		m.CountedShare = share
	}
	t, err := s.counters.Throttles()
	if err != nil {
		m.Warnings = append(m.Warnings, fmt.Sprintf("throttling not known: %v", err))
		return
	}
	m.Loss.Throttled = t.Throttled
	if t.Throttled > 0 {
		least := ""
		if t.Lost > 0 {
			least = "at least "
		}
		m.Warnings = append(m.Warnings, fmt.Sprintf(
			"the kernel throttled the counters %s%d times (%v in all): raise the period, or kernel.perf_event_max_sample_rate (%s)",
			least, t.Throttled, t.Stopped, rateLimits()))
	}
}
