// SPDX-License-Identifier: Apache-2.0

// Peers measures other profilers of CPython beside pathprof, with the same programs
// and the same truths, and prints one table:
//
//	sudo env "PATH=$PATH" go run ./calibrate/peers --python python3.12
//
// It runs those of py-spy, austin and perf (with the interpreter's trampoline) that
// are in PATH, and says which are not.
//
// What the columns are:
//
//   - rate: samples a second of a program that computes all the time; of CPU time
//     for profilers that count it, by the clock for those that look from outside.
//   - loops, calls: CPU time of a unit of work (a loop; a recursive function) while
//     profiled, over that of the units before and after in the same process: median
//     of pairs with its 95 % interval. stopped: the same by the clock, which also
//     shows a profiler that stops its target. perf's includes the trampoline.
//   - error: root mean square over the ten functions of profile10.py, sampled less
//     true share, in points; in brackets what chance alone gives so many samples.
//   - whole: samples within the chains of mix.py whose stack shows the chain from its
//     begin. torn: those that show a stack that never existed.
//   - wrong: samples that show another function than the one that ran at that moment,
//     by profile10.py's log, except within 50 µs of a change of function. Where a
//     profiler's clock is not the system's, its begin is fitted, in rows of samples,
//     so that as many as possible are right.
//   - CPU: of the profiler's own process while attached, in per cent of one.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/calibrate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	err := run(ctx, os.Stdout, os.Stderr, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// options of a comparison.
type options struct {
	python string
	own    string // path of pathprof; empty: built from here
	only   string
	rate   int           // samples a second to ask for
	length time.Duration // of a run
	pairs  int           // of windows
	settle time.Duration // how long a profiler gets to be attached
}

func run(ctx context.Context, stdout, stderr io.Writer, args []string) error {
	var o options
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.python, "python", "python3", "interpreter, `PATH`; 3.12 or newer for perf")
	flags.StringVar(&o.own, "pathprof", "", "pathprof to measure, `PATH` (default: built from this module)")
	flags.StringVar(&o.only, "only", "", "part of the profilers' `NAME`s, separated by commas")
	flags.IntVar(&o.rate, "rate", 1000, "samples a second to ask for, `HZ`")
	flags.DurationVar(&o.length, "length", 10*time.Second, "`time` of each run with known truth")
	flags.IntVar(&o.pairs, "pairs", 10, "pairs of windows with and without the profiler, `N`")
	flags.DurationVar(&o.settle, "settle", 1500*time.Millisecond, "`time` to attach; longer on a busy machine")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.rate < 1 || o.rate > 100_000 || o.length < time.Second || o.pairs < 2 || flags.NArg() > 0 {
		return errors.New("want --rate 1 to 100000, --length 1s or more, --pairs 2 or more, and nothing else")
	}
	path, err := exec.LookPath(o.python)
	if err != nil {
		return fmt.Errorf("find the interpreter: %w", err)
	}
	if path, err = filepath.Abs(path); err != nil {
		return err
	}
	// A wrapper would hide the process to attach to.
	out, err := exec.CommandContext(ctx, path, "-c", "import sys; print(sys.executable, '%d.%d.%d' % sys.version_info[:3])").Output()
	if err != nil {
		return fmt.Errorf("ask %s for its version: %w", path, err)
	}
	var version string
	o.python, version, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	dir, err := os.MkdirTemp("", "pathprof-peers-")
	if err != nil {
		return err
	}
	err = compare(ctx, stdout, stderr, &o, version, dir)
	return errors.Join(err, os.RemoveAll(dir))
}

// compare measures all profilers and prints the table.
func compare(ctx context.Context, stdout, stderr io.Writer, o *options, version, dir string) error {
	if o.own == "" {
		o.own = filepath.Join(dir, "built")
		if text, err := exec.CommandContext(ctx, "go", "build", "-o", o.own, "pathprof/cmd/pathprof").CombinedOutput(); err != nil {
			return fmt.Errorf("build pathprof: %w: %s", err, text)
		}
	}
	cpu := calibrate.ProgramCPU()
	undo, err := calibrate.KeepOff(cpu)
	if err != nil {
		return err
	}
	defer undo()
	var rows []row
	for _, p := range profilers(o.own) {
		if o.only != "" && !chosen(p.name, o.only) {
			continue
		}
		at, err := p.find(ctx)
		if err != nil {
			fmt.Fprintf(stdout, "%s: not measured: %v\n", p.name, err)
			continue
		}
		fmt.Fprintf(stderr, "measuring %s\n", p.name)
		m := meter{options: o, profiler: p, program: at, dir: filepath.Join(dir, strings.ReplaceAll(p.name, " ", "-")), cpu: cpu}
		rows = append(rows, m.measure(ctx))
		if ctx.Err() != nil {
			break // what there is by now is printed
		}
	}
	m := calibrate.ReadMachine()
	fmt.Fprintf(stdout, "%s, Linux %s, %d CPUs; CPython %s; %d samples a second asked\n\n", m.CPU, m.Kernel, m.CPUs, version, o.rate)
	return writeTable(stdout, rows)
}

// chosen tells whether a list has part of a name.
func chosen(name, list string) bool {
	for part := range strings.SplitSeq(list, ",") {
		if part != "" && strings.Contains(name, part) {
			return true
		}
	}
	return false
}
