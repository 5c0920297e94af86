// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"pathprof/join"
	"pathprof/perfevent/recording"
)

// truth is what profile10.py says of itself.
type truth struct {
	Begin     int64            `json:"begin_ns"`
	End       int64            `json:"end_ns"`
	TID       int32            `json:"tid"`
	Functions map[string]int64 `json:"functions"`
	Other     int64            `json:"other_ns"` // between the functions
}

// record runs profile10.py under the recorder, reports and exports.
func (s *step) record(ctx context.Context) (*profile, error) {
	if s.Profile.Rivals > 0 {
		rivals, err := openRivals(s.Profile.Rivals)
		defer closeAll(rivals)
		if err != nil {
			return nil, err
		}
	}
	dir := filepath.Join("/tmp", s.Name)
	known, err := s.recordTruth(ctx, dir)
	if err != nil {
		return nil, err
	}
	r, err := recording.Open(dir)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	begin := r.Meta().BeginNs
	since := func(t int64) string { return time.Duration(t - begin).String() }
	text, err := output(ctx, "/usr/bin/pathprof", "report", "--json", "--segments",
		"--from", since(known.Begin), "--to", since(known.End), dir)
	if err != nil {
		return nil, err
	}
	var report join.Report
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	p, err := compare(&report, known)
	if err != nil {
		return nil, err
	}
	p.Counted = r.Meta().CountedShare
	if err := p.read(r, known); err != nil {
		return nil, err
	}
	out := dir + ".out"
	if _, err := output(ctx, "/usr/bin/pathprof", "pprof", dir, "-o", out); err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(out, "*.pb.gz"))
	p.Profiles = len(files)
	return p, err
}

// output runs a program to its end.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, &stderr)
	}
	return out, nil
}

// recordTruth records the program from its "ready" to its end.
func (s *step) recordTruth(ctx context.Context, dir string) (*truth, error) {
	python := exec.CommandContext(ctx, "python3", "/src/calibrate/workloads/profile10.py", strconv.Itoa(s.Profile.Seconds), "--on-line", "--cpu")
	python.Stderr = os.Stderr
	stdin, err1 := python.StdinPipe()
	stdout, err2 := python.StdoutPipe()
	if err := errors.Join(err1, err2, python.Start()); err != nil {
		return nil, err
	}
	defer func() { python.Process.Kill(); python.Wait() }()
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, fmt.Errorf("first line %q: %w", line, err)
	}
	var stderr bytes.Buffer
	recorder := exec.CommandContext(ctx, "/usr/bin/pathprof", "record", "-p", strconv.Itoa(python.Process.Pid), "-o", dir,
		"--event", s.Profile.Event, "--period", s.Profile.Period)
	recorder.Stderr = &stderr
	if err := recorder.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- recorder.Wait() }()
	if err := begun(dir, ended); err != nil {
		return nil, fmt.Errorf("recorder: %w: %s", err, &stderr)
	}
	if _, err := stdin.Write([]byte("go\n")); err != nil {
		return nil, err
	}
	line, err := lines.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	var known truth
	if err := json.Unmarshal([]byte(line), &known); err != nil {
		return nil, fmt.Errorf("truth: %w", err)
	}
	if err := python.Wait(); err != nil {
		return nil, err
	}
	if err := <-ended; err != nil {
		return nil, fmt.Errorf("recorder: %w: %s", err, &stderr)
	}
	for _, line := range strings.Split(strings.TrimSpace(stderr.String()), "\n") {
		s.say("record: " + line)
	}
	return &known, nil
}

// begun waits until a recording has begun.
func begun(dir string, ended <-chan error) error {
	for {
		var m recording.Meta
		text, err := os.ReadFile(filepath.Join(dir, "meta.json"))
		if err == nil && json.Unmarshal(text, &m) == nil && m.BeginNs != 0 {
			return nil
		}
		select {
		case err := <-ended:
			return fmt.Errorf("ended early: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// compare holds the profile of the program's thread against the truth.
func compare(r *join.Report, known *truth) (*profile, error) {
	p := &profile{
		Event: r.Recording.Event, Period: r.Recording.Period, Lost: r.Recording.Lost,
		Throttled: r.Recording.Throttled, AchievedHz: r.Recording.AchievedHz, Warnings: r.Warnings,
	}
	i := slices.IndexFunc(r.Paths, func(p join.PathReport) bool { return p.TID == known.TID })
	if i < 0 {
		return nil, fmt.Errorf("no path of thread %d", known.TID)
	}
	path := &r.Paths[i]
	p.Tiles = tiles(path)
	found := map[string]join.Function{}
	for _, c := range path.Classes {
		if c.Wait != nil || c.State != "running" {
			continue
		}
		p.Samples, p.RunNs = p.Samples+c.Samples, p.RunNs+c.Ns
		for _, f := range c.Functions {
			if f.Kind == "python" {
				found[f.Name] = f
			}
		}
	}
	all := known.Other
	for _, ns := range known.Functions {
		all += ns
	}
	for name, ns := range known.Functions {
		want := float64(ns) / float64(all)
		f, ok := found[name]
		if !ok {
			// Of 15 expected samples none is there three times in ten million.
			if want*float64(p.Samples) > 15 {
				p.Missing = append(p.Missing, name)
			}
			continue
		}
		p.WorstError = max(p.WorstError, math.Abs(f.Share-want))
		if want < f.Low || want > f.High {
			p.Outside = append(p.Outside, fmt.Sprintf("%s: true %.4f, not in [%.4f, %.4f]", name, want, f.Low, f.High))
		}
	}
	return p, nil
}

// tiles tells whether the segments of a path follow each other without gap or
// overlap, and they and the classes each make up the wall time.
func tiles(path *join.PathReport) bool {
	at, sum := path.BeginNs, int64(0)
	for _, s := range path.Segments {
		if s.BeginNs != at || s.EndNs <= s.BeginNs {
			return false
		}
		at = s.EndNs
	}
	for _, c := range path.Classes {
		sum += c.Ns
	}
	return at == path.EndNs && sum == path.WallNs && path.WallNs == path.EndNs-path.BeginNs
}

// read looks at the samples themselves while the functions ran: which part has
// whole stacks of Python and native frames, merged, and whether the counter's
// own values fit what the samples stand for.
func (p *profile) read(r *recording.Reader, known *truth) error {
	stacks, err1 := r.Stacks()
	frames, err2 := r.Frames()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	frame := func(id uint32) *recording.Frame { return &frames[id] }
	all, merged := 0, 0
	p.Unmerged = map[string]int{}
	var counted, stoodFor int64
	last := map[int32]int64{}
	for s, err := range r.Samples() {
		if err != nil {
			return err
		}
		if before, ok := last[s.CPU]; ok {
			counted, stoodFor = counted+s.Counter-before, stoodFor+s.Value
		}
		if s.Counter < last[s.CPU] {
			p.Backward++
		}
		last[s.CPU] = s.Counter
		if s.TID != known.TID || s.Time < known.Begin || s.Time >= known.End {
			continue
		}
		all++
		p.Value += s.Value
		if st := join.Merge(&stacks[s.Stack], frame, join.FramesAll); st.Verdict == join.Merged {
			merged++
		} else {
			p.Unmerged[fmt.Sprint(st.Verdict, ": ", st.Reason)]++
		}
	}
	p.OfCounter = float64(stoodFor) / float64(max(counted, 1))
	p.Merged = float64(merged) / float64(max(all, 1))
	return nil
}
