// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"

	"pathprof/join/execgraph"
	"pathprof/perfevent/recording"
)

// maxPathWarnings that single paths add: with hundreds of threads the rest says
// the same again.
const maxPathWarnings = 20

// minCounted: a switch of counters costs a little of the time even without rivals.
const minCounted = 0.99

// minOverhead is what is worth a warning: less is within the noise of any machine.
const minOverhead = 0.03

// warnings says in words what the numbers of a profile do not know, apart from
// what the recording says of itself.
func warnings(meta *recording.Meta, g *execgraph.Graph, p *Profile) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if meta.EndNs <= meta.BeginNs {
		say("the recording has no end: it is taken to end with its last event or sample")
	}
	loss := &meta.Loss
	if loss.Samples > 0 {
		all := int64(loss.Samples) + p.Samples
		say("%d samples were lost of %d: intervals are widened, and each sample counted stands for %.3f",
			loss.Samples, all, float64(all)/float64(max(p.Samples, 1)))
	}
	if loss.Events > 0 && g.Loss.Events == 0 {
		say("%d events were lost, it is not known when: paths may be wrong", loss.Events)
	}
	out = append(out, g.Warnings...)
	if loss.Throttled > 0 {
		say("the kernel stopped the counter %d times to limit its cost: samples are missing there; a longer period avoids it", loss.Throttled)
	}
	if loss.StolenNs > 0 {
		say("the host took %d ms from this virtual machine's CPUs: what ran includes that time, and intervals are widened",
			loss.StolenNs/1e6)
	}
	if s := meta.CountedShare; s > 0 && s < minCounted {
		say("the counter shared the hardware with others and counted %.0f %% of the time: samples are missing in the rest, "+
			"and what each stands for is scaled by %.2f", 100*s, 1/s)
	}
	if c := meta.Calibration; c != nil && c.Overhead >= minOverhead {
		say("recording slowed what ran by some %.1f %% (calibrated %s): without it that would have taken %.3f of its time",
			100*c.Overhead, c.TakenAt, 1/(1+c.Overhead))
	}
	if loss.ThinnedStacks > 0 {
		say("%d blocked stacks were left out: a thread blocks more often than is worth a stack each", loss.ThinnedStacks)
	}
	if loss.Unresolved > 0 {
		say("%d Python frames have no name: their code was gone when it was read", loss.Unresolved)
	}
	if loss.SideBand > 0 {
		say("%d records about mappings and names were lost: native functions may have no or wrong names", loss.SideBand)
	}
	for _, i := range meta.Interpreters {
		if i.Refused != "" {
			say("no Python frames of process %d (%s): %s", i.PID, or(i.Version, i.Path), i.Refused)
		}
	}
	if p.AskedHz > 0 && p.AchievedHz > 0 && p.AchievedHz < 0.9*p.AskedHz {
		say("%.0f samples a second of a busy CPU instead of %.0f", p.AchievedHz, p.AskedHz)
	}
	if p.OffThread > 0 {
		say("%d samples of the threads lie where the graph has them off the CPU", p.OffThread)
	}
	return append(out, pathWarnings(p.Paths)...)
}

// pathWarnings are those of single paths.
func pathWarnings(paths []ThreadPath) []string {
	var out []string
	more := 0
	say := func(s string) {
		if len(out) < maxPathWarnings {
			out = append(out, s)
		} else {
			more++
		}
	}
	for i := range paths {
		t := &paths[i]
		for _, w := range t.Path.Warnings {
			say(fmt.Sprintf("path of %s: %s", t.Thread, w))
		}
		// Quiet threads have few samples by nature; the first path is the one a
		// person reads first.
		if n, busy := samplesOf(t); i == 0 && busy && n < minClassSamples {
			say(fmt.Sprintf("path of %s: %d samples are too few for shares: record longer or with a shorter period", t.Thread, n))
		}
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("and %d more warnings about paths", more))
	}
	return out
}

// samplesOf counts a path's samples and tells whether any of it could have some.
func samplesOf(t *ThreadPath) (n int64, busy bool) {
	for i := range t.Classes {
		n += t.Classes[i].Samples
		busy = busy || onCPU(t.Classes[i].Key.State)
	}
	return n, busy
}
