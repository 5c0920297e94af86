// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"pathprof/calibrate"
)

// writeTable prints the rows, what could not be measured, and where the first of
// them is not ahead.
func writeTable(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "profiler\trate /s\tloops\tcalls\tstopped\terror\twhole\ttorn\twrong\tCPU")
	for i := range rows {
		r := &rows[i]
		cells := []string{r.name, number(r.rate, "%.0f"), interval(r.loops), interval(r.calls), interval(r.stopped),
			number(r.error, "%.2f") + " (" + number(r.chance, "%.2f") + ")",
			part(r.tear.whole, r.tear.inside), part(r.tear.torn, r.tear.inside), part(r.score.wrong, r.score.wrong+r.score.right),
			number(r.cpu, "%.1f %%")}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range rows {
		for _, err := range rows[i].problems {
			fmt.Fprintf(w, "%s: %v\n", rows[i].name, err)
		}
	}
	for _, line := range behind(rows) {
		fmt.Fprintln(w, line)
	}
	return nil
}

func number(x float64, format string) string {
	if math.IsNaN(x) {
		return "-"
	}
	return fmt.Sprintf(format, x)
}

func interval(e calibrate.Estimate) string {
	if math.IsNaN(e.Value) {
		return "-"
	}
	return fmt.Sprintf("%.3f [%.3f, %.3f]", e.Value, e.Low, e.High)
}

// part is "3 of 100 (3 %)".
func part(n, of int) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d (%.1f %%)", n, of, 100*float64(n)/float64(of))
}

// column compares one thing: less is better.
type column struct {
	name  string
	value func(*row) calibrate.Estimate
}

func exactly(x float64) calibrate.Estimate { return calibrate.Estimate{Value: x, Low: x, High: x} }

func ratioOf(n, of int) calibrate.Estimate { return exactly(float64(n) / float64(of)) }

var columns = []column{
	{"rate", func(r *row) calibrate.Estimate { return exactly(-r.rate) }},
	{"loops", func(r *row) calibrate.Estimate { return r.loops }},
	{"calls", func(r *row) calibrate.Estimate { return r.calls }},
	{"stopped", func(r *row) calibrate.Estimate { return r.stopped }},
	// Below what chance gives is luck.
	{"error", func(r *row) calibrate.Estimate { return exactly(max(r.error-2*r.chance, 0)) }},
	{"whole", func(r *row) calibrate.Estimate { return ratioOf(-r.tear.whole, r.tear.inside) }},
	{"torn", func(r *row) calibrate.Estimate { return ratioOf(r.tear.torn, r.tear.inside) }},
	{"wrong", func(r *row) calibrate.Estimate { return ratioOf(r.score.wrong, r.score.wrong+r.score.right) }},
	{"CPU", func(r *row) calibrate.Estimate { return exactly(r.cpu) }},
}

// behind says in which columns another one is better than the first, and whether
// the intervals tell them apart.
func behind(rows []row) (out []string) {
	for i := 1; i < len(rows); i++ {
		for _, c := range columns {
			own, other := c.value(&rows[0]), c.value(&rows[i])
			switch {
			case math.IsNaN(own.Value) || math.IsNaN(other.Value) || other.Value >= own.Value:
			case other.High < own.Low:
				out = append(out, fmt.Sprintf("%s is behind %s in %s", rows[0].name, rows[i].name, c.name))
			default:
				out = append(out, fmt.Sprintf("%s is not told from %s in %s", rows[0].name, rows[i].name, c.name))
			}
		}
	}
	return out
}
