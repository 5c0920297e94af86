// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"pathprof/join"
)

// nominalShares are those of profile10.py, in per cent.
var nominalShares = []float64{50, 20, 15, 5, 5, 1, 1, 1, 1, 1}

// TenTruth is what profile10.py prints. Times are nanoseconds.
type TenTruth struct {
	Begin     int64            `json:"begin_ns"` // CLOCK_MONOTONIC
	End       int64            `json:"end_ns"`
	Rounds    int64            `json:"rounds"`
	ClockNs   int64            `json:"clock_ns"`  // of a pair of readings of the clock
	Slices    [][]int64        `json:"slices"`    // time, CPU time of each function so far, and rounds so far
	Functions map[string]int64 `json:"functions"` // CPU time
	CProfile  map[string]int64 `json:"cprofile"`  // own time by cProfile, if it ran
}

// Shares of the ten functions in the CPU time, 0…1, without the clock's own cost.
func (t *TenTruth) Shares() []float64 {
	out := make([]float64, len(nominalShares))
	for i := range out {
		out[i] = float64(t.Functions[tenName(i)] - t.Rounds*t.ClockNs)
	}
	return normalise(out)
}

func tenName(i int) string { return "f" + strconv.Itoa(i) }

func normalise(list []float64) []float64 {
	var sum float64
	for _, x := range list {
		sum += x
	}
	for i := range list {
		list[i] /= sum
	}
	return list
}

// MeasureAccuracy takes opt.Samples of the ten functions and compares them with the
// truth; cProfile does not run.
func MeasureAccuracy(ctx context.Context, opt Options) (a Accuracy, err error) {
	run, err := runFor(opt.Samples)
	if err != nil {
		return a, err
	}
	b, err := newBench(opt)
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	back, err := KeepOff(b.cpu)
	if err != nil {
		return a, err
	}
	defer back()
	return b.measureAccuracy(ctx, run)
}

// measureAccuracy profiles the ten functions.
func (b *bench) measureAccuracy(ctx context.Context, run accuracyRun) (a Accuracy, err error) {
	list, truth, err := b.tenProfile(ctx, &a, run)
	if err != nil {
		return a, err
	}
	return a, a.compare(list, truth)
}

// measureCProfile has cProfile look at the same functions, in a run of its own:
// under it, they would not be the same program.
func (b *bench) measureCProfile(ctx context.Context, a *Accuracy, d time.Duration) error {
	p, err := b.start(ctx, "profile10.py", seconds(max(d, leastAccuracy)), "--on-line", "--cprofile")
	if err != nil {
		return err
	}
	defer p.Stop()
	var other TenTruth
	if err := p.Run(ctx, &other); err != nil {
		return err
	}
	a.compareCProfile(&other)
	return nil
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }

// tenProfile records one run and returns its samples and its truth.
func (b *bench) tenProfile(ctx context.Context, a *Accuracy, run accuracyRun) ([]seen, *TenTruth, error) {
	args := []string{seconds(run.length), "--on-line"}
	if run.cpu {
		args = append(args, "--cpu")
	}
	p, err := b.start(ctx, "profile10.py", args...)
	if err != nil {
		return nil, nil, err
	}
	defer p.Stop()
	s, dir, err := b.record(ctx, Request{PID: p.PID, PeriodNs: run.periodNs})
	if err != nil {
		return nil, nil, err
	}
	var truth TenTruth
	err = p.Run(ctx, &truth)
	_, stopErr := s.Stop()
	if err := errors.Join(err, stopErr); err != nil {
		return nil, nil, err
	}
	list, meta, err := pythonSamples(dir, p.PID)
	if err != nil {
		return nil, nil, err
	}
	a.Event, a.PeriodNs = meta.Event, meta.Period
	a.Lost, a.Throttled = meta.Loss.Samples, meta.Loss.Throttled
	return list, &truth, nil
}

// compare fills the table.
func (a *Accuracy) compare(list []seen, truth *TenTruth) error {
	counts := make([]int64, len(nominalShares))
	for _, s := range list {
		if i := tenIndex(s.function); i >= 0 && s.time >= truth.Begin && s.time < truth.End {
			counts[i]++
			a.Samples++
		}
	}
	if a.Samples == 0 {
		return errors.New("no sample of the ten functions: see pathprof check")
	}
	true_, errs := truth.Shares(), make([]float64, len(counts))
	slices := sliceErrors(list, truth)
	// All ten intervals are to hold together.
	confidence := 1 - 0.05/float64(len(counts))
	for i, k := range counts {
		f := FunctionShare{Name: tenName(i), Nominal: nominalShares[i] / 100, Truth: true_[i], Samples: k}
		f.Share.Value = float64(k) / float64(a.Samples)
		f.Share.Low, f.Share.High = join.Wilson(k, a.Samples)
		if !f.Share.Holds(f.Truth) {
			a.Missed++
		}
		errs[i] = 100 * (f.Share.Value - f.Truth)
		a.ExpectedRMS += f.Truth * (1 - f.Truth) / float64(a.Samples) / float64(len(counts))
		f.MeanError = MeanEstimate(slices[i], confidence)
		a.Biased = a.Biased || !f.MeanError.Holds(0)
		a.Functions = append(a.Functions, f)
	}
	a.RMS, a.ExpectedRMS = RMS(errs), 100*math.Sqrt(a.ExpectedRMS)
	return nil
}

// tenIndex is the number of one of the ten functions, -1 for others.
func tenIndex(name string) int {
	if len(name) != 2 || name[0] != 'f' || name[1] < '0' || name[1] > '9' {
		return -1
	}
	return int(name[1] - '0')
}

// sliceErrors returns, for each function, the errors of its share in the slices
// of the run, in points. Each slice counts by its share of all samples, so that
// the mean is the error of the whole.
func sliceErrors(list []seen, truth *TenTruth) [][]float64 {
	kept := withTime(truth.Slices)
	n := len(kept) - 1
	out := make([][]float64, len(nominalShares))
	if n < 2 {
		return out
	}
	begins := make([]int64, len(kept))
	for i, s := range kept {
		begins[i] = s[0]
	}
	counts := make([][]float64, n)
	totals := make([]float64, n)
	for i := range counts {
		counts[i] = make([]float64, len(nominalShares))
	}
	var all float64
	for _, s := range list {
		at := sort.Search(len(begins), func(i int) bool { return begins[i] > s.time }) - 1
		if i := tenIndex(s.function); i >= 0 && at >= 0 && at < n {
			counts[at][i]++
			totals[at]++
			all++
		}
	}
	for at := range n {
		spent := make([]float64, len(nominalShares))
		rounds := kept[at+1][len(spent)+1] - kept[at][len(spent)+1]
		for i := range spent {
			spent[i] = float64(kept[at+1][i+1] - kept[at][i+1] - rounds*truth.ClockNs)
		}
		spent = normalise(spent)
		for i := range spent {
			weight := float64(n) / math.Max(all, 1)
			out[i] = append(out[i], 100*(counts[at][i]-spent[i]*totals[at])*weight)
		}
	}
	return out
}

// withTime leaves out a cut where nothing ran since the last one: the end of the
// run may be where a slice ends anyway.
func withTime(cuts [][]int64) (kept [][]int64) {
	for _, c := range cuts {
		if len(kept) == 0 || !slices.Equal(c[1:], kept[len(kept)-1][1:]) {
			kept = append(kept, c)
		}
	}
	return kept
}

// compareCProfile adds what cProfile says, against the truth of its own run.
func (a *Accuracy) compareCProfile(truth *TenTruth) {
	found := make([]float64, len(nominalShares))
	for i := range found {
		found[i] = float64(truth.CProfile[tenName(i)])
	}
	found = normalise(found)
	own := truth.Shares()
	if slices.ContainsFunc(slices.Concat(found, own), math.IsNaN) {
		return
	}
	errs := make([]float64, len(found))
	for i := range found {
		errs[i] = 100 * (found[i] - own[i])
		a.Functions[i].CProfile, a.Functions[i].CProfileTruth = &found[i], &own[i]
	}
	rms := RMS(errs)
	a.CProfileRMS = &rms
}

// accuracyRun is how the ten functions are sampled.
type accuracyRun struct {
	periodNs int64
	length   time.Duration
	cpu      bool // length is CPU time: for a number of samples
}

// leastAccuracy is the shortest run that shows anything.
const leastAccuracy = 500 * time.Millisecond

// accuracyPeriod is the usual period of the accuracy table.
const accuracyPeriod = 500_000

// runWithin takes the samples that fit a time.
func runWithin(d time.Duration) accuracyRun { return accuracyRun{periodNs: accuracyPeriod, length: d} }

// runFor chooses period and length for so many samples.
func runFor(samples int) (accuracyRun, error) {
	run := accuracyRun{periodNs: accuracyPeriod, cpu: true}
	switch {
	case samples < 1000 || samples > 3_000_000:
		return run, fmt.Errorf("%d samples: must be 1000 to 3000000", samples)
	case samples > 50_000:
		run.periodNs = 100_000
	}
	run.length = time.Duration(int64(samples) * run.periodNs)
	return run, nil
}
