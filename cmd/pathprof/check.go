// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"pathprof/perfevent"
)

func newCheckCommand(e *env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what this machine allows, and what would help",
		Long: `Say what this machine allows, and what would help. Nothing is changed.

The exit status is 0 if recording is possible for who asks, else 1.`,
		Example: `  pathprof check
  sudo pathprof check --json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			features := e.probe()
			if !asJSON {
				e.checkText(features)
			} else if err := e.checkJSON(features); err != nil {
				return err
			}
			if missing := firstMissing(features); missing != "" {
				return fmt.Errorf("recording is not possible here: %s is missing", missing)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// firstMissing names the first feature that recording cannot do without.
func firstMissing(features []perfevent.Feature) string {
	for _, f := range features {
		if f.Mode == perfevent.ModeRecord && !f.OK {
			return f.Name
		}
	}
	return ""
}

func (e *env) checkText(features []perfevent.Feature) {
	s := newScreen(e.stdout, e.getenv)
	name := 0
	for _, f := range features {
		name = max(name, utf8.RuneCountInString(f.Name))
	}
	var hints []string
	var mode perfevent.Mode
	for _, f := range features {
		if f.Mode != mode {
			mode = f.Mode
			fmt.Fprintln(e.stdout, s.bold("for "+string(mode)))
		}
		state := "ok     "
		if !f.OK {
			state = s.warn("missing")
		}
		line := fmt.Sprintf("  %s  %-*s  %s", state, name, f.Name, printable(f.Detail))
		fmt.Fprintln(e.stdout, strings.TrimRight(s.wrap(line, 13+name), " "))
		if !f.OK && f.Hint != "" {
			hints = append(hints, f.Name+": "+f.Hint)
		}
	}
	if len(hints) > 0 {
		fmt.Fprintln(e.stdout, "\nWhat would help:")
	}
	for _, h := range hints {
		fmt.Fprintln(e.stdout, "  "+s.wrap(h, 4))
	}
}

// checkReport is what check --json prints.
type checkReport struct {
	Record   bool            `json:"record"` // recording is possible
	Features []featureReport `json:"features"`
}

type featureReport struct {
	Name      string `json:"name"`
	NeededFor string `json:"needed_for"`
	OK        bool   `json:"ok"`
	Detail    string `json:"detail"`
	Hint      string `json:"hint,omitempty"`
	MinKernel string `json:"min_kernel,omitempty"`
}

func (e *env) checkJSON(features []perfevent.Feature) error {
	r := checkReport{Record: firstMissing(features) == "", Features: []featureReport{}}
	for _, f := range features {
		r.Features = append(r.Features, featureReport{f.Name, string(f.Mode), f.OK, f.Detail, f.Hint, f.MinKernel})
	}
	enc := json.NewEncoder(e.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}
