// SPDX-License-Identifier: Apache-2.0

package join

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"pathprof/join/execgraph"
)

// Student's 97.5 % points, from W. S. Gosset's table.
func TestStudentT(t *testing.T) {
	for freedom, want := range map[int]float64{1: 12.706, 2: 4.303, 4: 2.776, 10: 2.228, 30: 2.042, 120: 1.980} {
		if got := studentT(freedom); math.Abs(got-want) > 5e-4 {
			t.Errorf("%d degrees of freedom: %.4f, want %.3f", freedom, got, want)
		}
	}
}

// pathOf is a class whose segments have these lengths and samples of functions.
func pathOf(lengths []int64, counts ...[]int64) *ThreadPath {
	t := &ThreadPath{Classes: []Class{{Key: ClassKey{State: execgraph.Running}}}, lines: true}
	stacks := worldStacks()
	for i, length := range lengths {
		t.Path.Segments = append(t.Path.Segments, execgraph.Segment{State: execgraph.Running, Wait: -1})
		t.ClassOf = append(t.ClassOf, 0)
		t.fill(i, length, counts[i], stacks)
	}
	return t
}

// uniform makes n segments alike.
func uniform(n int, length int64, counts ...int64) *ThreadPath {
	return pathOf(slices.Repeat([]int64{length}, n), slices.Repeat([][]int64{counts}, n)...)
}

func only(t *testing.T, p *ThreadPath, name string) (Class, Estimate) {
	t.Helper()
	c := p.Pool([][]int{{0}})[0]
	for _, f := range c.Functions {
		if f.Name == name {
			return c, f.Estimate
		}
	}
	t.Fatalf("no %s in %+v", name, c.Functions)
	return c, Estimate{}
}

// What is known by counting.
func TestMethods(t *testing.T) {
	halves := func(n int) *ThreadPath { // segments of one function only, in turn
		var counts [][]int64
		for i := range n {
			counts = append(counts, [][]int64{{20, 0}, {0, 20}}[i%2])
		}
		return pathOf(slices.Repeat([]int64{20_000}, n), counts...)
	}
	tests := []struct {
		name     string
		path     *ThreadPath
		clusters int
		method   Method
		// size is how many independent samples the interval is worth at most.
		size   int64
		tooFew bool
	}{
		{"one segment", uniform(1, 100_000, 50, 50), 1, MethodWilson, 100, false},
		{"three alike", uniform(3, 100_000, 50, 50), 3, MethodDesignEffect, 300, false},
		{"many alike", uniform(50, 10_000, 5, 5), 50, MethodBootstrap, 500, false},
		{"more than are kept apart", uniform(1000, 10_000, 5, 5), maxClusters, MethodBootstrap, 10_000, false},
		{"short ones, some without a sample", pathOf([]int64{10, 10, 10, 10}, []int64{1, 0}, nil, nil, []int64{0, 1}), 2, MethodDesignEffect, 2, true},
		// 20 samples that are all the same are worth one.
		{"four that differ", halves(4), 4, MethodDesignEffect, 4, true},
		{"forty that differ", halves(40), 40, MethodBootstrap, 40, false},
		{"eight that differ", halves(8), 8, MethodDesignEffect, 8, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, got := only(t, tt.path, "a")
			if c.Clusters != tt.clusters || got.Method != tt.method || got.TooFew != tt.tooFew || got.Share != 0.5 {
				t.Errorf("%d clusters, %+v; want %d, %s, too few %v", c.Clusters, got, tt.clusters, tt.method, tt.tooFew)
			}
			low, high := Wilson(tt.size/2, tt.size)
			if got.Low > low+1e-9 || got.High < high-1e-9 {
				t.Errorf("[%v, %v] is narrower than [%v, %v] of %d samples", got.Low, got.High, low, high, tt.size)
			}
			if c.Clusters > 20 && got.High-got.Low > 1.3*(high-low) {
				t.Errorf("[%v, %v] is far wider than [%v, %v] of %d samples", got.Low, got.High, low, high, tt.size)
			}
			if len(c.Lines) != 2 || c.Lines[0].Estimate != got {
				t.Errorf("lines %+v, want the same as of functions", c.Lines)
			}
		})
	}
}

// Whatever the segments are like, no interval is narrower than that of
// independent samples, all hold their estimates, times of functions sum to the
// class', and a second look says the same.
func TestEstimateInvariants(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	stacks := worldStacks()
	for range often(60, 300) {
		w := world{segments: 1 + rng.IntN(300), length: 0.2 + 40*rng.Float64()*rng.Float64(), alike: 0.9 * rng.Float64()}
		p := w.run(rng, stacks)
		c := p.Pool([][]int{{0}})[0]
		if c.Samples == 0 {
			continue
		}
		var ns int64
		for _, f := range c.Functions {
			low, high := Wilson(f.Samples, c.Samples)
			if f.Low > low+1e-12 || f.High < high-1e-12 || f.Low < 0 || f.High > 1 || !(f.Low <= f.Share && f.Share <= f.High) {
				t.Errorf("%+v: %s [%v, %v] of %v, Wilson's is [%v, %v]", w, f.Name, f.Low, f.High, f.Share, low, high)
			}
			if f.NsLow < 0 || f.NsLow > f.Ns || f.Ns > f.NsHigh || f.NsHigh > c.Ns {
				t.Errorf("%+v: %s takes %d of [%d, %d] ns, the class %d", w, f.Name, f.Ns, f.NsLow, f.NsHigh, c.Ns)
			}
			ns += f.Ns
		}
		if d := ns - c.Ns; d < -4 || d > 4 {
			t.Errorf("%+v: functions take %d ns, the class %d", w, ns, c.Ns)
		}
		if again := p.Pool([][]int{{0}})[0]; !reflect.DeepEqual(again, c) {
			t.Errorf("%+v: a second look differs", w)
		}
	}
}

// Where samples are missing, time tells what those that are there stand for: half
// of the time is in a, though three of four samples are in b.
func TestTimeOfThinnedSegments(t *testing.T) {
	var lengths []int64
	var counts [][]int64
	for range 20 {
		lengths = append(lengths, 100_000, 100_000)
		counts = append(counts, []int64{30, 0}, []int64{0, 90})
	}
	c, got := only(t, pathOf(lengths, counts...), "a")
	if got.Share != 0.25 || got.Ns != c.Ns/2 || got.NsLow > c.Ns*2/5 || got.NsHigh < c.Ns*3/5 {
		t.Errorf("%+v, want a quarter of the samples and half of %d ns", got, c.Ns)
	}
}

// The segments inside of one wait belong together, if there are enough waits.
func TestWaitsAreClusters(t *testing.T) {
	p := uniform(60, 10_000, 5, 5)
	for i := range p.Path.Segments {
		p.Path.Segments[i].Wait = i / 5
	}
	if c, _ := only(t, p, "a"); c.Clusters != 12 {
		t.Errorf("%d clusters, want 12 waits", c.Clusters)
	}
	for i := range p.Path.Segments {
		p.Path.Segments[i].Wait = i / 20
	}
	if c, _ := only(t, p, "a"); c.Clusters != 60 {
		t.Errorf("%d clusters, want 60 segments: three waits tell nothing", c.Clusters)
	}
}

// Loss widens an interval, however it was found.
func TestLossWidensClusters(t *testing.T) {
	for _, n := range []int{1, 4, 40} {
		p := uniform(n, 100_000, 50, 50)
		_, got := only(t, p, "a")
		p.Classes[0].Doubt.Lost = 20
		_, lossy := only(t, p, "a")
		if lossy.Low >= got.Low || lossy.High <= got.High || lossy.NsLow >= got.NsLow || lossy.NsHigh <= got.NsHigh {
			t.Errorf("%d segments: %+v with loss, %+v without", n, lossy, got)
		}
	}
}

func BenchmarkPool(b *testing.B) {
	w := world{segments: 5000, length: 60, alike: 0.1}
	p := w.run(rand.New(rand.NewPCG(1, 1)), worldStacks())
	for b.Loop() {
		p.Pool([][]int{{0}})
	}
}
