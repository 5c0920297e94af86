// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// judge holds a profile against what every machine must reach.
func (p *profile) judge(t *testing.T, k kind, s step) {
	text, _ := json.Marshal(p)
	t.Logf("%s: %s", s.Name, text)
	wrong := func(format string, args ...any) { t.Errorf(s.Name+": "+format, args...) }
	if event := s.Profile.Event; event != "auto" && p.Event != event || event == "auto" && p.Event != k.event {
		wrong("event %s", p.Event)
	}
	if !p.Tiles {
		wrong("segments or classes do not make up the wall time")
	}
	if p.Merged < minMerged || p.Profiles == 0 {
		wrong("%.1f %% of the stacks are merged, %d profiles; the others: %v", 100*p.Merged, p.Profiles, p.Unmerged)
	}
	// A clock's timer keeps another time than the clock.
	if p.Backward > 0 || p.OfCounter <= 0 || p.OfCounter > 1.01 && p.Event != "cpu-clock" {
		wrong("counters ran backward %d times; samples stand for %.3f of what they counted", p.Backward, p.OfCounter)
	}
	said := strings.Join(p.Warnings, "\n")
	switch {
	case s.Profile.Throttled:
		if p.Throttled == 0 || !strings.Contains(said, maxSampleRate) || p.Samples < 30 {
			wrong("throttled %d times, %d samples, warnings %q", p.Throttled, p.Samples, p.Warnings)
		}
	case s.Profile.Rivals > 0:
		if p.Counted <= 0 || p.Counted > 0.9 || !strings.Contains(said, "shared the hardware") || p.Samples < 30 {
			wrong("counted %.2f of the time, %d samples, warnings %q", p.Counted, p.Samples, p.Warnings)
		}
	default:
		p.judgeShares(t, wrong)
	}
}

// minMerged of the samples must have whole stacks.
const minMerged = 0.98

// minCovered of the time that the functions ran must be what samples stand for. An
// emulated counter overflows late while the host has no CPU for the machine: what
// passes then counts for the function it happens in, and leaves one sample.
const minCovered = 0.8

// judgeShares: of ten intervals of 95 % four are outside one time in a thousand.
// Where the host was busy, errors must stay within bounds nevertheless.
func (p *profile) judgeShares(t *testing.T, wrong func(string, ...any)) {
	outside := 3
	if covered := p.covered(); covered < minCovered {
		t.Logf("the host was busy: samples stand for %.0f %% of the time", 100*covered)
		outside = 6
	}
	if len(p.Outside) > outside || p.WorstError > 0.2 || len(p.Missing) > 0 || p.Samples < 100 || p.Throttled > 0 || p.Counted < 0.99 {
		wrong("%d samples, throttled %d times, counted %.2f of the time; worst error %.3f, missing %q, outside their intervals %q",
			p.Samples, p.Throttled, p.Counted, p.WorstError, p.Missing, p.Outside)
	}
}

// covered is the part of the running time that samples stand for.
func (p *profile) covered() float64 {
	ns := float64(p.Value)
	if p.Event == "instructions" {
		ns *= instructionNs
	}
	return ns / float64(max(p.RunNs, 1))
}

const tableHead = `| kernel | page | processor | tests passed | failed | skipped | event | samples | worst error of ten | outside | merged | covered | of the counter | throttled at 10 kHz | counted among rivals | seconds | |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|`

// row is the machine's line of the table.
func (m *machine) row(k kind, failed bool) string {
	passed, bad, skipped := 0, 0, 0
	shape, throttled, shared := "– | – | – | – | – | – | –", "–", "–"
	for name, o := range m.steps {
		passed, bad, skipped = passed+len(o.passed), bad+len(o.failed), skipped+len(o.skipped)
		switch p := o.profile; {
		case p == nil:
		case name == "throttled":
			throttled = fmt.Sprintf("%d times", p.Throttled)
		case name == "shared":
			shared = fmt.Sprintf("%.0f %%", 100*p.Counted)
		default:
			shape = fmt.Sprintf("%s | %d | %.1f %% | %d | %.1f %% | %.0f %% | %.0f %%", p.Event, p.Samples, 100*p.WorstError, len(p.Outside),
				100*p.Merged, 100*p.covered(), 100*p.OfCounter)
		}
	}
	verdict := "ok"
	if failed {
		verdict = "FAILED"
	}
	return fmt.Sprintf("| %s | %d K | %s | %d | %d | %d | %s | %s | %s | %.0f | %s |", m.release, m.page>>10, k.arch,
		passed, bad, skipped, shape, throttled, shared, m.took.Seconds(), verdict)
}
