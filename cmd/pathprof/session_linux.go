// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"pathprof/join/sched"
	"pathprof/perfevent"
	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
	"pathprof/unwind"
)

// pollEvery is how often what the rings held is written. Names of code objects are read
// then: a process that ends sooner takes them with it, see resolver.forked.
const pollEvery = 20 * time.Millisecond

// session is one recording in progress.
type session struct {
	opt      recordOptions
	counters *perfevent.Counters
	capture  *bpf.Capture
	out      *recording.Writer
	resolve  *resolver
	objects  *objects
	limits   *limits
	watch    *watcher
	targets  *targets
	meta     recording.Meta

	cpus            []cpuState
	samples, events uint64
	rec             bpf.Record
	flushed         time.Time
	stolen          time.Duration // by the host, before recording began; negative: not known
	stopGather      func() error  // may be called more than once
	// kernel brings the kernel's symbols.
	kernel   chan *unwind.KernelSymbols
	released int64 // when the program was let go that record started
	began    bool  // and the wake-up by that was seen
}

// cpuState is what the session keeps of each CPU.
type cpuState struct {
	batch []sched.Event // of one poll, to be sorted
	// since the current task runs; busy time of tasks that are sampled, ns.
	since, busy int64
	switched    bool
	sampled     bool
}

// record captures until the context ends, the duration is over, every target
// has ended, the recording is full, or writing it is impossible.
func record(ctx context.Context, opt recordOptions) (summary, error) {
	return recordWith(ctx, opt, func(*session) {})
}

// recordWith is record, and tells when the counters run.
func recordWith(ctx context.Context, opt recordOptions, begun func(*session)) (summary, error) {
	if err := perfevent.CheckRecord(); err != nil {
		return summary{}, err
	}
	s := &session{opt: opt, objects: newObjects(), limits: newLimits()}
	defer s.close()
	if err := s.open(); err != nil {
		return summary{}, err
	}
	if err := s.begin(); err != nil {
		s.out.Close(s.meta)
		return summary{}, err
	}
	begun(s)
	why, err := s.run(ctx)
	return s.finish(why, err)
}

// open prepares everything; nothing is recorded yet.
func (s *session) open() error {
	s.kernel = make(chan *unwind.KernelSymbols, 1)
	go func() { s.kernel <- readKernelSymbols() }()
	// Loading the programs is the longest part of a start: it goes on beside.
	var loadErr error
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		s.capture, loadErr = bpf.Open(bpf.Config{
			OnlyTargets: s.opt.onlyTargets, NoPackets: s.opt.noPackets, Costs: s.opt.costs,
		})
	}()
	err := s.openTargets()
	<-loaded
	if err = cmp.Or(err, loadErr); err != nil {
		return err
	}
	s.fillMeta()
	if s.opt.warn != nil {
		s.opt.warn(unreachable(s.counters.Info(), s.opt.calibrated))
	}
	if s.out, err = recording.Create(s.opt.out, s.meta, recording.Options{}); err != nil {
		return err
	}
	s.resolve = newResolver(s.out, nil, !s.opt.bare)
	s.watch, err = newWatcher(s.capture, s.targets, s.opt)
	return err
}

// openTargets finds what is to be recorded, and what to sample it with.
func (s *session) openTargets() (err error) {
	if s.targets, err = openTargets(s.opt); err != nil {
		return err
	}
	s.counters, err = perfevent.Open(perfevent.Config{
		Event: s.opt.event, Period: s.opt.period, FreqHz: s.opt.freqHz, CPUs: s.opt.cpus,
		OutOfStep: true,
	})
	return err
}

func readKernelSymbols() *unwind.KernelSymbols {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil
	}
	defer f.Close()
	k, err := unwind.ParseKallsyms(f)
	if err != nil {
		return nil // addresses stay; `pathprof check` tells why
	}
	return k
}

// begin makes the targets known, starts the counters and dumps the tasks.
func (s *session) begin() error {
	for _, t := range s.targets.list() {
		if err := s.watch.know(t.pid); err != nil {
			return err
		}
		if t.interp == nil {
			continue
		}
		if err := s.resolve.setPython(t.pid, t.interp); err != nil {
			return fmt.Errorf("read memory of process %d: %w", t.pid, err)
		}
	}
	if err := s.capture.Start(); err != nil {
		return err
	}
	s.meta.Warnings = append(s.meta.Warnings, s.capture.Missing()...)
	for _, c := range s.counters.FDs() {
		if err := s.capture.AttachCounter(c.FD); err != nil {
			return err
		}
		s.cpu(int32(c.CPU))
	}
	s.stopGather = s.gather()
	if err := s.counters.Enable(); err != nil {
		return err
	}
	if err := s.dumpTasks(); err != nil {
		return err
	}
	s.followLimits()
	if err := s.dumpObjects(perfevent.MonotonicNow()); err != nil {
		return err
	}
	s.watch.start()
	s.stolen = stolenTime()
	s.meta.BeginNs = perfevent.MonotonicNow()
	s.meta.RealtimeOffsetBeginNs, _ = perfevent.RealtimeOffset()
	for i := range s.cpus {
		s.cpus[i].since = s.meta.BeginNs
	}
	s.flushed = time.Now()
	if err := errors.Join(s.out.Flush(), s.out.Update(s.meta)); err != nil {
		return err
	}
	// Before a program is let go: it may end at once, and its code has to be read while
	// it lives.
	s.resolve.kernel = <-s.kernel
	s.released = perfevent.MonotonicNow()
	return s.targets.release()
}

// beganBy has the recording begin when a program that record starts is let go: until
// then it waits for the recorder, whose work is none of its path.
func (s *session) beganBy(ev *sched.Event) {
	if s.began || len(s.opt.command) == 0 || ev.Time < s.released || int(ev.Other.PID) != os.Getpid() || !s.targets.asked(ev.Task.TID) {
		return
	}
	s.began = true
	s.meta.BeginNs = ev.Time
}

// run polls until something ends the recording, and says what.
func (s *session) run(ctx context.Context) (why string, err error) {
	calmMonitor()
	defer hurry()()
	if s.opt.jitter {
		stop := s.jitter()
		defer func() { err = errors.Join(err, stop()) }()
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	begin := time.Now()
	for {
		select {
		case <-ctx.Done():
			return "interrupted", nil
		case <-tick.C:
		}
		if err := s.poll(); err != nil {
			return "", err
		}
		if s.opt.progress != nil {
			s.opt.progress(s.state(time.Since(begin)))
		}
		switch {
		case s.opt.duration > 0 && time.Since(begin) >= s.opt.duration:
			return "duration", nil
		case s.targets.ended():
			return "target ended", nil
		case s.opt.maxBytes > 0 && s.out.Size() >= s.opt.maxBytes:
			return fmt.Sprintf("the recording reached %d bytes (--max-size)", s.opt.maxBytes), nil
		}
	}
}

// poll writes what the rings hold, and flushes it once a second.
func (s *session) poll() error {
	s.watch.apply(s.resolve)
	s.objects.poll()
	if err := s.capture.Deliver(&s.rec, s.handle); err != nil {
		return err
	}
	for i := range s.cpus {
		if err := s.writeBatch(&s.cpus[i]); err != nil {
			return err
		}
	}
	if err := s.pollLimits(); err != nil {
		return err
	}
	// The room for records of throttling is small; what is wrong shows at the end.
	_, _ = s.counters.Throttles()
	s.watch.bury(s.resolve)
	if time.Since(s.flushed) < time.Second {
		return nil
	}
	s.flushed = time.Now()
	return s.out.Flush()
}

// writeBatch writes a CPU's events of one poll in time order: an interrupt's
// event may have overtaken the one it interrupted.
func (s *session) writeBatch(c *cpuState) error {
	slices.SortStableFunc(c.batch, func(a, b sched.Event) int { return compareUint(uint64(a.Time), uint64(b.Time)) })
	for _, ev := range c.batch {
		if err := s.out.Event(ev); err != nil {
			return err
		}
	}
	s.events += uint64(len(c.batch))
	c.batch = c.batch[:0]
	return nil
}

func (s *session) cpu(n int32) *cpuState {
	for int(n) >= len(s.cpus) {
		s.cpus = append(s.cpus, cpuState{})
	}
	return &s.cpus[n]
}

// handle takes one record from a ring.
func (s *session) handle(rec *bpf.Record) error {
	ev := rec.Event
	c := s.cpu(ev.CPU)
	if rec.Sample {
		return s.sample(c, rec)
	}
	if rec.HasStack {
		pid := ev.Task.PID
		if ev.Kind == sched.KindWaking {
			pid = ev.Other.PID // the waker's
		}
		id, err := s.resolve.stack(pid, &rec.Stack)
		if err != nil {
			return err
		}
		ev.Stack = id
	}
	switch ev.Kind {
	case sched.KindWork, sched.KindQueue:
		ev.Name = s.resolve.kernelName(uint64(rec.Value))
	case sched.KindWaking:
		s.beganBy(&ev)
	case sched.KindThrottle:
		s.limits.meet(ev.Task.PID, ev.Conn)
	case sched.KindIO:
		ev.Name = s.objects.device(ev.Vector)
	case sched.KindObject:
		if !s.objects.opened(&ev, &rec.File) {
			return nil
		}
	case sched.KindSwitch:
		if ev.Task.TID != 0 && (!s.opt.onlyTargets || s.targets.has(ev.Task.PID)) {
			c.busy += max(0, ev.Time-max(c.since, s.meta.BeginNs))
		}
		c.since, c.switched = ev.Time, true
		if page, ok := s.objects.faulted(&ev); ok {
			c.batch = append(c.batch, page)
		}
	}
	c.batch = append(c.batch, ev)
	return nil
}

func (s *session) sample(c *cpuState, rec *bpf.Record) error {
	ev := &rec.Event
	id, err := s.resolve.stack(ev.Task.PID, &rec.Stack)
	if err != nil {
		return err
	}
	if !c.switched && !c.sampled {
		// It has this CPU, and may never leave it: no switch would tell.
		c.batch = append(c.batch, sched.Event{
			Kind: sched.KindSwitch, Time: ev.Time, CPU: ev.CPU, Task: ev.Task, Other: ev.Task, Preempt: true,
		})
	}
	c.sampled = true
	s.samples++
	s.watch.sampled(ev.Task.PID)
	return s.out.Sample(recording.Sample{
		Time: ev.Time, CPU: ev.CPU, PID: ev.Task.PID, TID: ev.Task.TID,
		Stack: id, Value: rec.Value, Counter: rec.Counter, Kernel: rec.KernelMode, Ctx: ev.Ctx,
		GIL: rec.GIL, Collecting: rec.Collecting,
	})
}

// finish stops the counters, takes what the rings still hold and completes the
// recording. cause is why it ended early, if it did.
func (s *session) finish(why string, cause error) (summary, error) {
	disableErr := s.counters.Disable()
	s.meta.EndNs = perfevent.MonotonicNow()
	s.meta.RealtimeOffsetEndNs, _ = perfevent.RealtimeOffset()
	// What follows takes its time, and the rings would fill meanwhile.
	stopErr := errors.Join(disableErr, s.capture.Stop(), s.stopGather())
	if cause == nil {
		cause = cmp.Or(s.capture.Gather(), s.poll())
	}
	if cause != nil {
		why = cause.Error()
	}
	s.watch.stop()
	if cause == nil {
		cause = s.resolve.images.embedNames(s.out.Symbols)
	}
	s.meta.Stopped = why
	if err := s.fillEnd(); err != nil && cause == nil {
		cause = err
	}
	if err := s.out.Close(s.meta); cause == nil {
		cause = err
	}
	sum := summary{dir: s.opt.out, meta: s.meta, bytes: s.out.Size()}
	return sum, errors.Join(cause, stopErr)
}

// state is what the live line shows.
func (s *session) state(elapsed time.Duration) progress {
	p := progress{elapsed: elapsed, samples: s.samples, events: s.events, bytes: s.out.Size()}
	if losses, err := s.capture.Losses(); err == nil {
		for _, l := range losses {
			p.lost += l.Events + l.Samples
		}
	}
	return p
}

// close releases everything, in the order in which one needs the other.
func (s *session) close() {
	if s.stopGather != nil {
		_ = s.stopGather() // its error is in the session's by now, or that one never began
	}
	if s.watch != nil {
		s.watch.close()
	}
	if s.capture != nil {
		s.capture.Close()
	}
	if s.counters != nil {
		s.counters.Close()
	}
	if s.targets != nil {
		s.targets.close()
	}
}
