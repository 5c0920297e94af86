// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"path/filepath"
	"testing"
)

func BenchmarkBuildTable(b *testing.B) {
	for _, path := range elfFiles(b) {
		b.Run(filepath.Base(path), func(b *testing.B) {
			f := open(b, path)
			var t *Table
			for b.Loop() {
				var err error
				if t, err = BuildTable(f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(t.Rows)), "rows")
			b.ReportMetric(float64(len(t.Rules)), "rules")
			b.ReportMetric(float64(t.Functions), "functions")
			b.ReportMetric(float64(t.Skipped), "skipped")
			b.ReportMetric(float64(t.Unsupported), "unsupported")
		})
	}
}
