// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"

	"pathprof/calibrate"
	"pathprof/perfevent"
	"pathprof/perfevent/recording"
)

// runCalibration measures this machine with the recorder of record.
func runCalibration(ctx context.Context, opt calibration) (calibrate.Result, error) {
	if err := perfevent.CheckRecord(); err != nil {
		return calibrate.Result{}, err
	}
	return calibrate.Run(ctx, calibrate.Options{
		Python: opt.python, Quick: opt.quick, Samples: opt.samples, Wishes: opt.wishes,
		Progress: opt.progress, Record: startSession, OddPeriod: outOfStep,
	})
}

// readMachine tells what machine and kernel this is.
func readMachine() calibrate.Machine { return calibrate.ReadMachine() }

// startSession begins a recording and returns when its counters run.
func startSession(ctx context.Context, r calibrate.Request) (*calibrate.Session, error) {
	opt := recordOptions{
		pids: []int32{r.PID}, out: r.Dir, event: perfevent.CPUClock,
		period: perfevent.Period{Value: uint64(r.PeriodNs)}, jitter: r.Jitter,
		cpus: r.CPUs, costs: r.Costs, bare: true, asked: map[string]string{"calibrate": "true"},
	}
	ctx, cancel := context.WithCancel(ctx)
	type ended struct {
		sum summary
		err error
	}
	begun, end := make(chan *session, 1), make(chan ended, 1)
	go func() {
		sum, err := recordWith(ctx, opt, func(s *session) { begun <- s })
		end <- ended{sum, err}
	}()
	select {
	case s := <-begun:
		stop := sync.OnceValues(func() (recording.Meta, error) {
			cancel()
			e := <-end
			return e.sum.meta, e.err
		})
		return &calibrate.Session{Counters: s.counters, Capture: s.capture, Stop: stop}, nil
	case e := <-end:
		cancel()
		return nil, e.err
	}
}
