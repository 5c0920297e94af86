// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pathprof/calibrate"
)

// text is a trace as lines "time a;b;c".
func text(t trace) string {
	var b strings.Builder
	for _, s := range t.samples {
		fmt.Fprintf(&b, "%d %s\n", s.at, strings.Join(s.stack, ";"))
	}
	return b.String()
}

// The formats, as the programs write them.
const (
	rawText = `<module> (prof.py:188);main (prof.py:174);f0 (prof.py:39) 2
<module> (prof.py:188);main (prof.py:174) 1
`
	austinText = `# austin: 3.7.0
# interval: 1000
# mode: wall

P22;T0:22;/a b/prof.py:<module>:188;/a b/prof.py:f1:46 1064
P22;T0:22;/a b/prof.py:<module>:188 17214
P22;T0:22; 9

# duration: 1002901
`
	chromeText = `[{"args":{"filename":"p.py","line":188},"cat":"py-spy","name":"<module>","ph":"B","pid":22,"tid":14,"ts":69417},
{"name":"f2","ph":"B","pid":22,"tid":14,"ts":69417},
{"name":"other","ph":"B","pid":22,"tid":15,"ts":69417},
{"name":"f2","ph":"E","pid":22,"tid":14,"ts":80437},
{"name":"f1","ph":"B","pid":22,"tid":14,"ts":80437},
{"name":"f1","ph":"E","pid":22,"tid":14,"ts":90437},
{"name":"<module>","ph":"E","pid":22,"tid":14,"ts":90437}]`
	perfText = `   22   77.000001234:
            55e0c0 _PyEval_EvalFrameDefault
            7f0a10 py::f0:/a/prof.py
            55e0c1 [unknown]
            7f0a20 py::<module>:/a/prof.py

   22   78.100000000:
            55e0c0 _PyEval_EvalFrameDefault
`
)

func TestParse(t *testing.T) {
	tests := []struct {
		name, want string
		clock      clock
		parse      func() (trace, error)
	}{
		{"raw", "0 <module>;main;f0\n0 <module>;main;f0\n0 <module>;main\n", clockNone,
			func() (trace, error) { return parseRaw(strings.NewReader(rawText)) }},
		{"austin", "1064000 <module>;f1\n18278000 <module>\n18287000 \n", clockOwn,
			func() (trace, error) { return parseAustin(strings.NewReader(austinText)) }},
		{"chrometrace", "69417000 <module>;f2\n80437000 <module>;f1\n", clockOwn,
			func() (trace, error) { return parseChromeTrace([]byte(chromeText)) }},
		{"perf", "77000001234 <module>;f0\n78100000000 \n", clockSystem,
			func() (trace, error) { return parsePerf(strings.NewReader(perfText)) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.parse()
			if err != nil {
				t.Fatal(err)
			}
			if text(got) != tt.want || got.clock != tt.clock {
				t.Errorf("got\n%sclock %d, want\n%sclock %d", text(got), got.clock, tt.want, tt.clock)
			}
		})
	}
}

// FuzzParse: whatever a profiler wrote, parsers return.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{rawText, austinText, chromeText, perfText, "", "x", "a 99999999999", "P1;T1 -5", "1 2.3:\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if len(in) > 1<<12 {
			return
		}
		for _, parse := range []func() (trace, error){
			func() (trace, error) { return parseAustin(strings.NewReader(in)) },
			func() (trace, error) { return parseChromeTrace([]byte(in)) },
			func() (trace, error) { return parsePerf(strings.NewReader(in)) },
		} {
			got, err := parse()
			if err == nil && len(got.samples) > len(in) {
				t.Errorf("%d samples of %d bytes", len(got.samples), len(in))
			}
			for _, s := range got.samples {
				if s.at < 0 {
					t.Errorf("time %d", s.at)
				}
			}
		}
	})
}

func TestTears(t *testing.T) {
	var tr trace
	for _, line := range []string{
		"main a0 a1 a2", "main b0", // whole
		"main a0 a1 b2", "main a0 a2", "main a1 a0", // never were
		"a9", "b3 b4", // cut
		"main", "", "main f0", // elsewhere
	} {
		tr.samples = append(tr.samples, sample{stack: strings.Fields(line)})
	}
	if got, want := tears(&tr), (tear{inside: 7, whole: 2, torn: 3}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// logged makes a log of calls in random order, and what a perfect profiler sees of
// it every ms.
func logged(rng *rand.Rand, n int) (calls []call, t trace) {
	const begin = 1_000_000_000_000
	now := int64(begin)
	for range n {
		c := call{function: rng.IntN(10), begin: now}
		c.end = now + 200_000 + rng.Int64N(2_000_000)
		calls = append(calls, c)
		now = c.end + rng.Int64N(400_000)
	}
	at := int64(begin)
	for _, c := range calls {
		for ; at < c.end; at += 1_000_000 {
			s := sample{at: at, stack: []string{"main"}}
			if at >= c.begin {
				s.stack = append(s.stack, fmt.Sprintf("f%d", c.function))
			}
			t.samples = append(t.samples, s)
		}
	}
	return calls, t
}

// TestWrongs: a perfect profiler is never wrong, whatever its clock; one that shows
// another function now and then is, as often.
func TestWrongs(t *testing.T) {
	calls, good := logged(rand.New(rand.NewPCG(1, 2)), 1000)
	bad := trace{samples: append([]sample(nil), good.samples...)}
	lies := 0
	for i := range bad.samples {
		if s := &bad.samples[i]; i%20 == 0 && len(s.stack) > 1 && judge(calls, s, s.at) == right {
			s.stack = []string{"main", map[bool]string{true: "f1", false: "f0"}[s.stack[1] == "f0"]}
			lies++
		}
	}
	for _, c := range []clock{clockSystem, clockOwn} {
		for name, tr := range map[string]trace{"good": good, "bad": bad} {
			tr.clock = c
			shift := int64(0)
			if c == clockOwn {
				shift = 999_123_456_789 // since its own start, and a little fast
			}
			shifted := trace{clock: c}
			for i, s := range tr.samples {
				s.at += int64(i)/2*int64(c&clockOwn) - shift
				shifted.samples = append(shifted.samples, s)
			}
			got := wrongs(&shifted, calls, calls[0].begin-5_000_000, calls[0].begin+20_000_000)
			want := 0
			if name == "bad" {
				want = lies
			}
			// A fit may move a few of the wrong ones near a change.
			if got.wrong > want || got.wrong < want*9/10 || got.right < len(good.samples)*3/4 {
				t.Errorf("%s, clock %d: %+v, want %d wrong", name, c, got, want)
			}
		}
	}
	if got := wrongs(&trace{samples: good.samples}, calls, 0, 1); got != (score{}) {
		t.Errorf("without times: %+v", got)
	}
}

func TestShareError(t *testing.T) {
	truth := []float64{0.5, 0.5}
	var tr trace
	for i := range 100 {
		tr.samples = append(tr.samples, sample{stack: []string{"main", []string{"f0", "f1"}[i%4/3]}})
	}
	rms, chance := shareError(&tr, truth)
	if math.Abs(rms-25) > 1e-9 || math.Abs(chance-5) > 1e-9 {
		t.Errorf("got %v and %v, want 25 and 5", rms, chance)
	}
	if rms, _ := shareError(&trace{}, truth); !math.IsNaN(rms) {
		t.Errorf("of nothing: %v", rms)
	}
}

// TestTable: one line each, what is not known is no number, and it is said where the
// first is behind.
func TestTable(t *testing.T) {
	known := calibrate.Estimate{Value: 1.05, Low: 1.04, High: 1.06}
	own := row{name: "own", rate: 990, error: 0.2, chance: 0.2, cpu: 2, loops: known, calls: known, stopped: known,
		tear: tear{100, 100, 0}, score: score{right: 100}}
	other := own
	other.name, other.cpu, other.rate = "other", 1, math.NaN()
	other.loops = calibrate.Estimate{Value: 1.0, Low: 0.99, High: 1.01}
	other.calls = calibrate.Estimate{Value: 1.045, Low: 1.01, High: 1.08}
	other.tear, other.score = tear{}, score{}
	other.problems = []error{fmt.Errorf("torn stacks: no")}
	var b strings.Builder
	if err := writeTable(&b, []row{own, other}); err != nil {
		t.Fatal(err)
	}
	want := `profiler  rate /s  loops                 calls                 stopped               error        whole               torn            wrong           CPU
own       990      1.050 [1.040, 1.060]  1.050 [1.040, 1.060]  1.050 [1.040, 1.060]  0.20 (0.20)  100 of 100 (100.0 %)  0 of 100 (0.0 %)  0 of 100 (0.0 %)  2.0 %
other     -        1.000 [0.990, 1.010]  1.045 [1.010, 1.080]  1.050 [1.040, 1.060]  0.20 (0.20)  -                   -               -               1.0 %
other: torn stacks: no
own is behind other in loops
own is not told from other in calls
own is behind other in CPU
`
	if got := b.String(); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s", got)
	}
}

// TestUsage: mistakes of usage end at once.
func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--rate", "0"}, {"--pairs", "1"}, {"--length", "1ms"}, {"more"}, {"--no"}} {
		var out strings.Builder
		if err := run(t.Context(), &out, &out, args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
