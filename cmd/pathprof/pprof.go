// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"pathprof/pprofout"
)

// maxListed bounds the list of written files.
const maxListed = 25

func newPprofCommand(e *env) *cobra.Command {
	var window windowFlags
	var out, by string
	cmd := &cobra.Command{
		Use:   "pprof RECORDING -o DIR",
		Short: "Write the active path as profiles for go tool pprof",
		Example: `  pathprof pprof app.pathprof -o out
  pathprof pprof app.pathprof -o out --by thread`,
		Args: oneRecording,
		RunE: func(cmd *cobra.Command, args []string) error {
			cut, err := pprofout.ParseBy(by)
			if err != nil {
				return usagef(cmd, "--by: %w", err)
			}
			w, err := window.parse(cmd)
			if err != nil {
				return err
			}
			if out == "" {
				return usagef(cmd, "no folder to write to: give -o DIR")
			}
			a, err := analyse(cmd.Context(), args[0], w)
			if err != nil {
				return err
			}
			files, err := pprofout.WriteDir(a.profile, out, cut)
			if errors.Is(err, pprofout.ErrTooManyFiles) {
				return fmt.Errorf("%w; cut by class, or choose a time with --from and --to", err)
			}
			if err != nil {
				return err
			}
			if err := handOver(out, e.getenv); err != nil {
				return err
			}
			e.pprofNext(files, out)
			return nil
		},
	}
	window.add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&out, "output", "o", "", "`folder` to write to")
	flags.StringVar(&by, "by", string(pprofout.ByClass), "what a file holds: `class`, segment, thread, process or state")
	return cmd
}

// pprofNext lists what was written and what to type now.
func (e *env) pprofNext(files []pprofout.File, out string) {
	s := newScreen(e.stdout, e.getenv)
	t := s.grid(column{title: "file", max: s.width * 2 / 5}, column{title: "time", right: true},
		column{title: "samples", right: true}, column{title: "what", max: s.width*3/5 - 25})
	for _, f := range files[:min(len(files), maxListed)] {
		t.AppendRow([]any{filepath.Base(f.Path), inUnit(f.Ns, files[0].Ns), f.Samples, printable(f.What)})
	}
	fmt.Fprintf(e.stdout, "%s:\n%s\n", out, indent(t.Render(), 2))
	if n := len(files) - maxListed; n > 0 {
		fmt.Fprintf(e.stdout, "  and %s more\n", count(int64(n), "file"))
	}
	fmt.Fprintf(e.stdout, "\nnext:\n  go tool pprof -top %s\n", filepath.Join(out, pprofout.PathFile))
	if len(files) > 1 {
		fmt.Fprintf(e.stdout, "  go tool pprof -http=: %s\n", files[1].Path)
	}
}
