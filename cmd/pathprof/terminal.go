// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// defaultWidth is the width of output that goes to no terminal.
const defaultWidth = 100

// screen is where text goes: how wide it is and whether it shows colours.
type screen struct {
	w     io.Writer
	width int
	color bool
}

// newScreen looks at the output. COLUMNS overrides the width, and NO_COLOR
// (no-color.org) or TERM=dumb turn colours off.
func newScreen(w io.Writer, getenv func(string) string) screen {
	s := screen{w: w, width: defaultWidth}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.color = getenv("NO_COLOR") == "" && getenv("TERM") != "dumb"
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			s.width = columns
		}
	}
	if columns, err := strconv.Atoi(getenv("COLUMNS")); err == nil && columns > 0 {
		s.width = columns
	}
	s.width = min(max(s.width, 60), 200)
	return s
}

// paint wraps s in a terminal attribute.
func (s screen) paint(c text.Color, str string) string {
	if !s.color {
		return str
	}
	return c.EscapeSeq() + str + text.EscapeReset
}

func (s screen) bold(str string) string  { return s.paint(text.Bold, str) }
func (s screen) faint(str string) string { return s.paint(text.Faint, str) }
func (s screen) warn(str string) string  { return s.paint(text.FgYellow, str) }

// column of a table.
type column struct {
	title string
	right bool
	min   int
	max   int // 0: as wide as it gets
	left  bool
}

// grid makes a table without lines, indented by two.
func (s screen) grid(columns ...column) table.Writer {
	t := table.NewWriter()
	style := table.Style{
		Box:     table.BoxStyle{PaddingRight: "  "},
		Options: table.OptionsNoBordersAndSeparators,
	}
	t.SetStyle(style)
	t.SuppressTrailingSpaces()
	header := make(table.Row, len(columns))
	configs := make([]table.ColumnConfig, len(columns))
	titled := false
	for i, c := range columns {
		header[i] = s.faint(c.title)
		titled = titled || c.title != ""
		configs[i] = table.ColumnConfig{Number: i + 1, WidthMin: c.min, WidthMax: c.max, WidthMaxEnforcer: shorten}
		if c.left {
			configs[i].WidthMaxEnforcer = shortenLeft
		}
		if c.right {
			configs[i].Align, configs[i].AlignHeader = text.AlignRight, text.AlignRight
		}
	}
	t.SetColumnConfigs(configs)
	if titled {
		t.AppendHeader(header)
	}
	return t
}

// shorten cuts text to a width, with a mark at its end.
func shorten(s string, width int) string { return text.Snip(s, width, "…") }

// shortenLeft cuts text to a width and keeps its end, which tells paths apart.
func shortenLeft(s string, width int) string {
	n := utf8.RuneCountInString(s)
	if n <= width || width < 2 {
		return s
	}
	return "…" + string([]rune(s)[n-width+1:])
}

// indent puts spaces before every line.
func indent(s string, by int) string {
	prefix := strings.Repeat(" ", by)
	return prefix + strings.ReplaceAll(s, "\n", "\n"+prefix)
}

// wrap breaks text at spaces into lines no wider than the screen; the lines
// after the first are indented.
func (s screen) wrap(str string, by int) string {
	var b strings.Builder
	column, start := 0, 0
	str = strings.ReplaceAll(str, " %", "\u00a0%") // keeps number and sign together
	for len(str) > 0 {
		spaces := len(str) - len(strings.TrimLeft(str, " "))
		word, _, _ := strings.Cut(str[spaces:], " ")
		n := spaces + text.StringWidthWithoutEscSequences(word)
		if column > start && column+n > s.width {
			b.WriteString("\n" + strings.Repeat(" ", by) + word)
			column, start = by+n-spaces, by
		} else {
			b.WriteString(str[:spaces+len(word)])
			column += n
		}
		str = str[spaces+len(word):]
	}
	return strings.ReplaceAll(b.String(), "\u00a0%", " %")
}
