// SPDX-License-Identifier: Apache-2.0

package pprofout

import (
	"fmt"
	"slices"
	"strings"

	"pathprof/join"
)

// maxFunctions of a class whose margins stand in the comments.
const maxFunctions = 10

// comments says what the numbers of a profile rest on, a line each.
func comments(p *join.Profile, refs []entryRef) []string {
	var ns, n int64
	paths := make(map[int]bool)
	classes := make(map[[2]int]bool)
	var order [][2]int
	for _, r := range refs {
		path := &p.Paths[r.path]
		e := &path.Entries[r.entry]
		ns += e.Values.PathNs
		n += e.Values.Samples
		paths[r.path] = true
		if c := [2]int{r.path, path.ClassOf[e.Segment]}; !classes[c] {
			classes[c] = true
			order = append(order, c)
		}
	}
	list := []string{
		"event: " + eventWords(p),
		fmt.Sprintf("rate: asked %s, achieved %s", hertz(p.AskedHz), hertz(p.AchievedHz)),
		fmt.Sprintf("samples: n=%d here, %d in the recording; %d of the threads' own lie on no running segment, %d outside the window",
			n, p.Samples, p.OffThread, p.OutsideWindow),
		fmt.Sprintf("time: path/nanoseconds sums to %d ns of %d path(s)", ns, len(paths)),
		margin(p, n, order),
		fmt.Sprintf("loss: %d lost, counter throttled %d times", p.Lost, p.Throttled),
	}
	if len(paths) > 1 {
		list = append(list, "paths: a moment that lies on several paths counts on each; choose one with -tagfocus=path_tid=TID")
	}
	if !p.Complete {
		list = append(list, "loss: the recorder was stopped before it finished; the end may be missing")
	}
	list = append(list, countWords("stacks: ", p.Verdicts), countWords("stop reasons: ", p.Reasons))
	for _, w := range p.Warnings {
		list = append(list, "warning: "+w)
	}
	if len(order) == 1 {
		list = append(list, classWords(&p.Paths[order[0][0]].Classes[order[0][1]])...)
	}
	return list
}

// eventWords: which counter, how often.
func eventWords(p *join.Profile) string {
	s := p.Event
	if p.Period > 0 {
		s += fmt.Sprintf(", period %d %s", p.Period, p.Unit)
	} else {
		s += ", by frequency: samples weigh differently"
	}
	if p.EventNote != "" {
		s += " (" + p.EventNote + ")"
	}
	return s
}

// hertz is a rate; 0 means that it is not known.
func hertz(f float64) string {
	if f <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.1f Hz", f)
}

// margin says how well the samples of a profile know a share.
func margin(p *join.Profile, n int64, classes [][2]int) string {
	if n == 0 {
		return "margin: no samples; times of waits are exact"
	}
	if join.TooFew(n, n) {
		return fmt.Sprintf("margin: n=%d, too few samples for shares; times of waits are exact", n)
	}
	var d join.Doubt
	for _, c := range classes {
		class := p.Paths[c[0]].Classes[c[1]].Doubt
		d.Lost += class.Lost
		d.Unknown += class.Unknown
	}
	low, high := join.Interval(n/2, n, d)
	s := fmt.Sprintf("margin: n=%d, 95 %% (Wilson, if segments are alike); a share of one half is known to [%.2f %%, %.2f %%]", n, 100*low, 100*high)
	if d != (join.Doubt{}) {
		s += fmt.Sprintf(", widened by at most %d lost and %d unreadable samples", d.Lost, d.Unknown)
	}
	return s
}

// classWords gives the margins of a class' largest functions.
func classWords(c *join.Class) []string {
	list := []string{fmt.Sprintf("segment class: %s; %d ns in %d segments, %d samples in %d clusters, %d ns unsampled",
		c.Key, c.Ns, c.Segments, c.Samples, c.Clusters, c.Unsampled)}
	shown := 0
	for _, f := range c.Functions {
		if f.Share == 0 {
			continue // it only called others
		}
		if shown++; shown > maxFunctions {
			continue
		}
		s := fmt.Sprintf("function %s: %.2f %%", f.Name, 100*f.Share)
		switch {
		case c.Samples == 0:
			s += " of the time waited, exact"
		case f.TooFew:
			s += fmt.Sprintf(", %d of %d samples: too few", f.Samples, c.Samples)
		default:
			s += fmt.Sprintf(" [%.2f %%, %.2f %%] (%s), %d of %d samples", 100*f.Low, 100*f.High, f.Method, f.Samples, c.Samples)
		}
		list = append(list, s)
	}
	if shown > maxFunctions {
		list = append(list, fmt.Sprintf("and %d more functions", shown-maxFunctions))
	}
	return list
}

// countWords lists counts, the largest first.
func countWords[K ~string](head string, m map[K]int64) string {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b K) int {
		if m[a] != m[b] {
			if m[a] > m[b] {
				return -1
			}
			return 1
		}
		return strings.Compare(string(a), string(b))
	})
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = fmt.Sprintf("%s %d", k, m[k])
	}
	if len(words) == 0 {
		return head + "none"
	}
	return head + strings.Join(words, ", ")
}
