// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/pprof/profile"

	"pathprof/join"
	"pathprof/join/execgraph"
)

// By says what each file of a directory of profiles holds.
type By string

// The ways to cut a profile.
const (
	ByClass   By = "class"   // alike segments; preemptions by whomever are alike
	BySegment By = "segment" // one segment
	ByThread  By = "thread"  // one thread on the path, whoever waits for it
	ByProcess By = "process" // one process on the path
	ByState   By = "state"   // running, blocked, …
)

// ParseBy reads one of the words of [By].
func ParseBy(word string) (By, error) {
	switch b := By(word); b {
	case ByClass, BySegment, ByThread, ByProcess, ByState:
		return b, nil
	}
	return "", fmt.Errorf("cut by %q: want class, segment, thread, process or state", word)
}

// maxFiles is how many files a directory gets at most: more is a mistake, not
// something a person reads.
const maxFiles = 10_000

// ErrTooManyFiles is returned by [WriteDir] before it writes anything. Cut by
// something coarser, or analyse a shorter window.
var ErrTooManyFiles = errors.New("too many files")

// PathFile is the file with everything in a directory of profiles.
const PathFile = "path.pb.gz"

// File is a profile that was written.
type File struct {
	Path        string
	What        string // in words
	Ns, Samples int64  // sums of path/nanoseconds and samples/count
}

// group is what one file holds.
type group struct {
	File
	slug string
	refs []entryRef
}

// WriteDir writes [PathFile] with everything and one file for each part of p into
// dir, which it makes if need be. The parts are numbered by their time, most
// first. Files are readable by their owner only, since they hold names of
// functions and files, and appear under their name when they are whole. Files
// of the same names are replaced, others in dir are left alone.
func WriteDir(p *join.Profile, dir string, by By) ([]File, error) {
	if _, err := ParseBy(string(by)); err != nil {
		return nil, err
	}
	all, groups := split(p, by)
	if len(groups) > maxFiles {
		return nil, fmt.Errorf("%d parts by %s, at most %d: %w", len(groups), by, maxFiles, ErrTooManyFiles)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make directory: %w", err)
	}
	all.Path = PathFile
	digits := max(2, len(fmt.Sprint(len(groups))))
	for i, g := range groups {
		g.Path = fmt.Sprintf("%0*d-%s.pb.gz", digits, i+1, g.slug)
	}
	var files []File
	for _, g := range append([]*group{all}, groups...) {
		prof, err := build(p, g.refs, nil)
		if err != nil {
			return files, err
		}
		g.Path = filepath.Join(dir, g.Path)
		if err := writeFile(g.Path, prof); err != nil {
			return files, err
		}
		files = append(files, g.File)
	}
	return files, nil
}

// split sorts entries into groups, most time first.
func split(p *join.Profile, by By) (all *group, groups []*group) {
	all = &group{File: File{What: "everything"}}
	known := make(map[any]*group)
	for i := range p.Paths {
		path := &p.Paths[i]
		for e := range path.Entries {
			entry := &path.Entries[e]
			key := partKey(by, path, i, entry.Segment)
			g, ok := known[key]
			if !ok {
				g = newGroup(by, path, entry.Segment, p.BeginNs)
				known[key] = g
				groups = append(groups, g)
			}
			for _, g := range []*group{all, g} {
				g.refs = append(g.refs, entryRef{i, e})
				g.Ns += entry.Values.PathNs
				g.Samples += entry.Values.Samples
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b *group) int { return cmp.Compare(b.Ns, a.Ns) })
	return all, groups
}

// partKey tells the parts of a profile apart.
func partKey(by By, path *join.ThreadPath, index, segment int) any {
	k := path.Classes[path.ClassOf[segment]].Key
	switch by {
	case BySegment:
		return [2]int{index, segment}
	case ByThread:
		return k.Task
	case ByProcess:
		return [2]any{k.PID, k.ProcessName}
	case ByState:
		return k.State
	}
	return foldedKey(k)
}

// foldedKey takes preemptions by whomever as one class: on a busy machine there
// are hundreds, each too short to look at. The label cause keeps them apart.
func foldedKey(k join.ClassKey) join.ClassKey {
	if k.State == execgraph.Preempted {
		k.Cause = join.Reason{}
	}
	return k
}

// newGroup names the part a segment belongs to.
func newGroup(by By, path *join.ThreadPath, segment int, begin int64) *group {
	k := path.Classes[path.ClassOf[segment]].Key
	g := &group{}
	switch by {
	case BySegment:
		at := path.Path.Segments[segment].Begin - begin
		g.What = fmt.Sprintf("%s, from %.6f s", k, float64(at)/1e9)
		g.slug = slug(append(classParts(k), fmt.Sprintf("at-%.3fms", float64(at)/1e6))...)
	case ByThread:
		g.What = fmt.Sprintf("%s (tid %d)", k.Thread(), k.TID)
		g.slug = slug("thread", k.ProcessName, k.Thread().ShortName())
	case ByProcess:
		g.What = fmt.Sprintf("%s (pid %d)", k.ProcessName, k.PID)
		g.slug = slug("process", k.ProcessName, fmt.Sprint(k.PID))
	case ByState:
		g.What = k.State.String()
		g.slug = slug(g.What)
	default:
		k = foldedKey(k)
		g.What = k.String()
		g.slug = slug(classParts(k)...)
	}
	return g
}

// classParts are the words of a class' file name: blocked, timer, worker.
func classParts(k join.ClassKey) []string {
	parts := []string{k.State.String()}
	if k.Cause.Kind != execgraph.CauseNone {
		parts = append(parts, string(k.Cause.Kind))
	}
	parts = append(parts, k.Thread().ShortName())
	if k.InWait() {
		parts = append(parts, "in-wait", string(k.Wait.Kind))
	}
	return parts
}

// maxSlug bounds a part of a file name; a task's name has 15 bytes at most, but
// a recording can hold any.
const maxSlug = 40

// slug joins words to a file name that needs no quotes in any shell. Names come
// from the recording: no separator and no leading dot gets through.
func slug(words ...string) string {
	var out []string
	for _, w := range words {
		w = strings.Map(func(r rune) rune {
			switch {
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-':
				return r
			}
			return '_'
		}, w)
		if w = strings.TrimLeft(w, ".-"); len(w) > maxSlug {
			w = w[:maxSlug]
		}
		if w != "" {
			out = append(out, w)
		}
	}
	if len(out) == 0 {
		return "unnamed"
	}
	return strings.Join(out, "-")
}

// writeFile writes a profile next to its name and renames it into place.
func writeFile(name string, prof *profile.Profile) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".pathprof-*") // mode 0600
	if err != nil {
		return fmt.Errorf("create profile: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	err = writeAndClose(f, prof)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err = os.Rename(f.Name(), name); err != nil {
		return fmt.Errorf("name profile: %w", err)
	}
	return nil
}

func writeAndClose(w io.WriteCloser, prof *profile.Profile) error {
	return errors.Join(prof.Write(w), w.Close())
}
