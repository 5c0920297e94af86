// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"bytes"
	"fmt"
	"html/template"
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
// thesis' figure 6.4 for this machine) as "svg" or "png".
func (r *Result) WriteCostPlot(w io.Writer, format string) error {
	p := plot.New()
	p.Title.Text = "Cost of a sample"
	p.X.Label.Text, p.Y.Label.Text = "depth (Python frames)", "time (µs)"
	line := func(part func(*DepthCost) Estimate) plotter.XYs {
		points := make(plotter.XYs, len(r.Cost.Depths))
		for i := range r.Cost.Depths {
			d := &r.Cost.Depths[i]
			points[i] = plotter.XY{X: float64(d.Depth), Y: part(d).Value / 1e3}
		}
		return points
	}
	err := plotutil.AddLinePoints(p,
		"total", line(func(d *DepthCost) Estimate { return d.Total }),
		"native walk", line(func(d *DepthCost) Estimate { return d.Native }),
		"Python walk", line(func(d *DepthCost) Estimate { return d.Python }))
	if err != nil {
		return fmt.Errorf("plot costs: %w", err)
	}
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	return writePlot(p, w, format)
}

// WriteAdvicePlot draws overhead and margin over the period for the first wish (the
// thesis' figure 6.5 for this machine) as "svg" or "png".
func (r *Result) WriteAdvicePlot(w io.Writer, format string) error {
	if len(r.Advice) == 0 || !r.Sound() {
		return fmt.Errorf("plot advice: nothing was measured")
	}
	wish, model := r.Advice[0].Wish, NewModel(r.Overhead)
	p := plot.New()
	p.Title.Text = fmt.Sprintf("A segment of %g ms", float64(wish.SegmentNs)/1e6)
	p.X.Label.Text, p.Y.Label.Text = "period (µs)", "per cent"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	var overhead, margin plotter.XYs
	for period := float64(shortestPeriod); period <= 1e7; period *= 1.1 {
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
	if err := plotutil.AddLines(p, "overhead", overhead, "margin of error", margin); err != nil {
		return fmt.Errorf("plot advice: %w", err)
	}
	p.Legend.Top = true
	return writePlot(p, w, format)
}

func writePlot(p *plot.Plot, w io.Writer, format string) error {
	p.Add(plotter.NewGrid())
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
<style>body{font:15px sans-serif;max-width:60em;margin:2em auto;padding:0 1em}pre{overflow-x:auto;font-size:13px}svg{max-width:100%;height:auto}</style>
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
