// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"pathprof/join"
	"pathprof/perfevent/recording"
)

// defaultTop is how many functions a class lists.
const defaultTop = 5

type reportFlags struct {
	window                windowFlags
	json, segments, lines bool
	top                   int
}

func newReportCommand(e *env) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report RECORDING",
		Short: "Say where the wall time went: what ran, what was waited for, and on whom",
		Example: `  pathprof report app.pathprof
  pathprof report app.pathprof --thread worker-3 --from 2s --to 2.5s
  pathprof report app.pathprof --lines
  pathprof report app.pathprof --json --segments`,
		Args: oneRecording,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := f.window.parse(cmd)
			switch {
			case err != nil:
				return err
			case f.segments && !f.json:
				return usagef(cmd, "--segments lists segments as JSON: add --json")
			case f.top < 0:
				return usagef(cmd, "--top %d: must not be negative", f.top)
			}
			w.lines = f.lines
			a, err := analyse(cmd.Context(), args[0], w)
			if err != nil {
				return err
			}
			if f.json {
				return a.json(e, f.segments)
			}
			a.text(e, f)
			return nil
		},
	}
	f.window.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.BoolVar(&f.segments, "segments", false, "with --json: list every segment, too")
	flags.BoolVar(&f.lines, "lines", false, "list lines of code with their shares and times instead of functions; with --json: too")
	flags.IntVar(&f.top, "top", defaultTop, "functions or lines listed for each class, `N`")
	return cmd
}

func (a *analysis) text(e *env, f reportFlags) {
	r := textReport{
		screen: newScreen(e.stdout, e.getenv), profile: a.profile, meta: &a.meta,
		top: f.top, byLine: f.lines, all: len(a.window.threads) > 0,
	}
	r.write()
}

func (a *analysis) json(e *env, segments bool) error {
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(join.NewReport(a.profile, a.meta, join.ReportOptions{Segments: segments}))
}

// windowFlags choose threads and a stretch of time.
type windowFlags struct {
	threads          []string
	from, to, frames string
}

func (f *windowFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.threads, "thread", nil, "only this thread, by `NAME|TID`; may be repeated")
	flags.StringVar(&f.from, "from", "", "begin at this `time`: since the recording's begin (2s, 2.5), or a date (RFC 3339)")
	flags.StringVar(&f.to, "to", "", "end at this `time`")
	flags.StringVar(&f.frames, "frames", join.FramesPython.String(),
		"frames to keep, `SET`: python with what it calls, native, or all")
}

// window is the part of a recording to look at.
type window struct {
	threads  []string
	from, to moment
	frames   join.FrameSet
	lines    bool // of code are wanted, too
}

func (f *windowFlags) parse(cmd *cobra.Command) (window, error) {
	w := window{threads: f.threads}
	var err error
	if w.from, err = parseMoment(f.from); err != nil {
		return w, usagef(cmd, "--from %w", err)
	}
	if w.to, err = parseMoment(f.to); err != nil {
		return w, usagef(cmd, "--to %w", err)
	}
	if w.frames, err = join.ParseFrameSet(f.frames); err != nil {
		return w, usagef(cmd, "--frames: %w", err)
	}
	return w, nil
}

// moment is a time the user gave: since the recording's begin, or a date.
type moment struct {
	set    bool
	offset time.Duration
	date   time.Time
}

// parseMoment reads 2s, 150ms, 2.5 (seconds) or 2024-02-29T12:00:00.5+01:00.
// Nothing is no moment.
func parseMoment(text string) (moment, error) {
	if text == "" {
		return moment{}, nil
	}
	if date, err := time.Parse(time.RFC3339Nano, text); err == nil {
		return moment{set: true, date: date}, nil
	}
	d, err := time.ParseDuration(text)
	if seconds, err2 := strconv.ParseFloat(text, 64); err2 == nil {
		if math.Abs(seconds) > 1e9 || math.IsNaN(seconds) {
			return moment{}, fmt.Errorf("%q: out of range", text)
		}
		d, err = time.Duration(math.Round(seconds*1e9)), nil
	}
	switch {
	case err != nil:
		return moment{}, fmt.Errorf("%q: want an offset (2s, 2.5) or a date (2024-02-29T12:00:00Z)", text)
	case d < 0:
		return moment{}, fmt.Errorf("%q: must not be negative", text)
	}
	return moment{set: true, offset: d}, nil
}

// ns is the moment in the recording's clock, or otherwise if none was given.
func (m moment) ns(meta *recording.Meta, otherwise int64) int64 {
	switch {
	case !m.set:
		return otherwise
	case !m.date.IsZero():
		return m.date.UnixNano() - meta.RealtimeOffsetBeginNs
	}
	return meta.BeginNs + int64(m.offset)
}
