// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/calibrate"
	"pathprof/perfevent"
)

// window is the length of a window of the slowdown.
const window = time.Second

// Flags of units.py.
const (
	unitDepth      = 8
	unitTrampoline = 1 << 32
	unitCalls      = 1 << 33
)

// row is what was found about a profiler. What could not be measured says why.
type row struct {
	name                     string
	rate, error, chance, cpu float64
	tear                     tear
	score                    score
	loops, calls, stopped    calibrate.Estimate
	problems                 []error
}

// meter measures one profiler.
type meter struct {
	*options
	profiler profiler
	program  string
	dir      string
	cpu      int
	n        int // outputs so far
}

// measure does all it can.
func (m *meter) measure(ctx context.Context) row {
	unknown := calibrate.MedianEstimate(nil)
	r := row{name: m.profiler.name, rate: math.NaN(), error: math.NaN(), chance: math.NaN(), cpu: math.NaN(),
		loops: unknown, calls: unknown, stopped: unknown}
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		r.problems = append(r.problems, err)
		return r
	}
	for _, part := range []struct {
		name    string
		measure func(context.Context, *row) error
	}{{"known shares", m.shares}, {"torn stacks", m.torn}, {"sample by sample", m.wrong}, {"slowdown", m.slowdown}} {
		if err := part.measure(ctx, &r); err != nil {
			r.problems = append(r.problems, fmt.Errorf("%s: %w", part.name, err))
		}
	}
	return r
}

// launch says how to start a workload.
func (m *meter) launch(name string, args ...string) calibrate.Launch {
	l := calibrate.Launch{Python: []string{m.python}, Dir: m.dir, CPU: m.cpu, Name: name, Args: args}
	if m.profiler.trampoline {
		l.Python = append(l.Python, "-X", "perf")
	}
	return l
}

// running is an attached profiler.
type running struct {
	cmd *exec.Cmd
	out string
	// since when, and with how much CPU time, it was attached
	since time.Time
	spent time.Duration
}

// attach starts the profiler and gives it time to settle.
func (m *meter) attach(ctx context.Context, pid int32, timed bool) (*running, error) {
	m.n++
	r := &running{out: filepath.Join(m.dir, fmt.Sprintf("out%d", m.n))}
	r.cmd = exec.CommandContext(ctx, m.program, m.profiler.args(m.rate, pid, r.out, timed)...)
	r.cmd.Dir = m.dir
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
	case <-time.After(m.settle):
	}
	r.since, r.spent = time.Now(), processTime(r.cmd.Process.Pid)
	return r, ctx.Err()
}

// processTime is the CPU time of a process so far: its clock's number is made of the
// process' (include/linux/posix-timers.h, make_process_cpuclock).
func processTime(pid int) time.Duration {
	const scheduler = 2 // CPUCLOCK_SCHED
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid)<<3|scheduler, &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// share is the part of a CPU it took since it was attached, per cent; its start and
// its end are not in it.
func (r *running) share() float64 {
	return 100 * (processTime(r.cmd.Process.Pid) - r.spent).Seconds() / time.Since(r.since).Seconds()
}

// detach ends it; what it says of its end is no error as long as it wrote its
// output.
func (r *running) detach() error {
	err := r.cmd.Process.Signal(unix.SIGINT)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	_ = r.cmd.Wait() // ended by a signal, as was asked
	if _, statErr := os.Stat(r.out); statErr != nil {
		err = errors.Join(err, fmt.Errorf("it wrote nothing: %w", statErr))
	}
	return err
}

// known runs a workload under the profiler and returns what both say.
func (m *meter) known(ctx context.Context, timed bool, truth any, name string, args ...string) (t trace, k measured, err error) {
	p, err := calibrate.Start(ctx, m.launch(name, append([]string{fmt.Sprint(m.length.Seconds()), "--on-line"}, args...)...))
	if err != nil {
		return t, k, err
	}
	defer p.Stop()
	k.earliest = perfevent.MonotonicNow()
	prof, err := m.attach(ctx, p.PID, timed)
	if err != nil {
		return t, k, err
	}
	k.latest = perfevent.MonotonicNow() + m.settle.Nanoseconds()
	err = p.Run(ctx, truth)
	k.cpu = prof.share()
	if err := errors.Join(err, prof.detach()); err != nil {
		return t, k, err
	}
	t, err = m.profiler.read(ctx, prof.out, p.PID, timed)
	return t, k, errors.Join(err, os.RemoveAll(prof.out))
}

// measured is what is known of a run beside its samples.
type measured struct {
	cpu              float64 // of the profiler, per cent of one
	earliest, latest int64   // its first sample, CLOCK_MONOTONIC
}

func (m *meter) shares(ctx context.Context, r *row) error {
	var truth calibrate.TenTruth
	t, k, err := m.known(ctx, false, &truth, "profile10.py")
	if err != nil {
		return err
	}
	r.cpu = k.cpu
	n, length := 0, float64(truth.End-truth.Begin)
	if t.clock == clockSystem {
		length = 0 // of CPU time
		for _, ns := range truth.Functions {
			length += float64(ns)
		}
	}
	for _, s := range t.samples {
		// Before its work the program waits; then no function of it shows.
		if t.clock != clockSystem && len(s.stack) > 2 || t.clock == clockSystem && s.at >= truth.Begin && s.at < truth.End {
			n++
		}
	}
	r.rate = float64(n) / (length / 1e9)
	r.error, r.chance = shareError(&t, truth.Shares())
	return nil
}

func (m *meter) torn(ctx context.Context, r *row) error {
	t, _, err := m.known(ctx, false, &struct{}{}, "mix.py")
	r.tear = tears(&t)
	return err
}

func (m *meter) wrong(ctx context.Context, r *row) error {
	log := filepath.Join(m.dir, "calls.log")
	t, k, err := m.known(ctx, true, &struct{}{}, "profile10.py", "--log", log)
	if err != nil {
		return err
	}
	calls, err := readCalls(log)
	if err != nil {
		return err
	}
	r.score = wrongs(&t, calls, k.earliest, k.latest)
	return nil
}

// slowdown turns the profiler on and off beside one running program, first of loops
// and then of calls.
func (m *meter) slowdown(ctx context.Context, r *row) error {
	log, err := calibrate.CreateUnitLog(filepath.Join(m.dir, "units.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	plain := *m
	plain.profiler.trampoline = false // it comes and goes with the windows
	p, err := calibrate.Start(ctx, plain.launch("units.py", log.Path(), "3600"))
	if err != nil {
		return err
	}
	defer removeMap(p.PID)
	defer p.Stop()
	for _, kind := range []struct {
		flags uint64
		cpu   *calibrate.Estimate
	}{{0, &r.loops}, {unitCalls, &r.calls}} {
		s := calibrate.Slowdown{Log: log, Width: window}
		off := unitDepth | kind.flags
		if err := log.SetDepth(off); err != nil {
			return err
		}
		for range m.pairs {
			if err := s.Pair(ctx, func() (func() error, error) { return m.window(ctx, log, p.PID, off) }); err != nil {
				return err
			}
		}
		*kind.cpu = s.CPU()
		if kind.flags == 0 {
			r.stopped = s.Wall()
		}
	}
	return nil
}

// window switches the profiler on.
func (m *meter) window(ctx context.Context, log *calibrate.UnitLog, pid int32, depth uint64) (off func() error, err error) {
	on := depth
	if m.profiler.trampoline {
		on |= unitTrampoline
	}
	if err := log.SetDepth(on); err != nil {
		return nil, err
	}
	prof, err := m.attach(ctx, pid, false)
	if err != nil {
		return nil, err
	}
	return func() error {
		return errors.Join(prof.detach(), log.SetDepth(depth), os.RemoveAll(prof.out))
	}, nil
}
