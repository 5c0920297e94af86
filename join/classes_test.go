// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"strings"
	"testing"

	"pathprof/join/execgraph"
	"pathprof/perfevent/recording"
)

func TestLossRule(t *testing.T) {
	tests := []struct {
		name  string
		rule  lossRule
		ns, n int64
		want  int64
	}{
		{"no loss", lossRule{samples: 100, period: 10}, 1000, 90, 0},
		{"room for fewer", lossRule{lost: 50, samples: 100, period: 10}, 1000, 90, 10},
		{"lost fewer than room", lossRule{lost: 5, samples: 100, period: 10}, 1000, 90, 5},
		{"no room", lossRule{lost: 5, samples: 100, period: 10}, 1000, 101, 0},
		{"throttled", lossRule{throttled: true, samples: 100, period: 10}, 1000, 70, 30},
		{"throttled and lost", lossRule{lost: 3, throttled: true, samples: 100, period: 10}, 1000, 70, 30},
		{"no relation to time", lossRule{lost: 10, samples: 100}, 1000, 25, 3},
		{"throttled, no relation to time", lossRule{throttled: true, samples: 100}, 1000, 25, 0},
	}
	for _, tt := range tests {
		if got := tt.rule.in(tt.ns, tt.n); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// classOf joins stacks with values in one class.
func classOf(t *testing.T, state execgraph.State, loss lossRule, entries map[string]Values) Class {
	t.Helper()
	var wall int64
	for _, v := range entries {
		wall += v.PathNs
	}
	c := newClassifier(wall)
	i := c.index(ClassKey{State: state}, wall)
	path := ThreadPath{ClassOf: []int{0}, Path: execgraph.Path{Segments: []execgraph.Segment{{State: state, Wait: -1}}}}
	for text, v := range entries {
		raw, frame := parseStack(t, text)
		if strings.HasPrefix(text, "n:") && !strings.Contains(text, "p:") {
			raw.PythonStop = recording.StopNoThread
		}
		if text == "" {
			raw.PythonStop = recording.StopFault
		}
		s := Merge(raw, frame, FramesPython)
		s.missing = missingOf(raw)
		c.add(i, Entry{Stack: &s, Values: v})
		path.Entries = append(path.Entries, Entry{Stack: &s, Values: v})
	}
	c.finish(&path, loss, 1)
	return path.Classes[0]
}

func functionLines(c Class) string {
	var b strings.Builder
	for _, f := range c.Functions {
		fmt.Fprintf(&b, "%s %s n=%d %.3f [%.4f %.4f] total %.3f", f.Kind, f.Name, f.Samples, f.Share, f.Low, f.High, f.TotalShare)
		if f.TooFew {
			b.WriteString(" too few")
		}
		b.WriteByte('\n')
		for _, c := range f.Native {
			fmt.Fprintf(&b, "  in %s@%s n=%d %.3f [%.4f %.4f]\n", c.Name, c.File, c.Samples, c.Share, c.Low, c.High)
		}
	}
	return b.String()
}

func TestFunctionsOfSamples(t *testing.T) {
	n := func(n int64) Values { return Values{Samples: n, PathNs: n} }
	// Expected intervals: Wilson's formula evaluated apart from this code.
	tests := []struct {
		name    string
		loss    lossRule
		entries map[string]Values
		want    string
		doubt   Doubt
	}{
		{"whole", lossRule{}, map[string]Values{
			"p:f p:main!":                n(50),
			"p:rec p:rec p:rec p:main!":  n(40), // recursion counts once
			"n:dict@python p:main!":      n(7),  // native time is its caller's
			"k:read n:*eval@py p:other!": n(3),
		}, `
python f n=50 0.500 [0.4038 0.5962] total 0.500
python rec n=40 0.400 [0.3094 0.4980] total 0.400
python main n=7 0.070 [0.0343 0.1375] total 0.970
  in dict@python n=7 0.070 [0.0343 0.1375]
python other n=3 0.030 [0.0103 0.0845] total 0.030 too few
`, Doubt{}},
		{"native code of two callers", lossRule{}, map[string]Values{
			"k:fault n:gemm@blas n:matmul@np p:f p:main!":          n(60), // in the kernel on its behalf
			"n:gemm@blas n:matmul@np p:g p:main!":                  n(10),
			"n:sha@crypto n:update@hash p:f p:main!":               n(20),
			"k:fault n:*eval@py p:f! n:call@np n:*eval@py p:main!": n(10), // no native function of f
		}, `
python f n=90 0.900 [0.8256 0.9448] total 0.900
  in gemm@blas n=60 0.600 [0.5020 0.6906]
  in sha@crypto n=20 0.200 [0.1334 0.2888]
python g n=10 0.100 [0.0552 0.1744] total 0.100
  in gemm@blas n=10 0.100 [0.0552 0.1744]
python main n=0 0.000 [0.0000 0.0370] total 1.000 too few
`, Doubt{}},
		{"some samples without a thread state", lossRule{}, map[string]Values{
			"p:f p:main!": n(97), "n:deflate@libz": n(3),
		}, `
python f n=97 0.970 [0.9155 1.0000] total 0.970
native deflate n=3 0.030 [0.0103 0.1248] total 0.030 too few
python main n=0 0.000 [0.0000 0.0845] total 0.970 too few
`, Doubt{Unknown: 3}},
		{"a thread of a C library", lossRule{}, map[string]Values{
			"n:dgemm@blas": n(50), "k:futex n:wait@blas": n(50),
		}, `
native dgemm n=50 0.500 [0.4038 0.5962] total 0.500
kernel futex n=50 0.500 [0.4038 0.5962] total 0.500
`, Doubt{}},
		{"unreadable", lossRule{}, map[string]Values{"p:f!": n(97), "": n(3)}, `
python f n=97 0.970 [0.9155 1.0000] total 0.970
`, Doubt{Unknown: 3}},
		{"lost", lossRule{lost: 10, samples: 100}, map[string]Values{"p:f!": n(50), "p:g!": n(50)}, `
python f n=50 0.500 [0.3646 0.6354] total 0.500
python g n=50 0.500 [0.3646 0.6354] total 0.500
`, Doubt{Lost: 10}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := classOf(t, execgraph.Running, tt.loss, tt.entries)
			if got := "\n" + functionLines(c); got != tt.want {
				t.Errorf("got:%swant:%s", got, tt.want)
			}
			if c.Doubt != tt.doubt {
				t.Errorf("doubt %+v, want %+v", c.Doubt, tt.doubt)
			}
		})
	}
}

func TestFunctionsOfWaits(t *testing.T) {
	c := classOf(t, execgraph.Blocked, lossRule{lost: 100, samples: 100, period: 1}, map[string]Values{
		"k:schedule k:futex n:sem_wait@libc p:acquire p:main!": {PathNs: 600},
		"k:schedule n:nanosleep@libc":                          {PathNs: 300},
		"":                                                     {PathNs: 100},
	})
	want := `python acquire n=0 0.600 [0.6000 0.6000] total 0.600
native nanosleep n=0 0.300 [0.3000 0.3000] total 0.300
python main n=0 0.000 [0.0000 0.0000] total 0.600
`
	if got := functionLines(c); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if c.Doubt != (Doubt{}) {
		t.Errorf("doubt %+v: waits are not sampled", c.Doubt)
	}
}
