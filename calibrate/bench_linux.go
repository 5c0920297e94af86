// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/perfevent"
	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
)

// Request says what to record.
type Request struct {
	PID      int32
	PeriodNs int64 // of cpu-clock, as it is
	Jitter   bool  // vary the period
	CPUs     []int // to count on; nil: all
	Costs    bool  // clock the parts of samples
	Dir      string
}

// Session is a recording under way.
type Session struct {
	// Counters may be disabled and enabled again, Capture be asked for costs,
	// run times and losses.
	Counters *perfevent.Counters
	Capture  *bpf.Capture
	// Stop ends the recording.
	Stop func() (recording.Meta, error)
}

// Recorder begins a recording and returns when the counters run.
type Recorder func(context.Context, Request) (*Session, error)

// Options of a calibration.
type Options struct {
	Python string // path of the interpreter
	Record Recorder
	Quick  bool // less than half a minute, instead of two
	// Samples of the accuracy run, however long it takes; 0: as many as fit the
	// time.
	Samples int
	// Wishes to give advice for; nil: the usual ones.
	Wishes []Wish
	// Progress is told what is measured and the done part of all, 0…1; nil: nobody.
	Progress func(what string, done float64)
	// OddPeriod is the period the recorder uses where one is asked for.
	OddPeriod func(askedNs int64) int64
}

// bench is the place where the measurements of one calibration happen.
type bench struct {
	opt Options
	dir string
	cpu int // the programs' CPU, -1 if there is only one
	n   int // recordings so far
	// around is what the last recording took beside its length: its start and
	// its end. They count as time of its part.
	around time.Duration
	// warnings about what was not measured.
	warnings []string
}

// newBench makes a place of its own; close removes it.
func newBench(opt Options) (*bench, error) {
	dir, err := os.MkdirTemp("", "pathprof-calibrate-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	return &bench{opt: opt, dir: dir, cpu: ProgramCPU(), around: time.Second}, nil
}

func (b *bench) close() error { return os.RemoveAll(b.dir) }

// ProgramCPU is the highest CPU this process may use: the first serves more
// interrupts than the others. It is -1 if there is no other one for the recorder.
func ProgramCPU() int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil || set.Count() < 2 {
		return -1
	}
	last := -1
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			last = cpu
		}
	}
	return last
}

// counted are the CPUs to count on when only the program matters.
func (b *bench) counted() []int {
	if b.cpu < 0 {
		return nil
	}
	return []int{b.cpu}
}

// record begins a recording in a folder of its own.
func (b *bench) record(ctx context.Context, r Request) (*Session, string, error) {
	b.n++
	r.Dir = filepath.Join(b.dir, "r"+strconv.Itoa(b.n))
	begin := time.Now()
	s, err := b.opt.Record(ctx, r)
	if err != nil {
		return nil, r.Dir, err
	}
	b.around = time.Since(begin)
	stop := s.Stop
	s.Stop = sync.OnceValues(func() (recording.Meta, error) {
		begin := time.Now()
		defer func() { b.around += time.Since(begin) }()
		return stop()
	})
	return s, r.Dir, nil
}

// within is the length of a recording that has to fit in a part with what is
// around it; at least some length, so that there is something to see.
func (b *bench) within(part, least time.Duration) time.Duration {
	return max(part-b.around, least)
}

// sleep waits, or returns the error of an ended context.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// ReadMachine describes the machine, for [Result] and to tell whose a stored one
// is.
func ReadMachine() Machine {
	m := Machine{Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), MaxSampleRate: -1, CPUTimeMaxPercent: -1}
	m.Host, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	for name, into := range map[string]*int64{
		"perf_event_max_sample_rate": &m.MaxSampleRate, "perf_cpu_time_max_percent": &m.CPUTimeMaxPercent,
	} {
		text, err := os.ReadFile("/proc/sys/kernel/" + name)
		if n, err2 := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && err2 == nil {
			*into = n
		}
	}
	return m
}

// stopAfter ends a session whatever happened before.
func stopAfter(s *Session, err *error) {
	_, stopErr := s.Stop()
	*err = errors.Join(*err, stopErr)
}
