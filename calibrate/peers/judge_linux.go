// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"slices"
	"sort"

	"pathprof/calibrate"
)

// functionIndex is the number of one of profile10.py's ten functions, -1 for others.
func functionIndex(name string) int {
	if len(name) != 2 || name[0] != 'f' || name[1] < '0' || name[1] > '9' {
		return -1
	}
	return int(name[1] - '0')
}

// shareError is the root mean square error of the shares of the ten functions, in
// points, and what chance alone gives so many samples; NaN if none was seen.
func shareError(t *trace, truth []float64) (rms, chance float64) {
	counts := make([]float64, len(truth))
	var n float64
	for _, s := range t.samples {
		if len(s.stack) == 0 {
			continue
		}
		if i := functionIndex(s.stack[len(s.stack)-1]); i >= 0 {
			counts[i]++
			n++
		}
	}
	errs := make([]float64, len(truth))
	for i, p := range truth {
		errs[i] = 100 * (counts[i]/n - p)
		chance += p * (1 - p) / n / float64(len(truth))
	}
	return calibrate.RMS(errs), 100 * math.Sqrt(chance)
}

// tear counts samples within the chains of mix.py: all, those that show the chain
// from its begin, and those that show what never was.
type tear struct{ inside, whole, torn int }

func tears(t *trace) (out tear) {
	for _, s := range t.samples {
		var chain []string
		for _, name := range s.stack {
			if len(name) == 2 && (name[0] == 'a' || name[0] == 'b') && name[1] >= '0' && name[1] <= '9' {
				chain = append(chain, name)
			}
		}
		if len(chain) == 0 {
			continue
		}
		out.inside++
		torn := false
		for i := 1; i < len(chain); i++ {
			torn = torn || chain[i][0] != chain[0][0] || chain[i][1] != chain[i-1][1]+1
		}
		switch {
		case torn:
			out.torn++
		case chain[0][1] == '0':
			out.whole++
		}
	}
	return out
}

// call is one line of profile10.py's log.
type call struct {
	function   int
	begin, end int64
}

func readCalls(path string) ([]call, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(text)%24 != 0 {
		return nil, fmt.Errorf("log of calls: %d bytes are no whole entries", len(text))
	}
	list := make([]call, len(text)/24)
	for i := range list {
		word := func(n int) int64 { return int64(binary.NativeEndian.Uint64(text[24*i+8*n:])) }
		list[i] = call{int(word(0)), word(1), word(2)}
	}
	return list, nil
}

// nearChange, ns: so close to a change of function nobody is called wrong. The
// program's own clock lies there.
const nearChange = 50_000

// verdict on a sample.
type verdict int

const (
	unjudged verdict = iota // outside of the log, or near a change
	right
	wrong
)

// judge compares what a sample shows with what ran at a time.
func judge(calls []call, s *sample, at int64) verdict {
	i := sort.Search(len(calls), func(i int) bool { return calls[i].end > at })
	if i == 0 && at < calls[0].begin || i == len(calls) {
		return unjudged
	}
	c := &calls[i]
	seen := -1
	if len(s.stack) > 0 {
		seen = functionIndex(s.stack[len(s.stack)-1])
	}
	if at < c.begin { // between two calls
		if c.begin-at < nearChange || i > 0 && at-calls[i-1].end < nearChange {
			return unjudged
		}
		if seen < 0 {
			return right
		}
		return wrong
	}
	if at-c.begin < nearChange || c.end-at < nearChange {
		return unjudged
	}
	if seen == c.function {
		return right
	}
	return wrong
}

// score of a list of samples whose clock is behind the system's.
type score struct{ right, wrong int }

func scoreOf(calls []call, list []sample, offset int64) (out score) {
	for i := range list {
		switch judge(calls, &list[i], list[i].at+offset) {
		case right:
			out.right++
		case wrong:
			out.wrong++
		}
	}
	return out
}

// A profiler's own clock is fitted first with samples of all the run, and then anew
// in each row of samples: it may drift.
const (
	fitRow    = 400
	fitCoarse = 100_000 // ns
	fitFine   = 5_000
	fitDrift  = 3_000_000
)

// wrongs counts right and wrong samples of a trace. If their clock is not the
// system's, the first sample is from some moment between earliest and latest.
func wrongs(t *trace, calls []call, earliest, latest int64) (sum score) {
	if len(calls) == 0 || len(t.samples) == 0 || t.clock == clockNone {
		return sum
	}
	if t.clock == clockSystem {
		return scoreOf(calls, t.samples, 0)
	}
	first := t.samples[0].at
	var some []sample
	for i := 0; i < len(t.samples); i += 1 + len(t.samples)/fitRow {
		some = append(some, t.samples[i])
	}
	all := bestOffset(calls, some, earliest-first, latest-first, fitCoarse)
	for row := range slices.Chunk(t.samples, fitRow) {
		best := bestOffset(calls, row, all-fitDrift, all+fitDrift, fitCoarse)
		best = bestOffset(calls, row, best-2*fitCoarse, best+2*fitCoarse, fitFine)
		s := scoreOf(calls, row, best)
		sum.right += s.right
		sum.wrong += s.wrong
	}
	return sum
}

// bestOffset is the offset that makes most samples right and fewest wrong.
func bestOffset(calls []call, list []sample, low, high, step int64) int64 {
	best, most := low, math.MinInt
	for offset := low; offset <= high; offset += step {
		if s := scoreOf(calls, list, offset); cmp.Compare(s.right-s.wrong, most) > 0 {
			best, most = offset, s.right-s.wrong
		}
	}
	return best
}
