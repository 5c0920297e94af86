// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"errors"
	"fmt"

	"pathprof/perfevent/recording"
)

// seen is one sample of a program, by its innermost Python function.
type seen struct {
	time     int64
	function string // empty if unknown
	line     int32
}

// pythonSamples reads the samples of a process with their innermost Python
// function, in time order within a CPU.
func pythonSamples(dir string, pid int32) (list []seen, meta recording.Meta, err error) {
	r, err := recording.Open(dir)
	if err != nil {
		return nil, meta, fmt.Errorf("open recording: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	frames, err1 := r.Frames()
	stacks, err2 := r.Stacks()
	if err := errors.Join(err1, err2); err != nil {
		return nil, meta, err
	}
	for s, err := range r.Samples() {
		if err != nil {
			return nil, meta, fmt.Errorf("read samples: %w", err)
		}
		if s.PID != pid {
			continue
		}
		one := seen{time: s.Time}
		if int(s.Stack) < len(stacks) && len(stacks[s.Stack].Python) > 0 {
			f := &frames[stacks[s.Stack].Python[0]]
			one.function, one.line = f.Name, f.Line
		}
		list = append(list, one)
	}
	return list, r.Meta(), nil
}
