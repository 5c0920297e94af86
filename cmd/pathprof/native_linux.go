// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"

	"pathprof/perfevent/bpf"
	"pathprof/perfevent/recording"
	"pathprof/unwind/proc"
)

// nativeFrames resolves the native part. By frame pointers alone a walk through
// code compiled without them yields addresses that are none: the stack is cut
// at the first that lies in no executable mapping.
func (r *resolver) nativeFrames(p *process, s *bpf.Stack, out *recording.Stack) error {
	for i, word := range s.Native {
		pc := word &^ bpf.NativeExact
		lookup := pc
		if word&bpf.NativeExact == 0 {
			lookup-- // a return address may be the next function's first
		}
		m, ok := r.mappingOf(p, lookup, i == 0)
		if !ok {
			if i == 0 {
				r.strays++
				id, err := r.number(strayFrame(pc), func() recording.Frame {
					return recording.Frame{Kind: recording.FrameNative, Address: pc}
				})
				if err != nil {
					return err
				}
				out.Native = append(out.Native, id)
			}
			if out.NativeStop == recording.StopComplete {
				out.NativeStop = recording.StopBadFrame
			}
			return nil
		}
		id, err := r.nativeFrame(p, m, lookup)
		if err != nil {
			return err
		}
		out.Native = append(out.Native, id)
	}
	return nil
}

// anonymousName stands for the file of code that is in none.
const anonymousName = "[anonymous]"

// nativeFrame writes a frame without its name, which is looked up later.
func (r *resolver) nativeFrame(p *process, m *proc.Mapping, pc uint64) (uint32, error) {
	im := r.images.of(p, m)
	key := nativeFrame{im, im.vaddr(m, pc)}
	if id, ok := r.frames[key]; ok {
		return id, nil
	}
	id, err := r.number(key, func() recording.Frame {
		return recording.Frame{
			Kind: recording.FrameNative, File: cmp.Or(m.Path, anonymousName), Address: key.vaddr,
			BuildID: im.buildID, Eval: p.interp != nil && inRanges(p.interp.EvalRanges, pc),
		}
	})
	r.images.named(im, id, key.vaddr)
	return id, err
}

func inRanges(ranges [][2]uint64, pc uint64) bool {
	return slices.ContainsFunc(ranges, func(r [2]uint64) bool { return r[0] <= pc && pc < r[1] })
}

// How often mappings are read again for an address in none: one that did run lies
// in a mapping, of which the side band has not told yet; any other is more often a
// bad guess than a new mapping.
const (
	rereadMaps    = time.Second
	rereadMapsRan = 50 * time.Millisecond
)

// mappingOf finds the executable mapping of an address, which may have run for
// certain.
func (r *resolver) mappingOf(p *process, addr uint64, ran bool) (*proc.Mapping, bool) {
	if m, ok := findMapping(p.maps, addr); ok && !p.stale {
		return m, true
	}
	age := time.Since(p.mapsRead)
	if p.stale || ran && age > rereadMapsRan || !p.fresh && age > rereadMaps {
		p.mapsRead = time.Now()
		maps, err := proc.Maps(int(p.pid))
		maps = slices.DeleteFunc(maps, func(m proc.Mapping) bool { return !m.Exec })
		if err == nil && (!p.fresh || sameProgram(p.maps, maps)) {
			p.maps = maps
		}
		p.stale = false
	}
	return findMapping(p.maps, addr)
}

// sameProgram tells whether a process whose mappings were known still runs the same
// program: the sample may be of the one before an exec that is no news yet.
func sameProgram(known, now []proc.Mapping) bool {
	return len(known) == 0 || slices.ContainsFunc(now, func(m proc.Mapping) bool {
		return m.Start == known[0].Start && m.Path == known[0].Path
	})
}

func findMapping(maps []proc.Mapping, addr uint64) (*proc.Mapping, bool) {
	i, found := slices.BinarySearchFunc(maps, addr, func(m proc.Mapping, addr uint64) int {
		return compareUint(m.Start, addr)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= maps[i].End {
		return nil, false
	}
	return &maps[i], true
}

func compareUint(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}
