// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pathprof/join"
	"pathprof/perfevent/recording"
)

// checkEvery is how many lines are written between two looks at an interrupt.
const checkEvery = 4096

func newDumpCommand(e *env) *cobra.Command {
	var samples bool
	var frames string
	cmd := &cobra.Command{
		Use:   "dump RECORDING",
		Short: "Print what was recorded as text, one event or sample a line",
		Long: `Print what was recorded as text, in time order.

Events:   TIME_NS cpuN KIND KEY=VALUE…
Samples:  TIME_NS PID TID CPU STACK, the stack's functions separated by ;
          and the outermost first`,
		Example: `  pathprof dump app.pathprof | grep switch
  pathprof dump app.pathprof --samples | cut -d' ' -f5- | sort | uniq -c | sort -n`,
		Args: oneRecording,
		RunE: func(cmd *cobra.Command, args []string) error {
			keep, err := join.ParseFrameSet(frames)
			if err != nil {
				return usagef(cmd, "--frames: %w", err)
			}
			r, err := openNamed(args[0])
			if err != nil {
				return err
			}
			defer r.Close()
			d := dumper{out: bufio.NewWriterSize(e.stdout, 1<<16), keep: keep}
			if samples {
				err = d.samples(cmd.Context(), r)
			} else {
				err = d.events(cmd.Context(), r)
			}
			if err == nil {
				err = d.out.Flush()
			}
			if err != nil {
				return err
			}
			for _, w := range r.Warnings() {
				fmt.Fprintf(e.stderr, "pathprof: warning: %s\n", printable(w))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&samples, "samples", false, "samples instead of events")
	flags.StringVar(&frames, "frames", join.FramesPython.String(),
		"with --samples: frames to keep, `SET`: python with what it calls, native, or all")
	return cmd
}

// dumper writes lines.
type dumper struct {
	out  *bufio.Writer
	keep join.FrameSet
	line []byte
}

func (d *dumper) events(ctx context.Context, src recording.Source) error {
	n := 0
	for ev, err := range src.Events() {
		if n++; err == nil && n%checkEvery == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if _, err := d.out.WriteString(ev.String() + "\n"); err != nil {
			return err
		}
	}
	return nil
}

func (d *dumper) samples(ctx context.Context, src recording.Source) error {
	stacks, err := src.Stacks()
	if err != nil {
		return fmt.Errorf("read stacks: %w", err)
	}
	frames, err := src.Frames()
	if err != nil {
		return fmt.Errorf("read frames: %w", err)
	}
	frame := frameOf(frames)
	folded := make([]string, len(stacks)) // as they are first met
	n := 0
	for s, err := range src.Samples() {
		if n++; err == nil && n%checkEvery == 0 {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read samples: %w", err)
		}
		text := "[no stack]"
		if int64(s.Stack) < int64(len(stacks)) && stacks[s.Stack].ID != 0 {
			if folded[s.Stack] == "" {
				st := join.Merge(&stacks[s.Stack], frame, d.keep)
				folded[s.Stack] = fold(&st)
			}
			text = folded[s.Stack]
		}
		if err := d.sample(&s, text); err != nil {
			return err
		}
	}
	return nil
}

// frameOf finds frames by number; nil if there is none.
func frameOf(frames []recording.Frame) func(uint32) *recording.Frame {
	return func(id uint32) *recording.Frame {
		if int64(id) >= int64(len(frames)) || frames[id].ID == 0 {
			return nil
		}
		return &frames[id]
	}
}

func (d *dumper) sample(s *recording.Sample, stack string) error {
	d.line = strconv.AppendInt(d.line[:0], s.Time, 10)
	for _, n := range []int32{s.PID, s.TID, s.CPU} {
		d.line = strconv.AppendInt(append(d.line, ' '), int64(n), 10)
	}
	d.line = append(append(append(d.line, ' '), stack...), '\n')
	_, err := d.out.Write(d.line)
	return err
}

// fold writes a stack in one line, outermost first. One whose outermost frames
// are missing says so where they would be.
func fold(st *join.Stack) string {
	var names []string
	switch {
	case len(st.Frames) == 0 && st.Reason != "":
		names = append(names, "[no stack: "+st.Reason+"]")
	case len(st.Frames) == 0:
		names = append(names, "[no such frames]") // of the kind that is kept
	case st.Verdict == join.Cut:
		names = append(names, "[cut: "+st.Reason+"]")
	}
	for i := len(st.Frames) - 1; i >= 0; i-- {
		names = append(names, st.Frames[i].Name)
	}
	for i, name := range names {
		names[i] = strings.ReplaceAll(printable(name), ";", ":")
	}
	return strings.Join(names, ";")
}
