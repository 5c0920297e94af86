// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"pathprof/join"
	"pathprof/perfevent/recording"
)

// analysis is a recording with what it means.
type analysis struct {
	profile *join.Profile
	meta    recording.Meta
	window  window
}

// analyse opens a recording and finds the paths of the chosen threads. It is not
// worth stopping in good order: if ctx ends, it is left behind.
func analyse(ctx context.Context, dir string, w window) (*analysis, error) {
	type answer struct {
		a   *analysis
		err error
	}
	done := make(chan answer, 1)
	go func() {
		a, err := analyseAll(dir, w)
		done <- answer{a, err}
	}()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case r := <-done:
		return r.a, r.err
	}
}

func analyseAll(dir string, w window) (*analysis, error) {
	r, err := openNamed(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	meta := r.Meta()
	opt := join.Options{Threads: w.threads, Frames: w.frames, Lines: w.lines}
	opt.From, opt.To = w.from.ns(&meta, 0), w.to.ns(&meta, 0)
	p, err := join.Analyse(r, opt)
	if err != nil {
		return nil, err
	}
	return &analysis{profile: p, meta: meta, window: w}, nil
}
