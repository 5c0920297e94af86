// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"time"

	"gonum.org/v1/gonum/stat"

	"pathprof/perfevent/bpf"
)

// The periodic program: its rounds are as long as the usual period, and so is the
// share of the marked function that a sampler in step sees as nothing or all.
const (
	roundNs     = 1_000_000
	markedShare = 0.3
)

// leastPhase and leastSkid are the shortest runs that show anything; longestSkid
// bounds the program's log.
const (
	leastPhase  = 500 * time.Millisecond
	leastSkid   = 300 * time.Millisecond
	longestSkid = time.Second
)

// measurePhase samples the periodic program in step, with the odd period that the
// recorder uses instead, and with jitter.
func (b *bench) measurePhase(ctx context.Context, d time.Duration) (p Phase, err error) {
	p.RoundNs = roundNs
	odd := b.opt.OddPeriod
	ways := []struct {
		name string
		Request
	}{
		{"same period", Request{PeriodNs: roundNs}},
		{"odd period", Request{PeriodNs: odd(roundNs)}},
		{"jitter", Request{PeriodNs: roundNs, Jitter: true}},
	}
	end := time.Now().Add(d)
	for i, w := range ways {
		part := time.Until(end) / time.Duration(len(ways)-i)
		way, err := b.periodicWay(ctx, w.name, w.Request, b.within(part, leastPhase))
		if err != nil {
			return p, err
		}
		p.Ways = append(p.Ways, way)
	}
	for _, asked := range overheadPeriods {
		p.Periods = append(p.Periods, OddPeriod{asked, odd(asked)})
	}
	return p, nil
}

func (b *bench) periodicWay(ctx context.Context, name string, r Request, d time.Duration) (w PhaseWay, err error) {
	w = PhaseWay{Way: name, PeriodNs: r.PeriodNs}
	p, err := b.start(ctx, "periodic.py", seconds(d), strconv.Itoa(roundNs), fmt.Sprint(markedShare), "--on-line")
	if err != nil {
		return w, err
	}
	defer p.Stop()
	r.PID = p.PID
	s, dir, err := b.record(ctx, r)
	if err != nil {
		return w, err
	}
	var truth struct {
		Begin     int64              `json:"begin_ns"`
		End       int64              `json:"end_ns"`
		Functions map[string]float64 `json:"functions"`
	}
	err = p.Run(ctx, &truth)
	_, stopErr := s.Stop()
	if err := errors.Join(err, stopErr); err != nil {
		return w, err
	}
	list, _, err := pythonSamples(dir, p.PID)
	if err != nil {
		return w, err
	}
	counts := sliceCounts{}
	for _, s := range list {
		if s.time >= truth.Begin && s.time < truth.End && (s.function == "marked" || s.function == "rest") {
			counts.add(s.time, s.function == "marked")
		}
	}
	if w.Truth = truth.Functions["marked"] / (truth.Functions["marked"] + truth.Functions["rest"]); math.IsNaN(w.Truth) {
		return w, errFewUnits
	}
	w.Samples, w.Share = counts.share()
	w.Holds = w.Share.Holds(w.Truth)
	return w, nil
}

// measureSkid compares the lines of samples with the log of the program.
func (b *bench) measureSkid(ctx context.Context, d time.Duration) (k Skid, err error) {
	path := filepath.Join(b.dir, "skid.log")
	p, err := b.start(ctx, "skid.py", seconds(min(b.within(d, leastSkid), longestSkid)), path, "--on-line")
	if err != nil {
		return k, err
	}
	defer p.Stop()
	const period = 200_000
	s, dir, err := b.record(ctx, Request{PID: p.PID, PeriodNs: period, CPUs: b.counted()})
	if err != nil {
		return k, err
	}
	var truth struct {
		First    int32  `json:"first"`
		Lines    int32  `json:"lines"`
		Function string `json:"function"`
	}
	err = p.Run(ctx, &truth)
	_, stopErr := s.Stop()
	if err := errors.Join(err, stopErr); err != nil {
		return k, err
	}
	list, _, err := pythonSamples(dir, p.PID)
	if err != nil {
		return k, err
	}
	log, err := readTimes(path)
	if err != nil {
		return k, err
	}
	var off [3]int64
	for _, s := range list {
		at := sort.Search(len(log), func(i int) bool { return log[i] > s.time }) - 1
		if s.function != truth.Function || at < 0 || at >= len(log)-1 || s.line < truth.First {
			continue
		}
		ran := int32(at)%truth.Lines + truth.First
		distance := (s.line - ran + truth.Lines) % truth.Lines
		off[min(distance, truth.Lines-distance, 2)]++
		k.Samples++
	}
	n := math.Max(1, float64(k.Samples))
	k.Exact, k.Next, k.Far = float64(off[0])/n, float64(off[1])/n, float64(off[2])/n
	median, p99 := lateness(list, period)
	k.LateNs, k.Late99Ns = finite(median), finite(p99)
	return k, nil
}

func readTimes(path string) ([]int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the program's log: %w", err)
	}
	times := make([]int64, len(text)/8)
	for i := range times {
		times[i] = int64(binary.NativeEndian.Uint64(text[8*i:]))
	}
	return times, nil
}

// lateness is how far samples are behind the timer's grid: the earliest of 50 in
// a row is taken to be on it, as no interrupt comes early.
func lateness(list []seen, period int64) (median, p99 float64) {
	const row = 50
	var late []float64
	for chunk := range slices.Chunk(list, row) {
		if len(chunk) < row {
			break
		}
		// Distances within a period of the first; those before it wrap around.
		var offsets []float64
		for _, s := range chunk {
			x := (s.time - chunk[0].time + period/2) % period
			offsets = append(offsets, float64(x-period/2))
		}
		least := slices.Min(offsets)
		for _, x := range offsets {
			late = append(late, x-least)
		}
	}
	if len(late) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(late)
	return stat.Quantile(0.5, stat.Empirical, late, nil), stat.Quantile(0.99, stat.Empirical, late, nil)
}

// leastEvents is enough for ten thousands of switches.
const leastEvents = 300 * time.Millisecond

// measureEvents runs a program of nothing but switches under the recorder.
func (b *bench) measureEvents(ctx context.Context, d time.Duration) (e EventCost, err error) {
	p, err := b.start(ctx, "switchheavy.py", seconds(b.within(d, leastEvents)), "--on-line")
	if err != nil {
		return e, err
	}
	defer p.Stop()
	stats, err := bpf.EnableRunTimes()
	if err != nil {
		return e, err
	}
	defer stats.Close()
	s, _, err := b.record(ctx, Request{PID: p.PID, PeriodNs: costPeriod})
	if err != nil {
		return e, err
	}
	begin := time.Now()
	_, before, err1 := s.Capture.RunTimes()
	var done map[string]any
	err2 := p.Run(ctx, &done)
	_, after, err3 := s.Capture.RunTimes()
	took := time.Since(begin)
	meta, err4 := s.Stop()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return e, err
	}
	run := after.Sub(before)
	e.PerSecond = float64(run.Runs) / took.Seconds()
	e.EventNs = float64(run.Time.Nanoseconds()) / math.Max(1, float64(run.Runs))
	e.Share = run.Time.Seconds() / took.Seconds()
	e.Lost = meta.Loss.Events
	return e, nil
}
