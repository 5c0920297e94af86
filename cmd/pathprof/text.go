// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode"
)

// oneLine is an error as one line: joined errors are separated by "; ".
func oneLine(err error) string {
	return printable(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; "))
}

// printable replaces what could steer a terminal. Names of tasks, functions and
// files come from the recorded program.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// span is a time for people, with three or four digits that matter.
func span(ns int64) string {
	switch d := time.Duration(ns); {
	case d >= time.Second:
		return fmt.Sprintf("%.3f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.3f ms", float64(ns)/1e6)
	default:
		return fmt.Sprintf("%.1f µs", float64(ns)/1e3)
	}
}

// inUnit is a time in a column of a table: in seconds if the whole is that long.
func inUnit(ns, whole int64) string {
	if whole >= int64(time.Second) {
		return fmt.Sprintf("%.3f s", float64(ns)/1e9)
	}
	return fmt.Sprintf("%.3f ms", float64(ns)/1e6)
}

// percent is a share with one decimal, as in tables.
func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// roughly is a share for a sentence.
func roughly(share float64) string {
	switch {
	case share > 0 && share < 0.01:
		return "<1 %"
	case share < 1 && share > 0.99:
		return ">99 %"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// count is a number with its noun; the plural is formed with s or es.
func count(n int64, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "s"):
		noun += "es"
	default:
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// program is the name of a Python program from its command line: the script or
// module rather than the interpreter; empty if the command line is unknown.
func program(command []string) string {
	for i := 1; i < len(command); i++ {
		switch arg := command[i]; {
		case arg == "-m" && i+1 < len(command):
			return command[i+1]
		case arg == "-c":
			return "python -c"
		case arg == "-W" || arg == "-X": // these take a value
			i++
		case !strings.HasPrefix(arg, "-"):
			return filepath.Base(arg)
		}
	}
	if len(command) == 0 || command[0] == "" {
		return ""
	}
	return filepath.Base(command[0])
}
