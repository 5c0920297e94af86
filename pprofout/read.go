// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"pathprof/join"
	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// maxProfile is the size of the largest profile that is read, unpacked.
const maxProfile = 1 << 30

// ReadDir reads the [PathFile] of a directory that [WriteDir] wrote.
func ReadDir(dir string) (*join.Profile, error) {
	f, err := os.Open(filepath.Join(dir, PathFile))
	if err != nil {
		return nil, fmt.Errorf("open profile: %w", err)
	}
	defer f.Close()
	p, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name(), err)
	}
	return p, nil
}

// Read makes a profile of one that [Build] made. What only a recording knows is
// missing: each class is one segment, and when it lay is not known
// (join.Profile.Aggregated). Other tools' profiles are an error.
func Read(r io.Reader) (*join.Profile, error) {
	data, err := unpack(r)
	if err != nil {
		return nil, err
	}
	in, err := profile.ParseUncompressed(data)
	if err != nil {
		return nil, fmt.Errorf("parse profile: %w", err)
	}
	if len(in.SampleType) != 3 || in.SampleType[0].Type != "path" || in.SampleType[0].Unit != "nanoseconds" ||
		in.SampleType[1].Type != "samples" {
		return nil, fmt.Errorf("parse profile: want the values path/nanoseconds and samples/count, as this program writes them")
	}
	b := reader{paths: make(map[string]*readPath), stacks: make(map[string]*join.Stack)}
	for i, s := range in.Sample {
		if err := b.add(s); err != nil {
			return nil, fmt.Errorf("sample %d: %w", i, err)
		}
	}
	p := &join.Profile{Aggregated: true, Period: in.Period, EndNs: in.DurationNanos, Samples: b.samples, Complete: true}
	if in.PeriodType != nil {
		p.Event, p.Unit = in.PeriodType.Type, in.PeriodType.Unit
	}
	for _, path := range b.order {
		p.Paths = append(p.Paths, path.finish())
	}
	return p, nil
}

// unpack reads all of a file, which is packed or not.
func unpack(r io.Reader) ([]byte, error) {
	in := bufio.NewReader(r)
	if head, _ := in.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		unzip, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("unpack profile: %w", err)
		}
		r = unzip
	} else {
		r = in
	}
	data, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return nil, fmt.Errorf("unpack profile: %w", err)
	}
	if len(data) > maxProfile {
		return nil, fmt.Errorf("unpack profile: more than %d bytes", maxProfile)
	}
	return data, nil
}

// reader collects samples.
type reader struct {
	paths  map[string]*readPath
	order  []*readPath
	stacks map[string]*join.Stack
	// Sums of all.
	ns, samples int64
}

// maxSum of values: 36 years of ns.
const maxSum = 1 << 60

// readPath is one thread's path while it is read.
type readPath struct {
	thread  join.ThreadInfo
	byKey   map[join.ClassKey]int
	classes []join.Class
	entries [][]join.Entry // by class
}

// add puts a sample into its path and class.
func (r *reader) add(s *profile.Sample) error {
	name := label(s, "path")
	segment := label(s, "segment")
	if name == "" || segment == "" {
		return fmt.Errorf("no labels path and segment")
	}
	id := fmt.Sprint(name, " ", number(s, "path_tid"))
	p := r.paths[id]
	if p == nil {
		p = &readPath{thread: threadOf(name, number(s, "path_tid")), byKey: make(map[join.ClassKey]int)}
		r.paths[id] = p
		r.order = append(r.order, p)
	}
	key, err := classOf(s, segment)
	if err != nil {
		return err
	}
	v := join.Values{PathNs: s.Value[0], Samples: s.Value[1], Event: s.Value[2]}
	r.ns += v.PathNs
	r.samples += v.Samples
	if v.PathNs < 0 || v.Samples < 0 || v.PathNs > maxSum || v.Samples > maxSum || r.ns > maxSum || r.samples > maxSum {
		return fmt.Errorf("values out of range: %v", s.Value)
	}
	i, ok := p.byKey[key]
	if !ok {
		i = len(p.classes)
		p.byKey[key] = i
		p.classes = append(p.classes, join.Class{Key: key, Segments: 1})
		p.entries = append(p.entries, nil)
	}
	p.classes[i].Ns += v.PathNs
	p.classes[i].Samples += v.Samples
	p.entries[i] = append(p.entries[i], join.Entry{Stack: r.stack(s.Location), Values: v})
	return nil
}

// finish lays the classes one after another, most time first.
func (p *readPath) finish() join.ThreadPath {
	order := make([]int, len(p.classes))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.classes[b].Ns, p.classes[a].Ns) })
	out := join.ThreadPath{Thread: p.thread, Path: execgraph.Path{Target: p.thread.ID}}
	for _, i := range order {
		c := p.classes[i]
		segment := len(out.ClassOf)
		begin := out.Path.End
		out.Path.End += c.Ns
		out.Path.Segments = append(out.Path.Segments, execgraph.Segment{
			Begin: begin, End: out.Path.End, Task: c.Key.Task, State: c.Key.State, CPU: -1, Wait: -1,
		})
		out.Classes = append(out.Classes, c)
		out.ClassOf = append(out.ClassOf, segment)
		for _, e := range p.entries[i] {
			e.Segment = segment
			out.Entries = append(out.Entries, e)
		}
	}
	for i := range out.Classes {
		if out.Path.End > 0 {
			out.Classes[i].Share = float64(out.Classes[i].Ns) / float64(out.Path.End)
		}
	}
	return out
}

func label(s *profile.Sample, key string) string {
	if v := s.Label[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

func number(s *profile.Sample, key string) int32 {
	if v := s.NumLabel[key]; len(v) > 0 {
		return int32(v[0])
	}
	return 0
}

// threadOf takes PROCESS/THREAD apart. A thread that goes by its number has its
// process' name.
func threadOf(name string, tid int32) join.ThreadInfo {
	t := join.ThreadInfo{ID: sched.TaskID{TID: tid}, PID: -1}
	if process, short, ok := strings.Cut(name, "/"); ok {
		t.Process, t.Thread = process, short
	} else {
		t.Process, t.Thread = name, name
	}
	switch at := strings.LastIndex(name, "/"); {
	case at >= 0 && name[at+1:] == fmt.Sprint(tid):
		t.Process, t.Thread = name[:at], name[:at]
	case t.Process == t.Thread:
		t.PID = tid // the main thread
	}
	return t
}

// stateOf reads a state's word.
func stateOf(word string) (execgraph.State, error) {
	for s := execgraph.Unknown; s <= execgraph.Interrupted; s++ {
		if s.String() == word {
			return s, nil
		}
	}
	return execgraph.Unknown, fmt.Errorf("state %q", word)
}

// classOf reads the labels that say what a sample's segment is.
func classOf(s *profile.Sample, segment string) (join.ClassKey, error) {
	state, err := stateOf(label(s, "state"))
	if err != nil {
		return join.ClassKey{}, err
	}
	k := join.ClassKey{State: state, Wait: join.ParseReason(label(s, "wait")), Cause: join.ParseReason(label(s, "cause")),
		In: label(s, "in"), At: label(s, "at"), Polling: label(s, "polling")}
	head := k.String() // ends with the name of no thread
	name := strings.TrimPrefix(segment, strings.TrimSuffix(head, "/"))
	t := threadOf(name, number(s, "tid"))
	k.PID, k.TID, k.Task, k.ProcessName, k.ThreadName = t.PID, t.ID.TID, t.ID, t.Process, t.Thread
	return k, nil
}

// stack makes frames of locations, innermost first.
func (r *reader) stack(list []*profile.Location) *join.Stack {
	var id strings.Builder
	for _, l := range list {
		fmt.Fprintf(&id, "%d ", l.ID)
	}
	if s := r.stacks[id.String()]; s != nil {
		return s
	}
	s := &join.Stack{}
	for _, l := range list {
		s.Frames = append(s.Frames, frames(l)...)
	}
	r.stacks[id.String()] = s
	return s
}

// frames are those of a location, inlined ones first.
func frames(l *profile.Location) []join.Frame {
	kind, file, buildID := join.KindNative, "", ""
	if m := l.Mapping; m != nil {
		switch m.File {
		case pythonFile:
			kind = join.KindPython
		case kernelFile:
			kind = join.KindKernel
		case ownFile:
			kind = "" // see below
		default:
			file, buildID = m.File, m.BuildID
		}
	}
	var out []join.Frame
	for _, line := range l.Line {
		if line.Function == nil {
			continue
		}
		at := kind
		if at == "" { // native code outside of files has a system name, other words have none
			if at = join.KindPathprof; line.Function.SystemName != "" {
				at = join.KindNative
			}
		}
		out = append(out, join.Frame{
			Name: line.Function.Name, File: line.Function.Filename, FirstLine: int32(line.Function.StartLine),
			Line: int32(line.Line), Kind: at, Address: l.Address, Mapping: file, BuildID: buildID,
		})
	}
	return out
}
