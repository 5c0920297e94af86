// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"pathprof/join"
	"pathprof/pprofout"
)

type diffFlags struct {
	window   windowFlags
	json     bool
	requests string
	top      int
	pair     string
}

func newDiffCommand(e *env) *cobra.Command {
	var f diffFlags
	cmd := &cobra.Command{
		Use:   "diff A B",
		Short: "Say what changed between two recordings, and what may be chance",
		Long: `A and B are recordings, or folders that pprof has written. Of a recording it is
known how much the program varies by itself; of profiles only how many samples there are.

For go tool pprof, --pprof writes a pair of profiles of equal length. It shows B less A
without margins; the label "difference" says what is known of each:
  go tool pprof -top -diff_base=DIR/a.pb.gz -tagfocus=difference=slower DIR/b.pb.gz`,
		Example: `  pathprof diff before.pathprof after.pathprof
  pathprof diff before.pathprof after.pathprof --requests 1200,1350
  pathprof diff before.pathprof after.pathprof --pprof pair
  pathprof diff out-before out-after --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef(cmd, "want two recordings to compare, not %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := f.window.parse(cmd)
			if err != nil {
				return err
			}
			var opt join.CompareOptions
			if opt.Requests, err = parseRequests(f.requests); err != nil {
				return usagef(cmd, "--requests %w", err)
			}
			if f.top < 0 {
				return usagef(cmd, "--top %d: must not be negative", f.top)
			}
			var sides [2]*join.Profile
			for i, dir := range args {
				if sides[i], err = profileOf(cmd.Context(), dir, w); err != nil {
					return err
				}
			}
			c := join.Compare(sides[0], sides[1], opt)
			if f.pair != "" {
				if err := f.writePair(e, sides, &c); err != nil {
					return err
				}
			}
			if f.json {
				enc := json.NewEncoder(e.stdout)
				enc.SetIndent("", "  ")
				enc.SetEscapeHTML(false)
				return enc.Encode(c)
			}
			d := diffText{screen: newScreen(e.stdout, e.getenv), c: &c, top: f.top}
			d.write(args)
			return nil
		},
	}
	f.window.add(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.json, "json", false, "print JSON")
	flags.StringVar(&f.requests, "requests", "", "how many requests were served meanwhile, `A,B`: compare time per request")
	flags.StringVar(&f.pair, "pprof", "", "write a pair of profiles for go tool pprof -diff_base into `DIR`, too")
	flags.IntVar(&f.top, "top", defaultTop, "functions without a difference listed for each class, `N`")
	return cmd
}

// writePair writes the sides for go tool pprof, and belongs to who typed the command.
func (f *diffFlags) writePair(e *env, sides [2]*join.Profile, c *join.Comparison) error {
	made := firstMade(f.pair)
	if err := pprofout.WritePair(sides[0], sides[1], c, f.pair); err != nil {
		return err
	}
	return handOver(made, e.getenv)
}

// parseRequests reads two counts.
func parseRequests(text string) (out [2]int64, err error) {
	if text == "" {
		return out, nil
	}
	a, b, ok := strings.Cut(text, ",")
	for i, word := range []string{a, b} {
		n, err := strconv.ParseInt(strings.TrimSpace(word), 10, 64)
		if !ok || err != nil || n <= 0 {
			return out, fmt.Errorf("%q: want two counts, as in 1200,1350", text)
		}
		out[i] = n
	}
	return out, nil
}

// profileOf analyses a recording, or reads what pprof wrote of one.
func profileOf(ctx context.Context, dir string, w window) (*join.Profile, error) {
	if _, err := os.Stat(filepath.Join(dir, pprofout.PathFile)); err == nil {
		if len(w.threads) > 0 || w.from.set || w.to.set {
			return nil, fmt.Errorf("%s: profiles have no window to choose from; compare the recordings", dir)
		}
		return pprofout.ReadDir(dir)
	} else if !os.IsNotExist(err) {
		return nil, fmt.Errorf("%s: %w", dir, unwrapPath(err))
	}
	a, err := analyse(ctx, dir, w)
	if err != nil {
		return nil, err
	}
	return a.profile, nil
}

// unwrapPath leaves out the path that the message already has.
func unwrapPath(err error) error {
	if p, ok := err.(*fs.PathError); ok {
		return p.Err
	}
	return err
}
