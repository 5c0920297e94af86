// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"pathprof/calibrate"
	"pathprof/perfevent"
	"pathprof/perfevent/recording"
)

// recordOptions say what to record.
type recordOptions struct {
	pids     []int32
	command  []string
	duration time.Duration // 0: until something else ends it
	out      string
	event    perfevent.EventSpec
	period   perfevent.Period
	freqHz   uint64
	jitter   bool  // vary the period
	cpus     []int // to count on; nil: all
	costs    bool  // clock the parts of samples, to calibrate
	// calibrated is what is known of this machine, nil if nothing is; warn takes
	// what is to be said before recording begins.
	calibrated  *calibrate.Result
	warn        func([]string)
	onlyTargets bool
	noPackets   bool
	children    bool
	bare        bool  // names of native functions are left to analysis
	maxBytes    int64 // 0: no limit
	progress    func(progress)
	asked       map[string]string // the flags as given, for the recording
}

// progress is the state of a recording.
type progress struct {
	elapsed               time.Duration
	samples, events, lost uint64
	bytes                 int64
}

// summary of a finished recording.
type summary struct {
	dir   string
	meta  recording.Meta
	bytes int64
}

type recordFlags struct {
	pids           []string
	duration       time.Duration
	out            string
	event          string
	period, freq   string
	scope, maxSize string
	jitter         bool
	wish           wishFlags
	children       bool
	embed          bool
	packets        bool
}

func newRecordCommand(e *env) *cobra.Command {
	var f recordFlags
	cmd := &cobra.Command{
		Use:   "record {-p PID | -- PROGRAM ARGS…}",
		Short: "Record a running Python program, or start one and record it",
		Example: `  pathprof record -p 4242 --period 1ms -d 10s -o app.pathprof
  pathprof record -p 4242 --margin 5% --segment 50ms
  pathprof record -- python3 app.py --port 8000`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opt, err := f.options(cmd, args)
			if err != nil {
				return err
			}
			if err := f.calibrate(cmd, e, &opt); err != nil {
				return err
			}
			return runRecord(cmd.Context(), e, opt)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVarP(&f.pids, "pid", "p", nil, "process `PID` to record; may be repeated")
	flags.DurationVarP(&f.duration, "duration", "d", 0, "stop after this `time` (default: until Ctrl-C or the program's end)")
	flags.StringVarP(&f.out, "output", "o", "", "`folder` of the recording (default NAME-PID.pathprof)")
	flags.StringVar(&f.event, "event", "auto", "`event` whose overflow takes a sample: auto, cycles, instructions, cpu-clock, task-clock, page-faults, …")
	flags.StringVar(&f.period, "period", "", "amount of the event between samples: a `count`, or a time for clocks (default 1ms)")
	flags.StringVar(&f.freq, "freq", "", "samples a second instead of a period; samples then differ in weight (`Hz`)")
	flags.BoolVar(&f.jitter, "jitter", false, "vary the period, for programs in step with the clock")
	f.wish.add(cmd)
	flags.StringVar(&f.scope, "scope", "system", "`system`, or process: only the targets' tasks, and no path beyond them")
	flags.StringVar(&f.maxSize, "max-size", "", "stop when the recording reaches this `size`, e.g. 500M")
	flags.BoolVar(&f.embed, "embed-symbols", true,
		"write names of native functions into the recording; without them report finds them by build id")
	flags.BoolVar(&f.packets, "packets", true, "record TCP packets, by which a wait for data continues at their sender")
	flags.BoolVar(&f.children, "children", false, "threads of child processes have paths, too")
	return cmd
}

// options checks the flags; what is wrong with them is a usage error.
func (f *recordFlags) options(cmd *cobra.Command, args []string) (recordOptions, error) {
	opt := recordOptions{
		command: args, duration: f.duration, out: f.out, children: f.children, bare: !f.embed,
		onlyTargets: f.scope == "process", noPackets: !f.packets, jitter: f.jitter, asked: map[string]string{},
	}
	cmd.Flags().Visit(func(fl *pflag.Flag) { opt.asked[fl.Name] = fl.Value.String() })
	for _, text := range f.pids {
		pid, err := parsePID(text)
		if err != nil {
			return opt, usagef(cmd, "%w", err)
		}
		opt.pids = append(opt.pids, pid)
	}
	switch {
	case len(opt.pids) == 0 && len(args) == 0:
		return opt, usagef(cmd, "nothing to record: give -p PID, or -- PROGRAM ARGS")
	case len(opt.pids) > 0 && len(args) > 0:
		return opt, usagef(cmd, "give either -p PID or a program, not both")
	case f.scope != "system" && f.scope != "process":
		return opt, usagef(cmd, "scope %q: must be system or process", f.scope)
	case f.duration < 0:
		return opt, usagef(cmd, "duration %v: must not be negative", f.duration)
	}
	if err := f.counter(&opt); err != nil {
		return opt, usagef(cmd, "%w", err)
	}
	if opt.out == "" {
		opt.out = defaultOut(opt)
	}
	return opt, nil
}

// counter reads the flags of the event.
func (f *recordFlags) counter(opt *recordOptions) (err error) {
	if opt.event, err = perfevent.ParseEvent(f.event); err != nil {
		return err
	}
	if f.period != "" {
		if opt.period, err = perfevent.ParsePeriod(f.period, opt.event); err != nil {
			return err
		}
	}
	if f.freq != "" {
		if opt.freqHz, err = perfevent.ParseFreq(f.freq); err != nil {
			return err
		}
	}
	if f.freq != "" && f.period != "" {
		return fmt.Errorf("both --period and --freq: choose one")
	}
	if f.jitter && f.freq != "" {
		return fmt.Errorf("both --jitter and --freq: the kernel varies the period of a frequency")
	}
	if f.wish.given() && (f.freq != "" || f.period != "") {
		return fmt.Errorf("a margin, a segment or an overhead chooses the period: leave out --period and --freq")
	}
	if f.maxSize != "" {
		opt.maxBytes, err = parseSize(f.maxSize)
	}
	return err
}

// defaultOut names the recording after what is recorded.
func defaultOut(opt recordOptions) string {
	if len(opt.pids) > 0 {
		return fmt.Sprintf("pid-%d.pathprof", opt.pids[0])
	}
	name := opt.command[0]
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		name = name[i+1:]
	}
	return name + ".pathprof"
}

// runRecord records, shows the live line on a terminal, and the summary.
func runRecord(ctx context.Context, e *env, opt recordOptions) error {
	var line *liveLine
	if f, ok := e.stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		line = &liveLine{out: e.stderr, limit: opt.duration}
		opt.progress = line.show
	}
	sum, err := e.record(ctx, opt)
	if line != nil {
		line.clear()
	}
	if sum.dir == "" {
		return err
	}
	out := e.stdout
	if len(opt.command) > 0 {
		out = e.stderr // the other is the program's
	}
	printSummary(out, sum)
	return errors.Join(err, handOver(sum.dir, e.getenv))
}

// liveLine is the one line that a terminal shows while recording.
type liveLine struct {
	out   io.Writer
	limit time.Duration
	shown time.Time
	last  progress
}

func (l *liveLine) show(p progress) {
	now := time.Now()
	passed := now.Sub(l.shown)
	if passed < 200*time.Millisecond {
		return
	}
	seconds := max((p.elapsed - l.last.elapsed).Seconds(), 1e-3)
	of := ""
	if l.limit > 0 {
		of = fmt.Sprintf(" of %v", l.limit)
	}
	fmt.Fprintf(l.out, "\r%s%.1fs%s  %.0f samples/s  %.0f events/s  %d lost  %s", text.EraseLine.Sprint(),
		p.elapsed.Seconds(), of, float64(p.samples-l.last.samples)/seconds,
		float64(p.events-l.last.events)/seconds, p.lost, sizeText(p.bytes))
	l.shown, l.last = now, p
}

func (l *liveLine) clear() { fmt.Fprint(l.out, "\r", text.EraseLine.Sprint()) }

// printSummary says where the recording is and what it holds.
func printSummary(w io.Writer, s summary) {
	m := &s.meta
	fmt.Fprintf(w, "%s: %.1f s, %d samples, %d events, %s (%s)\n", s.dir,
		float64(m.EndNs-m.BeginNs)/1e9, m.Samples, m.Events, sizeText(s.bytes), m.Stopped)
	asked := ""
	if m.AskedHz > 0 {
		asked = fmt.Sprintf("asked %.0f, ", m.AskedHz)
	}
	if m.AskedPeriod > 0 {
		asked = fmt.Sprintf("asked for %v, which is in step with timers; %s", time.Duration(m.AskedPeriod), asked)
	}
	fmt.Fprintf(w, "%s every %s: %sachieved %.0f samples a second of running time\n",
		m.Event, periodText(m), asked, m.AchievedHz)
	if m.EventNote != "" {
		fmt.Fprintf(w, "note: %s\n", m.EventNote)
	}
	l := &m.Loss
	fmt.Fprintf(w, "lost: %d samples, %d events; throttled %d times\n", l.Samples, l.Events, l.Throttled)
	if l.ThinnedStacks > 0 || l.Unresolved > 0 || l.SideBand > 0 {
		fmt.Fprintf(w, "left out: %d blocked stacks of threads that block very often; unread: %d Python frames, %d side-band records\n",
			l.ThinnedStacks, l.Unresolved, l.SideBand)
	}
	printInterpreters(w, m.Interpreters)
	for _, warning := range m.Warnings {
		fmt.Fprintf(w, "warning: %s\n", warning)
	}
	fmt.Fprintf(w, "next: pathprof report %s\n", s.dir)
}

// printInterpreters says which interpreters were met: alike ones in one line.
func printInterpreters(w io.Writer, list []recording.Interpreter) {
	type kind struct{ version, path, refused string }
	pids := map[kind][]int32{}
	var order []kind
	for _, in := range list {
		k := kind{in.Version, in.Path, in.Refused}
		if pids[k] == nil {
			order = append(order, k)
		}
		pids[k] = append(pids[k], in.PID)
	}
	for _, k := range order {
		who := fmt.Sprintf("process %d", pids[k][0])
		if n := len(pids[k]) - 1; n > 0 {
			who += fmt.Sprintf(" and %d more", n)
		}
		if k.refused != "" {
			fmt.Fprintf(w, "%s: no Python frames: %s\n", who, k.refused)
			continue
		}
		fmt.Fprintf(w, "%s: CPython %s (%s)\n", who, k.version, k.path)
	}
}

func periodText(m *recording.Meta) string {
	switch {
	case m.FreqHz > 0:
		return fmt.Sprintf("1/%d s", m.FreqHz)
	case m.Unit == "nanoseconds":
		return time.Duration(m.Period).String()
	}
	return fmt.Sprint(m.Period)
}

// sizeText is a number of bytes for people.
func sizeText(n int64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	f, i := float64(n), 0
	for f >= 1000 && i < len(units)-1 {
		f, i = f/1000, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// parseSize reads a number of bytes with an optional k, M, G or T.
func parseSize(s string) (int64, error) {
	factor := int64(1)
	digits := strings.TrimRight(s, "bB")
	if i := strings.IndexByte("kMGT", lastByte(digits)); i >= 0 {
		for ; i >= 0; i-- {
			factor *= 1000
		}
		digits = digits[:len(digits)-1]
	}
	var n int64
	if _, err := fmt.Sscanf(digits+"\n", "%d\n", &n); err != nil || n <= 0 || n > (1<<62)/factor {
		return 0, fmt.Errorf("size %q: must be a positive number, with k, M, G or T if you like", s)
	}
	return n * factor, nil
}

func lastByte(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// parsePID reads a process number.
func parsePID(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("process number %q: must be a positive number", text)
	}
	return int32(n), nil
}
