// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/google/pprof/profile"

	"pathprof/join"
)

// The files of a pair.
const (
	PairA = "a.pb.gz"
	PairB = "b.pb.gz"
)

// WritePair writes the two sides of a comparison into dir, which it makes if need be,
// so that go tool pprof -diff_base=a.pb.gz b.pb.gz shows the differences: B is scaled
// to the seconds, or requests, of A, and the label "difference" says what the
// comparison knows of each ([join.Finding]).
func WritePair(a, b *join.Profile, c *join.Comparison, dir string) error {
	factor := c.Factor()
	if factor == 0 {
		return errors.New("pair of profiles: one of them has no time")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	for _, side := range []struct {
		name   string
		p      *join.Profile
		factor float64
	}{{PairA, a, 1}, {PairB, b, factor}} {
		prof, err := buildSide(side.p, c, side.factor)
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, side.name), prof); err != nil {
			return err
		}
	}
	return nil
}

// buildSide builds all paths of one side, scaled.
func buildSide(p *join.Profile, c *join.Comparison, factor float64) (*profile.Profile, error) {
	all, _ := split(p, ByState)
	prof, err := build(p, all.refs, c.Findings())
	if err != nil {
		return nil, err
	}
	if factor == 1 {
		return prof, nil
	}
	scale := func(n int64) int64 { return int64(math.Round(float64(n) * factor)) }
	for _, s := range prof.Sample {
		for i, v := range s.Value {
			s.Value[i] = scale(v)
		}
	}
	prof.DurationNanos = scale(prof.DurationNanos)
	prof.Comments = append(prof.Comments, fmt.Sprintf("scaled by %.4g to the %ss of the other profile", factor, c.Unit))
	return prof, nil
}
