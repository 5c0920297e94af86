// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"fmt"

	"github.com/google/pprof/profile"

	"pathprof/join"
	"pathprof/join/execgraph"
)

// The limits of a mapping: a native frame's address is its file's own, so the
// mapping spans all addresses a file can have. The kernel's half of the address
// space begins at the same bit on amd64 and arm64 (48-bit addresses).
const (
	nativeLimit = 1 << 47
	kernelStart = 0xffff_0000_0000_0000
	kernelLimit = 0xffff_ffff_ffff_ffff
	kernelFile  = "[kernel.kallsyms]"
	pythonFile  = "[python]"
	ownFile     = "[pathprof]"
)

// entryRef is one entry of a profile, by the indices of path and entry.
type entryRef struct{ path, entry int }

// Build returns one profile with the given paths of p (indices in p.Paths), or
// with all of them if none is given.
func Build(p *join.Profile, paths ...int) (*profile.Profile, error) {
	if len(paths) == 0 {
		for i := range p.Paths {
			paths = append(paths, i)
		}
	}
	var refs []entryRef
	for _, i := range paths {
		if i < 0 || i >= len(p.Paths) {
			return nil, fmt.Errorf("path %d of %d", i, len(p.Paths))
		}
		for e := range p.Paths[i].Entries {
			refs = append(refs, entryRef{i, e})
		}
	}
	return build(p, refs, nil)
}

// builder numbers what a profile refers to.
type builder struct {
	p         *join.Profile
	out       *profile.Profile
	samples   map[sampleKey]*profile.Sample
	stacks    map[*join.Stack][]*profile.Location
	locations map[locationKey]*profile.Location
	functions map[functionKey]*profile.Function
	mappings  map[mappingKey]*profile.Mapping
	// finding on the difference from another profile; nil: there is none.
	finding func(*join.ThreadPath, *join.Entry) join.Finding
}

// sampleKey: entries alike in stack and labels are one sample.
type sampleKey struct {
	stack       *join.Stack
	path, class int
	status      join.Status
}

type locationKey struct {
	mapping  uint64
	function uint64
	address  uint64
	line     int32
}

type functionKey struct {
	name, file string
	line       int32
	object     string // functions of the same name in two files are two
}

type mappingKey struct{ file, buildID string }

// build makes a profile of some entries.
func build(p *join.Profile, refs []entryRef, finding func(*join.ThreadPath, *join.Entry) join.Finding) (*profile.Profile, error) {
	b := &builder{
		p:         p,
		out:       newProfile(p),
		samples:   make(map[sampleKey]*profile.Sample),
		stacks:    make(map[*join.Stack][]*profile.Location),
		locations: make(map[locationKey]*profile.Location),
		functions: make(map[functionKey]*profile.Function),
		mappings:  make(map[mappingKey]*profile.Mapping),
		finding:   finding,
	}
	// pprof shows the first mapping as the profile's file.
	b.mapping(&join.Frame{Kind: join.KindPython})
	for _, r := range refs {
		b.add(r)
	}
	b.out.Comments = comments(p, refs)
	if err := b.out.CheckValid(); err != nil {
		return nil, fmt.Errorf("built profile: %w", err)
	}
	return b.out, nil
}

// newProfile is a profile without samples.
func newProfile(p *join.Profile) *profile.Profile {
	event := &profile.ValueType{Type: p.Event, Unit: p.Unit}
	if p.Unit == "nanoseconds" {
		// Under this name every tool shows it as CPU time.
		event.Type = "cpu"
	}
	return &profile.Profile{
		SampleType: []*profile.ValueType{
			{Type: "path", Unit: "nanoseconds"},
			{Type: "samples", Unit: "count"},
			event,
		},
		DefaultSampleType: "path",
		PeriodType:        &profile.ValueType{Type: p.Event, Unit: p.Unit},
		Period:            p.Period,
		TimeNanos:         p.RealtimeOffsetNs + p.BeginNs,
		DurationNanos:     p.EndNs - p.BeginNs,
	}
}

// add counts one entry.
func (b *builder) add(r entryRef) {
	path := &b.p.Paths[r.path]
	e := &path.Entries[r.entry]
	key := sampleKey{e.Stack, r.path, path.ClassOf[e.Segment], e.Status}
	s, ok := b.samples[key]
	if !ok {
		s = &profile.Sample{Location: b.stack(e.Stack), Value: make([]int64, 3)}
		b.label(s, path, &path.Classes[key.class].Key)
		if e.Status != join.StatusUnknown {
			s.Label["python"] = []string{string(e.Status)}
		}
		if b.finding != nil {
			s.Label["difference"] = []string{string(b.finding(path, e))}
		}
		b.samples[key] = s
		b.out.Sample = append(b.out.Sample, s)
	}
	s.Value[0] += e.Values.PathNs
	s.Value[1] += e.Values.Samples
	s.Value[2] += e.Values.Event
}

// label writes the words of a class to a sample.
func (b *builder) label(s *profile.Sample, path *join.ThreadPath, k *join.ClassKey) {
	s.Label = map[string][]string{
		"segment": {k.String()},
		"state":   {k.State.String()},
		"process": {k.ProcessName},
		"thread":  {k.ThreadName},
		"path":    {path.Thread.String()},
	}
	if k.Cause.Kind != execgraph.CauseNone {
		s.Label["cause"] = []string{k.Cause.String()}
	}
	if k.Wait.Kind != execgraph.CauseNone {
		s.Label["wait"] = []string{k.Wait.String()}
	}
	for name, words := range map[string]string{"in": k.In, "at": k.At} {
		if words != "" {
			s.Label[name] = []string{words}
		}
	}
	if k.Polling != "" {
		s.Label["polling"] = []string{k.Polling}
	}
	if h := int(k.Task.Host); h < len(b.p.Hosts) && b.p.Hosts[h] != "" {
		s.Label["host"] = []string{b.p.Hosts[h]}
	}
	s.NumLabel = map[string][]int64{
		"tid":      {int64(k.TID)},
		"path_tid": {int64(path.Thread.ID.TID)},
	}
}

// stack returns the locations of a stack, innermost first, as pprof has it.
func (b *builder) stack(s *join.Stack) []*profile.Location {
	if list, ok := b.stacks[s]; ok {
		return list
	}
	list := make([]*profile.Location, len(s.Frames))
	for i := range s.Frames {
		list[i] = b.location(&s.Frames[i])
	}
	b.stacks[s] = list
	return list
}

func (b *builder) location(f *join.Frame) *profile.Location {
	m, fn := b.mapping(f), b.function(f)
	key := locationKey{mapping: m.ID, function: fn.ID, line: f.Line}
	if f.Kind == join.KindNative || f.Kind == join.KindKernel {
		// The address of a Python frame is that of an object in the heap: it
		// tells a person nothing and would split equal lines.
		key.address = f.Address
	}
	if l, ok := b.locations[key]; ok {
		return l
	}
	l := &profile.Location{
		ID:      uint64(len(b.out.Location) + 1),
		Mapping: m,
		Address: key.address,
		Line:    []profile.Line{{Function: fn, Line: int64(f.Line)}},
	}
	b.locations[key] = l
	b.out.Location = append(b.out.Location, l)
	return l
}

func (b *builder) function(f *join.Frame) *profile.Function {
	key := functionKey{f.Name, f.File, f.FirstLine, f.Mapping}
	if fn, ok := b.functions[key]; ok {
		return fn
	}
	fn := &profile.Function{
		ID:        uint64(len(b.out.Function) + 1),
		Name:      f.Name,
		Filename:  f.File,
		StartLine: int64(f.FirstLine),
	}
	if f.Kind == join.KindNative || f.Kind == join.KindKernel {
		fn.SystemName = f.Name
	}
	b.functions[key] = fn
	b.out.Function = append(b.out.Function, fn)
	return fn
}

// mapping returns the file a frame lies in. Frames that lie in none get a
// mapping, too: pprof looks for binaries to fit a profile that has none at all.
func (b *builder) mapping(f *join.Frame) *profile.Mapping {
	m := profile.Mapping{Limit: nativeLimit}
	switch f.Kind {
	case join.KindKernel:
		m.Start, m.Limit, m.File = kernelStart, kernelLimit, kernelFile
	case join.KindNative:
		m.File, m.BuildID = f.Mapping, f.BuildID
		if m.File == "" {
			m.File = ownFile
		}
	case join.KindPython:
		m.File = pythonFile
	default:
		m.File = ownFile
	}
	key := mappingKey{m.File, m.BuildID}
	if known, ok := b.mappings[key]; ok {
		return known
	}
	m.ID = uint64(len(b.out.Mapping) + 1)
	m.HasFunctions, m.HasFilenames, m.HasLineNumbers = true, true, true
	b.mappings[key] = &m
	b.out.Mapping = append(b.out.Mapping, &m)
	return &m
}
