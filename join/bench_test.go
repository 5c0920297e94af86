// SPDX-License-Identifier: Apache-2.0

package join

import (
	"testing"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// BenchmarkJoin lays a million samples on a path of a hundred thousand segments.
func BenchmarkJoin(b *testing.B) {
	const segments, perSegment = 100_000, 10
	stacks := make([]*recording.Stack, 1000)
	frame := &recording.Frame{Kind: recording.FramePython, Name: "f", File: "/app.py"}
	for i := range stacks {
		stacks[i] = &recording.Stack{Python: make([]uint32, 20), PythonStop: recording.StopComplete}
	}
	j := &joiner{
		names: newNames([]execgraph.Task{{ID: task(10), PID: 10, Name: "app"}}, &recording.Meta{}),
		stacks: newStackSet(
			func(id uint32) *recording.Stack { return stacks[int(id)%len(stacks)] },
			func(uint32) *recording.Frame { return frame }, FramesPython),
	}
	path := execgraph.Path{Target: task(10), End: segments * 1000}
	var samples []recording.Sample
	for i := range int64(segments) {
		state := execgraph.Running
		if i%2 == 1 {
			state = execgraph.Blocked
		}
		path.Segments = append(path.Segments, execgraph.Segment{
			Begin: i * 1000, End: (i + 1) * 1000, Task: task(10), State: state, Wait: -1, Stack: uint32(i),
		})
		for k := range int64(perSegment) {
			samples = append(samples, recording.Sample{Time: i*1000 + k*100, Stack: 1 + uint32(i*7+k)%999, Value: 100})
		}
	}
	j.samples = map[sched.TaskID][]recording.Sample{task(10): samples}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.join(path); err != nil {
			b.Fatal(err)
		}
	}
}
