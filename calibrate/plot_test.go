// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"strings"
	"testing"
)

func plotted() *Result {
	r := &Result{Overhead: constantCost(10_000, 10_000_000, 1_000_000, 100_000, 10_000)}
	r.Machine.Host = "a<b"
	for _, depth := range []int{4, 50, 100} {
		r.Cost.Depths = append(r.Cost.Depths, DepthCost{Depth: depth, Total: Estimate{Value: 5000 + 30*float64(depth)}})
	}
	r.Advice = []Advice{NewModel(r.Overhead).Advise(usual())}
	return r
}

func TestPlots(t *testing.T) {
	r := plotted()
	for name, write := range map[string]func(io.Writer, string) error{"cost": r.WriteCostPlot, "advice": r.WriteAdvicePlot} {
		var svg, picture bytes.Buffer
		if err := errors.Join(write(&svg, "svg"), write(&picture, "png")); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for dec := xml.NewDecoder(&svg); ; {
			if _, err := dec.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if img, err := png.Decode(&picture); err != nil || img.Bounds().Dx() < 300 {
			t.Errorf("%s: no picture: %v", name, err)
		}
	}
	if err := (&Result{}).WriteAdvicePlot(io.Discard, "svg"); err == nil {
		t.Error("nothing measured: want an error")
	}
}

func TestHTML(t *testing.T) {
	var page bytes.Buffer
	if err := plotted().WriteHTML(&page, "a table <of> words"); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if strings.Count(text, "<svg") != 2 || !strings.Contains(text, "&lt;of&gt;") || strings.Contains(text, "a<b") {
		t.Errorf("page of %d bytes", len(text))
	}
	for _, outside := range []string{"src=", "<script", "@import", "<link"} {
		if strings.Contains(text, outside) {
			t.Errorf("the page loads something: %s", outside)
		}
	}
}
