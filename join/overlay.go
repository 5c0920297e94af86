// SPDX-License-Identifier: Apache-2.0

package join

import "pathprof/join/execgraph"

// overlay is what is laid over a path besides samples: what its waits are in,
// its modes, its event loop.
type overlay struct {
	j       *joiner
	objects objects
	waits   []WaitInfo
	in      []string // of the waits, as classes have it
	modes   modeClock
	loop    loopClock
}

func newOverlay(j *joiner, path *execgraph.Path) *overlay {
	o := &overlay{
		j: j, objects: objects{j: j, seen: make(map[string]bool)},
		waits: make([]WaitInfo, len(path.Waits)), in: make([]string, len(path.Waits)),
		modes: newModeClock(j),
		loop:  loopClock{tasks: make(map[loopKey]*LoopTask)},
	}
	pid := j.names.of(path.Target).PID
	for i := range path.Waits {
		w := &path.Waits[i]
		o.waits[i], o.in[i] = j.waitInfo(&o.objects, pid, w)
	}
	return o
}

// key is the class of a segment, in which its task asks for something busily.
func (o *overlay) key(path *execgraph.Path, seg *execgraph.Segment, polling string) ClassKey {
	t := o.j.names.of(seg.Task)
	k := ClassKey{
		State: seg.State, Cause: o.j.names.reason(seg.Cause),
		PID: t.PID, TID: seg.Task.TID, Task: seg.Task,
		ProcessName: t.Process, ThreadName: t.Thread,
		At: o.j.at(&o.objects, seg), Polling: polling,
	}
	if seg.Wait >= 0 && seg.Wait < len(path.Waits) {
		k.Wait, k.In = o.j.names.reason(path.Waits[seg.Wait].Cause), o.in[seg.Wait]
	}
	return k
}

// lay counts a segment for the modes and the event loop.
func (o *overlay) lay(path *execgraph.Path, seg *execgraph.Segment, s span, entries []Entry) {
	if onCPU(seg.State) {
		o.modes.running(seg, s)
	} else {
		o.modes.add(o.modes.off(seg), seg.End-seg.Begin)
	}
	if seg.Depth == 0 && onCPU(seg.State) {
		for _, e := range entries {
			o.loop.note(e.Stack, e.Values, true)
		}
	} else if st := o.j.loopStack(path, seg); st != nil {
		o.loop.note(st, Values{PathNs: seg.End - seg.Begin}, true)
	} else if seg.Depth == 0 && seg.State == execgraph.Preempted {
		o.loop.keep(seg.End - seg.Begin)
	}
}
