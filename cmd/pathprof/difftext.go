// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"pathprof/join"
)

// diffText writes a comparison as text for people.
type diffText struct {
	screen
	c   *join.Comparison
	top int
}

// maxDiffThreads have a table each.
const maxDiffThreads = 8

func (d *diffText) write(names []string) {
	for i, side := range []join.Compared{d.c.A, d.c.B} {
		line := fmt.Sprintf("%c: %s: %s on all paths, %s", 'A'+i, names[i], span(side.WallNs), count(side.Samples, "sample"))
		if side.Requests > 0 {
			line += ", " + count(side.Requests, "request")
		}
		if side.Slices == 1 {
			line += "; profiles do not tell how much the program varies by itself"
		}
		fmt.Fprintln(d.w, d.wrap(printable(line), 3))
	}
	for i := range d.c.Threads {
		if i == maxDiffThreads {
			fmt.Fprintf(d.w, "\nand %s more; --thread shows one, --json all\n", count(int64(len(d.c.Threads)-i), "thread"))
			break
		}
		d.thread(&d.c.Threads[i])
	}
	fmt.Fprintln(d.w)
	found := 0
	for i := range d.c.Threads {
		for j := range d.c.Threads[i].Rows {
			if d.c.Threads[i].Rows[j].Significant {
				found++
			}
		}
	}
	fmt.Fprintln(d.w, d.faint(d.wrap(fmt.Sprintf("%d of %s seen. Intervals are 95 %%; of the differences seen, 5 %% may be chance (Benjamini-Hochberg).",
		found, count(int64(d.c.Tested), "tested difference")), 2)))
}

// thread writes one table: classes, with those of their functions that changed.
func (d *diffText) thread(t *join.ThreadDiff) {
	title := fmt.Sprintf("%s: %s in A, %s in B", t.Thread, span(t.WallNs[0]), span(t.WallNs[1]))
	fmt.Fprintf(d.w, "\n%s\n\n", d.bold(printable(title)))
	words := max(d.width-70, 30)
	grid := d.grid(column{title: "A", right: true}, column{title: "B", right: true},
		column{title: "per " + d.c.Unit, max: 48}, column{max: words})
	for i := 0; i < len(t.Rows); {
		class := &t.Rows[i]
		end := i + 1
		for end < len(t.Rows) && t.Rows[end].Function != "" {
			end++
		}
		functions := t.Rows[i+1 : end]
		i = end
		if d.small(class, t) && !slices.ContainsFunc(functions, seen) && !class.Significant {
			continue
		}
		d.row(grid, class, diffClassText(class))
		shown := 0
		for _, f := range sortedDiff(functions) {
			if f.Significant || shown < d.top && !f.TooFew && max(f.Share[0], f.Share[1]) >= minTopShare {
				d.row(grid, f, "  "+f.Function)
				shown++
			}
		}
	}
	if grid.Length() > 0 {
		fmt.Fprintln(d.w, indent(grid.Render(), 2))
	}
}

func seen(d join.Difference) bool { return d.Significant }

// sortedDiff puts what was seen first, then the larger.
func sortedDiff(list []join.Difference) []*join.Difference {
	out := make([]*join.Difference, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	slices.SortStableFunc(out, func(a, b *join.Difference) int {
		if a.Significant != b.Significant {
			if a.Significant {
				return -1
			}
			return 1
		}
		if a.Significant {
			return 0 // by change already
		}
		return cmp.Compare(b.Ns[0]+b.Ns[1], a.Ns[0]+a.Ns[1])
	})
	return out
}

// small tells whether a class has so little time that it needs no line.
func (d *diffText) small(c *join.Difference, t *join.ThreadDiff) bool {
	for i := range c.Ns {
		if float64(c.Ns[i]) >= minClassShare*float64(t.WallNs[i]) && c.Ns[i] > 0 {
			return false
		}
	}
	return true
}

func (d *diffText) row(grid table.Writer, r *join.Difference, what string) {
	larger := max(r.PerUnit[0], r.PerUnit[1])
	grid.AppendRow([]any{amount(r.PerUnit[0], larger), amount(r.PerUnit[1], larger), changeText(r), printable(what)})
}

// diffClassText is a class in words.
func diffClassText(d *join.Difference) string {
	s := d.State
	if d.Cause != "" && d.Cause != d.Wait {
		s += " (" + d.Cause + ")"
	}
	s += " " + d.Task
	if d.Wait != "" && d.Wait != d.Cause {
		s = "in wait (" + d.Wait + "): " + s
	} else if d.Wait != "" {
		s = "waiting for " + d.Wait
	}
	return s
}

// changeText says what changed, or what would have had to.
func changeText(d *join.Difference) string {
	switch {
	case d.Significant:
		word, low, high := "slower", *d.Time.Low, *d.Time.High
		if d.Time.By < 0 {
			word, low, high = "faster", -high, -low
		}
		by := math.Abs(d.Time.By)
		first, _, _ := strings.Cut(amount(low, by), " ")
		last, _, _ := strings.Cut(amount(high, by), " ")
		return fmt.Sprintf("%s by %s [%s, %s]", word, amount(by, by), first, last)
	case d.TooFew:
		return "too few samples"
	case d.Detectable != nil:
		return fmt.Sprintf("no difference seen; one of %s would be", amount(*d.Detectable, *d.Detectable))
	case d.PerUnit[0] == d.PerUnit[1]:
		return "the same"
	}
	return "changed; nothing tells whether by chance"
}

// amount is a time with two or three digits in the unit that suits a whole.
func amount(ns, whole float64) string {
	switch {
	case whole >= 1e9:
		return fmt.Sprintf("%.2f s", ns/1e9)
	case whole >= 2e7:
		return fmt.Sprintf("%.0f ms", ns/1e6)
	case whole >= 1e6:
		return fmt.Sprintf("%.1f ms", ns/1e6)
	case whole >= 1e4:
		return fmt.Sprintf("%.0f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f µs", ns/1e3)
}
