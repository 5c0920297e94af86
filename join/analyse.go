// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// Options of [Analyse]. The zero value works: every thread of the targets, over
// the whole recording.
type Options struct {
	// Threads to give a path, each by thread number, name or PROCESS/THREAD;
	// all threads of the targets if empty.
	Threads []string
	// From and To narrow the window, CLOCK_MONOTONIC ns; 0: the recording's.
	From, To int64
	// Frames that stacks keep.
	Frames FrameSet
	// Lines asks for the lines of code of each class, too.
	Lines bool
	// Workers at once; 0: one per processor. The result is the same for any.
	Workers int
}

// WithDefaults returns the options that take effect.
func (o Options) WithDefaults() Options {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o
}

// Errors of [Analyse] that a person can do something about.
var (
	// ErrNoThread: the recording has no such thread; leave Threads empty to see all.
	ErrNoThread = errors.New("no such thread of a target")
	// ErrNoWindow: nothing of the recording lies between From and To.
	ErrNoWindow = errors.New("nothing was recorded in that window")
)

// input is a recording as analysis needs it.
type input struct {
	meta     recording.Meta
	stack    func(id uint32) *recording.Stack // nil if there is none
	frame    func(id uint32) *recording.Frame // nil if there is none
	events   iter.Seq2[sched.Event, error]    // in time order
	slabs    []execgraph.Slab                 // the same, cut; nil if it cannot be
	samples  iter.Seq2[recording.Sample, error]
	warnings func() []string // asked at the end: reading adds to them
}

// slabber is a source that can be read at several places at once.
type slabber interface {
	Slabs(n int) []recording.Slab
	EventsIn(recording.Slab) iter.Seq2[sched.Event, error]
}

// slabsPerWorker: slabs of equal bytes still take unequal time.
const slabsPerWorker = 4

// Analyse makes a profile of a recording. Damage and loss are in the profile's
// warnings; an error means that there is nothing to show.
func Analyse(src recording.Source, opt Options) (*Profile, error) {
	frames, err := src.Frames()
	if err != nil {
		return nil, fmt.Errorf("read frames: %w", err)
	}
	stacks, err := src.Stacks()
	if err != nil {
		return nil, fmt.Errorf("read stacks: %w", err)
	}
	opt = opt.WithDefaults()
	in := input{
		meta: src.Meta(), events: src.Events(), samples: src.Samples(), warnings: src.Warnings,
		stack: func(id uint32) *recording.Stack {
			if int64(id) >= int64(len(stacks)) || stacks[id].ID == 0 {
				return nil
			}
			return &stacks[id]
		},
		frame: func(id uint32) *recording.Frame {
			if int64(id) >= int64(len(frames)) || frames[id].ID == 0 {
				return nil
			}
			return &frames[id]
		},
	}
	if s, ok := src.(slabber); ok && opt.Workers > 1 {
		for _, slab := range s.Slabs(slabsPerWorker * opt.Workers) {
			in.slabs = append(in.slabs, func() iter.Seq2[sched.Event, error] { return s.EventsIn(slab) })
		}
	}
	return analyse(in, opt)
}

// analyse makes a profile of a recording.
func analyse(in input, opt Options) (*Profile, error) {
	opt = opt.WithDefaults()
	g, err := graphOf(&in, opt.Workers)
	if err != nil {
		return nil, err
	}
	nm := newNames(g.Tasks(), &in.meta)
	nm.graph = g
	threads, err := chooseThreads(g, nm, &in.meta, opt)
	if err != nil {
		return nil, err
	}
	paths, readings := make([]execgraph.Path, len(threads)), make([][]ReadingShare, len(threads))
	err = parallel(len(threads), opt.Workers, func(i int) (err error) {
		t := &threads[i]
		if paths[i], err = g.ActivePath(t.task.ID, t.begin, t.end); err != nil {
			return err
		}
		causal, err := g.CausalPath(t.task.ID, t.begin, t.end)
		readings[i] = nm.compare(&paths[i], &causal)
		return err
	})
	if err != nil {
		return nil, err
	}
	j := &joiner{
		names: nm, graph: g, stacks: newStackSet(in.stack, in.frame, opt.Frames),
		targets: make(map[int32]bool), python: make(map[int32]bool), begin: g.Begin, thinned: in.meta.Loss.ThinnedStacks > 0,
		lines: opt.Lines, workers: max(1, opt.Workers/max(1, len(paths))),
	}
	for _, t := range in.meta.Targets {
		j.targets[t.PID] = true
		j.python[t.PID] = true
	}
	for _, i := range in.meta.Interpreters {
		j.python[i.PID] = true
	}
	read, err := j.readSamples(&in, g, paths)
	if err != nil {
		return nil, err
	}
	p := newProfile(&in.meta, g, nm, read.all)
	j.loss = lossOf(&in.meta, p.Samples)
	results := make([]joined, len(paths))
	err = parallel(len(paths), opt.Workers, func(i int) (err error) {
		results[i], err = j.join(paths[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	p.OutsideWindow = read.homeless
	for i, r := range results {
		r.path.Readings = readings[i]
		p.Paths = append(p.Paths, r.path)
		p.OutsideWindow += r.outside
		p.OffThread += r.off
	}
	p.Verdicts, p.Reasons = j.countStacks(results)
	p.Warnings = append(in.warnings(), warnings(&in.meta, g, p)...)
	return p, nil
}

// graphOf builds the execution graph over the recording's time. A recording
// whose end nobody wrote ends with its last event or sample.
func graphOf(in *input, workers int) (*execgraph.Graph, error) {
	begin, end := in.meta.BeginNs, in.meta.EndNs
	if in.slabs != nil && end > begin {
		g, err := execgraph.Build(execgraph.Options{}, in.slabs, begin, end, workers)
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		return g, nil
	}
	b := execgraph.NewBuilder(execgraph.Options{})
	last := begin
	for ev, err := range in.events {
		if err != nil {
			return nil, fmt.Errorf("read events: %w", err)
		}
		if b.Add(ev) == nil { // the graph counts what it refuses
			last = max(last, ev.Time+1)
		}
	}
	if end <= begin {
		for s, err := range in.samples {
			if err != nil {
				return nil, fmt.Errorf("read samples: %w", err)
			}
			last = max(last, s.Time+1)
		}
		end = last
	}
	return b.Graph(begin, end), nil
}

// readings counts samples while they are read.
type readings struct {
	all      int64 // in the recording
	homeless int64 // of targets, when the graph has no such task
}

// readSamples keeps, by task and in time order, the samples that can lie on a
// path: those of tasks that run on one, and all of the paths' own threads.
func (j *joiner) readSamples(in *input, g *execgraph.Graph, paths []execgraph.Path) (readings, error) {
	wanted := make(map[sched.TaskID]bool)
	numbers := make(map[int32]bool)
	for i := range paths {
		wanted[paths[i].Target] = true
		for s := range paths[i].Segments {
			if seg := &paths[i].Segments[s]; onCPU(seg.State) {
				wanted[seg.Task] = true
			}
		}
	}
	own := make(map[int32]bool, len(paths))
	for id := range wanted {
		numbers[id.TID] = true
	}
	for i := range paths {
		own[paths[i].Target.TID] = true
	}
	var r readings
	j.samples = make(map[sched.TaskID][]recording.Sample, len(wanted))
	for s, err := range in.samples {
		if err != nil {
			return r, fmt.Errorf("read samples: %w", err)
		}
		r.all++
		if !numbers[s.TID] {
			continue
		}
		t, ok := g.TaskAt(s.TID, s.Time)
		switch {
		case ok && wanted[t.ID]:
			s.Value = scaleUp(s.Value, in.meta.CountedShare)
			j.samples[t.ID] = append(j.samples[t.ID], s)
		case !ok && own[s.TID] && j.targets[s.PID]:
			r.homeless++
		}
	}
	for _, list := range j.samples {
		slices.SortStableFunc(list, func(a, b recording.Sample) int {
			return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.CPU, b.CPU))
		})
	}
	return r, nil
}

// countStacks counts verdicts and stop reasons of the samples on the paths; one
// that lies on several paths counts once.
func (j *joiner) countStacks(results []joined) (map[Verdict]int64, map[string]int64) {
	verdicts, reasons := make(map[Verdict]int64), make(map[string]int64)
	used := make(map[sched.TaskID][]bool)
	for _, r := range results {
		for _, s := range r.spans {
			list := j.samples[s.task]
			if used[s.task] == nil {
				used[s.task] = make([]bool, len(list))
			}
			for i := s.lo; i < s.hi; i++ {
				if used[s.task][i] {
					continue
				}
				used[s.task][i] = true
				st := j.sampleStack(&list[i])
				verdicts[st.Verdict]++
				if reason := j.reasonIn(st, list[i].PID); reason != "" {
					reasons[reason]++
				}
			}
		}
	}
	return verdicts, reasons
}

// reasonIn is why a stack of a process is not complete. One that runs no Python
// lacks nothing without it.
func (j *joiner) reasonIn(s *Stack, pid int32) string {
	if j.python[pid] {
		return s.Reason
	}
	rest, _ := strings.CutPrefix(s.Reason, cutWords("python", recording.StopNoInterp))
	return strings.TrimPrefix(rest, "; ")
}

// scaleUp returns what a sample stands for where the counter had the hardware for a part
// of the time only; 0: that part is not known.
func scaleUp(value int64, share float64) int64 {
	if !(share > 0 && share < 1 && value > 0) { // so NaN is none
		return value
	}
	return int64(min(math.Round(float64(value)/share), maxRoom))
}

// newProfile is a profile without paths.
func newProfile(meta *recording.Meta, g *execgraph.Graph, nm *names, samples int64) *Profile {
	return &Profile{
		Event: meta.Event, Unit: meta.Unit, EventNote: meta.EventNote,
		Hosts: []string{meta.Host}, Complete: meta.Complete,
		Period: meta.Period, AskedHz: meta.AskedHz, AchievedHz: meta.AchievedHz,
		Samples: samples,
		Lost:    meta.Loss.Samples + meta.Loss.Events, Throttled: meta.Loss.Throttled,
		BeginNs: g.Begin, EndNs: g.End, RealtimeOffsetNs: meta.RealtimeOffsetBeginNs,
		Threads: nm.info,
	}
}

// lossOf is what widens the intervals.
func lossOf(meta *recording.Meta, samples int64) lossRule {
	l := lossRule{
		lost:      int64(min(meta.Loss.Samples, maxRoom)),
		samples:   samples,
		throttled: meta.Loss.Throttled > 0,
	}
	if meta.Unit == "nanoseconds" {
		switch {
		case meta.Period > 0:
			l.period = float64(meta.Period)
		case meta.AskedHz > 0:
			l.period = 1e9 / meta.AskedHz
		}
		// Time that the host took lies within what ran, and no clock fires in it.
		if l.period > 0 && meta.Loss.StolenNs > 0 {
			l.lost += int64(min(math.Ceil(float64(meta.Loss.StolenNs)/l.period), maxRoom))
		}
	}
	return l
}

// parallel calls f for 0…n-1 with so many workers at once, and returns the
// error of the lowest number.
func parallel(n, workers int, f func(i int) error) error {
	errs := make([]error, n)
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(workers, n) {
		wg.Go(func() {
			for i := range next {
				errs[i] = f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
