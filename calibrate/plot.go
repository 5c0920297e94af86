// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// Size of the plots.
const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 10 * vg.Centimeter
)

// WriteCostPlot draws the cost of a sample over the depth of the stack (the
// thesis' figure 6.4 for this machine), with 95 % intervals, as "svg" or "png".
func (r *Result) WriteCostPlot(w io.Writer, format string) error {
	p := newPlot("Cost of a sample", "depth (Python frames)", "time (µs)")
	lines := []costLine{
		{"total", func(d *DepthCost) Estimate { return d.Total }},
		{"native walk", func(d *DepthCost) Estimate { return d.Native }},
		{"Python walk", func(d *DepthCost) Estimate { return d.Python }},
	}
	if r.Cost.Interrupt.Value > 0 { // it comes on top
		lines = append(lines, costLine{"interrupt before it", func(*DepthCost) Estimate { return r.Cost.Interrupt }})
	}
	for i, l := range lines {
		if err := l.add(p, i, r.Cost.Depths); err != nil {
			return fmt.Errorf("plot costs: %w", err)
		}
	}
	// The legend goes above the curves.
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, 1.4*p.Y.Max
	p.Legend.Left, p.Legend.XOffs = true, 3*vg.Millimeter
	return writePlot(p, w, format)
}

// costLine is one part of the cost.
type costLine struct {
	name string
	part func(*DepthCost) Estimate
}

// points are a line with the ends of its intervals, µs.
type points struct {
	plotter.XYs
	plotter.YErrors
}

func (l *costLine) add(p *plot.Plot, number int, depths []DepthCost) error {
	var list points
	for i := range depths {
		e := l.part(&depths[i])
		if math.IsNaN(e.Value) {
			continue // no sample at this depth
		}
		list.XYs = append(list.XYs, plotter.XY{X: float64(depths[i].Depth), Y: e.Value / 1e3})
		low, high := e.Value-e.Low, e.High-e.Value
		if math.IsInf(low, 0) || math.IsInf(high, 0) {
			low, high = 0, 0
		}
		list.YErrors = append(list.YErrors, struct{ Low, High float64 }{low / 1e3, high / 1e3})
	}
	line, marks, err := plotter.NewLinePoints(list.XYs)
	if err != nil {
		return err
	}
	bars, err := plotter.NewYErrorBars(list)
	if err != nil {
		return err
	}
	line.Color, line.Dashes = plotutil.Color(number), plotutil.Dashes(number)
	marks.Color, marks.Shape, bars.Color = line.Color, plotutil.Shape(number), line.Color
	p.Add(line, marks, bars)
	p.Legend.Add(l.name, line, marks)
	return nil
}

// WriteAdvicePlot draws overhead and margin over the period for the first wish (the
// thesis' figure 6.5 for this machine), with what was wished, as "svg" or "png". Both
// wishes are met where both curves are below their own dashed lines.
func (r *Result) WriteAdvicePlot(w io.Writer, format string) error {
	if len(r.Advice) == 0 || !r.Sound() {
		return fmt.Errorf("plot advice: nothing was measured")
	}
	wish, model := r.Advice[0].Wish, NewModel(r.Overhead)
	title := fmt.Sprintf("Overhead and margin of error for a segment of %g ms", float64(wish.SegmentNs)/1e6)
	if wish.Repetitions > 1 {
		title = fmt.Sprintf("Overhead and margin of error for %d segments of %g ms", wish.Repetitions, float64(wish.SegmentNs)/1e6)
	}
	p := newPlot(title, "period (µs)", "per cent")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	const last = 1e7
	var overhead, margin plotter.XYs
	for i := range 141 { // to the longest, evenly on its axis
		period := shortestPeriod * math.Pow(last/shortestPeriod, float64(i)/140)
		// A logarithmic axis has no zero: what cannot be seen is left out.
		if over := 100 * model.Overhead(period); over > 0.01 {
			overhead = append(overhead, plotter.XY{X: period / 1e3, Y: over})
		}
		if n := model.samples(wish, period); n >= 1 && !math.IsInf(n, 0) {
			margin = append(margin, plotter.XY{X: period / 1e3, Y: 100 * Margin(n)})
		}
	}
	if len(overhead) == 0 || len(margin) == 0 {
		return fmt.Errorf("plot advice: no overhead was seen")
	}
	for i, c := range []struct {
		name  string
		curve plotter.XYs
		limit float64
	}{{"overhead", overhead, wish.MaxOverhead}, {"margin of error", margin, wish.MaxMargin}} {
		if err := addCurve(p, i, c.name, c.curve, 100*c.limit); err != nil {
			return fmt.Errorf("plot advice: %w", err)
		}
	}
	if err := addMeasured(p, r.Overhead.Points); err != nil {
		return fmt.Errorf("plot advice: %w", err)
	}
	p.X.Min, p.X.Max, p.Y.Max = shortestPeriod/1e3, last/1e3, 4*p.Y.Max
	p.Legend.XOffs = -3 * vg.Millimeter
	return writePlot(p, w, format)
}

// addCurve draws a curve and, dashed, the limit that is wished for it.
func addCurve(p *plot.Plot, number int, name string, curve plotter.XYs, limit float64) error {
	line, err := plotter.NewLine(curve)
	if err != nil {
		return err
	}
	wished, err := plotter.NewLine(plotter.XYs{{X: shortestPeriod / 1e3, Y: limit}, {X: 1e4, Y: limit}})
	if err != nil {
		return err
	}
	line.Color, line.Width = plotutil.Color(number), vg.Points(1.5)
	wished.Color, wished.Dashes = line.Color, plotutil.Dashes(1)
	p.Add(line, wished)
	p.Legend.Add(name, line)
	p.Legend.Add(fmt.Sprintf("%s wished: %g", name, limit), wished)
	return nil
}

// addMeasured marks the measured overheads that can be seen.
func addMeasured(p *plot.Plot, measured []OverheadPoint) error {
	var list plotter.XYs
	for i := range measured {
		if over := 100 * measured[i].Best(); over > 0.01 {
			list = append(list, plotter.XY{X: float64(measured[i].PeriodNs) / 1e3, Y: over})
		}
	}
	if len(list) == 0 {
		return nil
	}
	marks, err := plotter.NewScatter(list)
	if err != nil {
		return err
	}
	marks.Color, marks.Shape = plotutil.Color(0), plotutil.Shape(0)
	p.Add(marks)
	p.Legend.Add("measured", marks)
	return nil
}

// newPlot is an empty one with a grid, which lies behind all that is added later.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size = vg.Points(14)
	p.Title.Padding = 3 * vg.Millimeter
	p.X.Padding, p.Y.Padding = 0, 0
	p.Legend.Top = true
	p.Legend.Padding = vg.Millimeter
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{Y: 220}, color.Gray{Y: 220}
	p.Add(grid)
	return p
}

func writePlot(p *plot.Plot, w io.Writer, format string) error {
	c, err := p.WriterTo(plotWidth, plotHeight, format)
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	_, err = c.WriteTo(w)
	return err
}

// page is all of a calibration's page; it loads nothing.
var page = template.Must(template.New("").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>pathprof calibration of {{.Host}}</title>
<style>body{font:15px sans-serif;max-width:76em;margin:2em auto;padding:0 1em}pre{overflow-x:auto;font-size:13px}svg{width:100%;max-width:52em;height:auto}figure{margin:2em 0}</style>
</head><body><h1>Calibration of {{.Host}}</h1>
<pre>{{.Text}}</pre>
{{range .Plots}}<figure>{{.}}</figure>
{{end}}</body></html>
`))

// WriteHTML writes a page of its own with the plots and, as it is, the text that
// the command prints.
func (r *Result) WriteHTML(w io.Writer, text string) error {
	data := struct {
		Host, Text string
		Plots      []template.HTML
	}{Host: r.Machine.Host, Text: text}
	for _, write := range []func(io.Writer, string) error{r.WriteCostPlot, r.WriteAdvicePlot} {
		var b bytes.Buffer
		if err := write(&b, "svg"); err != nil {
			return err
		}
		// Only the element: the XML declaration has no place within HTML.
		if at := bytes.Index(b.Bytes(), []byte("<svg")); at >= 0 {
			data.Plots = append(data.Plots, template.HTML(b.Bytes()[at:]))
		}
	}
	return page.Execute(w, data)
}
