// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"pathprof/calibrate"
	"pathprof/perfevent"
)

// calibration says what to measure.
type calibration struct {
	python   string // path
	quick    bool
	samples  int
	wishes   []calibrate.Wish // nil: the usual ones
	progress func(what string, done float64)
}

type calibrateFlags struct {
	python      string
	quick, json bool
	samples     int
	html, plots string
	wish        wishFlags
}

// wishFlags say what a person wants of a period.
type wishFlags struct {
	margin, overhead string
	segment          time.Duration
	repetitions      int
}

// The wish where a flag was not given: the thesis' (figure 6.5).
const (
	usualMargin   = "5%"
	usualOverhead = "10%"
	usualSegment  = 50 * time.Millisecond
)

func (f *wishFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.margin, "margin", "", "largest margin of error of a share, `PERCENT` (default "+usualMargin+")")
	flags.StringVar(&f.overhead, "overhead", "", "largest slowdown, `PERCENT` (default "+usualOverhead+")")
	flags.DurationVar(&f.segment, "segment", 0, "running `time` of the segment of interest (default "+usualSegment.String()+")")
	flags.IntVar(&f.repetitions, "repeat", 0, "repetitions of the segment that are looked at together, `N` (default 1)")
}

// given tells whether a flag of the wish was used.
func (f *wishFlags) given() bool {
	return f.margin != "" || f.overhead != "" || f.segment != 0 || f.repetitions != 0
}

// wish is what the flags say, with defaults.
func (f *wishFlags) wish() (calibrate.Wish, error) {
	var w calibrate.Wish
	var err error
	if w.MaxMargin, err = parsePercent(or(f.margin, usualMargin)); err != nil {
		return w, fmt.Errorf("--margin %w", err)
	}
	if w.MaxOverhead, err = parsePercent(or(f.overhead, usualOverhead)); err != nil {
		return w, fmt.Errorf("--overhead %w", err)
	}
	w.SegmentNs, w.Repetitions = int64(f.segment), f.repetitions
	if f.segment == 0 {
		w.SegmentNs = int64(usualSegment)
	}
	if f.repetitions == 0 {
		w.Repetitions = 1
	}
	switch {
	case w.SegmentNs < 0:
		return w, fmt.Errorf("--segment %v: must be above zero", f.segment)
	case w.Repetitions < 0:
		return w, fmt.Errorf("--repeat %d: must be above zero", f.repetitions)
	}
	return w, nil
}

// parsePercent reads 5% or 5 as 0.05.
func parsePercent(text string) (float64, error) {
	x, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(text, "%")), 64)
	if err != nil || !(x > 0 && x <= 1000) {
		return 0, fmt.Errorf("%q: want a number of per cent above 0, such as 5%%", text)
	}
	return x / 100, nil
}

func or(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func newCalibrateCommand(e *env) *cobra.Command {
	var f calibrateFlags
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure how far to trust the numbers on this machine, and which period to use",
		Example: `  sudo pathprof calibrate
  sudo pathprof calibrate --quick --python /usr/bin/python3.11 --html calibration.html
  sudo pathprof calibrate --segment 20ms --repeat 50 --margin 2% --overhead 5%`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd, e)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.python, "python", "", "interpreter to measure with, `PATH` (default python3)")
	flags.BoolVar(&f.quick, "quick", false, "less than half a minute, with wider intervals")
	flags.IntVar(&f.samples, "samples", 0, "samples of the accuracy table, `N`, however long they take (default: as many as fit)")
	flags.BoolVar(&f.json, "json", false, "print JSON: accuracy, cost, overhead, phase, advice")
	flags.StringVar(&f.html, "html", "", "write a page with the plots to `FILE`, too")
	flags.StringVar(&f.plots, "plots", "", "write cost and advice as SVG and PNG into `FOLDER`, too")
	f.wish.add(cmd)
	return cmd
}

func (f *calibrateFlags) run(cmd *cobra.Command, e *env) error {
	opt := calibration{quick: f.quick, samples: f.samples}
	if f.samples != 0 && (f.samples < 1000 || f.samples > 3_000_000) {
		return usagef(cmd, "--samples %d: must be 1000 to 3000000", f.samples)
	}
	if f.wish.given() {
		w, err := f.wish.wish()
		if err != nil {
			return usagef(cmd, "%w", err)
		}
		opt.wishes = []calibrate.Wish{w}
	}
	var err error
	if opt.python, err = e.lookPath(or(f.python, "python3")); err != nil {
		return fmt.Errorf("calibration runs Python programs: no %s; name one with --python PATH", or(f.python, "python3 in PATH"))
	}
	r, err := e.calibrateWithBar(cmd.Context(), opt)
	if err != nil {
		return err
	}
	path, err := storeCalibration(&r, e.getenv)
	if err != nil {
		r.Warnings = append(r.Warnings, fmt.Sprintf("the result is not stored, record will not use it: %v", err))
	}
	if err := f.files(e, &r); err != nil {
		return err
	}
	if f.json {
		enc := json.NewEncoder(e.stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	calibrationText{newScreen(e.stdout, e.getenv), &r}.write()
	if path != "" {
		fmt.Fprintf(e.stdout, "\nstored in %s: record --margin uses it\n", path)
	}
	return nil
}

// files writes the page and the plots.
func (f *calibrateFlags) files(e *env, r *calibrate.Result) error {
	if f.html != "" {
		var text bytes.Buffer
		calibrationText{newScreen(&text, e.getenv), r}.write()
		err := writeFile(f.html, func(w io.Writer) error { return r.WriteHTML(w, text.String()) })
		if err != nil {
			return err
		}
	}
	if f.plots == "" {
		return nil
	}
	if err := os.MkdirAll(f.plots, 0o700); err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	for name, write := range map[string]func(io.Writer, string) error{"cost": r.WriteCostPlot, "advice": r.WriteAdvicePlot} {
		for _, format := range []string{"svg", "png"} {
			path := filepath.Join(f.plots, name+"."+format)
			if err := writeFile(path, func(w io.Writer) error { return write(w, format) }); err != nil {
				return err
			}
		}
	}
	return handOver(f.plots, e.getenv)
}

// writeFile writes a file that only its owner reads.
func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// calibrateWithBar shows a progress bar on a terminal.
func (e *env) calibrateWithBar(ctx context.Context, opt calibration) (calibrate.Result, error) {
	if f, ok := e.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		const steps = 1000
		bar := progressbar.NewOptions(steps, progressbar.OptionSetWriter(e.stderr), progressbar.OptionSetWidth(30),
			progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionSetPredictTime(false))
		opt.progress = func(what string, done float64) {
			bar.Describe(fmt.Sprintf("%-16s", what))
			_ = bar.Set(int(done * steps)) // a bar that is not drawn harms nobody
		}
		defer bar.Finish()
	}
	r, err := e.calibrate(ctx, opt)
	if ctx.Err() != nil {
		return r, errors.Join(ctx.Err(), err)
	}
	return r, err
}

// outOfStep is the period in use for one asked for as a time.
func outOfStep(askedNs int64) int64 { return int64(perfevent.OutOfStep(time.Duration(askedNs))) }
