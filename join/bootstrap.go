// SPDX-License-Identifier: Apache-2.0

package join

import (
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Method says how an interval was found.
type Method string

// The methods.
const (
	// MethodWilson takes the samples as independent: there is one cluster only,
	// so nothing tells how much segments differ from each other.
	MethodWilson Method = "wilson"
	// MethodDesignEffect is Wilson's interval for as many independent samples as
	// the few clusters are worth (L. Kish, 1965), with Student's t for so few.
	MethodDesignEffect Method = "design-effect"
	// MethodBootstrap resamples clusters.
	MethodBootstrap Method = "cluster-bootstrap"
	// MethodExact is no estimate: the time was measured.
	MethodExact Method = "exact"
)

const (
	// replicates of a bootstrap; the tails of 2.5 % are then order statistics.
	replicates = 799
	tail       = (replicates + 1) / 40
	// minResampled clusters for resampling to tell anything at all, and minClusters
	// for it to be trusted alone.
	minResampled = 5
	minClusters  = 20
	// maxClusters bounds the work. More add little: neighbours are joined, and
	// what they have in common is then no longer taken for independent.
	maxClusters = 200
	// maxStudent bounds a studentized replicate. One that happens to draw no
	// cluster with the function has no spread of its own.
	maxStudent = 10
)

// resampling is how often each cluster is drawn in each replicate. It is the
// same for all functions of a class, and for each time the class is looked at.
type resampling struct {
	clusters int
	counts   []uint8 // replicates × clusters; maxClusters fits
}

// newResampling draws clusters with replacement. What they hold is the seed, so
// that the same recording gives the same intervals.
func newResampling(blocks []block) *resampling {
	h := fnv.New64a()
	var word [16]byte
	for _, b := range blocks {
		binary.LittleEndian.PutUint64(word[:8], uint64(b.n))
		binary.LittleEndian.PutUint64(word[8:], uint64(b.ns))
		h.Write(word[:])
	}
	m := len(blocks)
	r := &resampling{clusters: m, counts: make([]uint8, replicates*m)}
	rng := rand.New(rand.NewPCG(h.Sum64(), uint64(m)))
	for b := range replicates {
		row := r.counts[b*m : (b+1)*m]
		for range m {
			row[rng.IntN(m)]++
		}
	}
	return r
}

// sums of the wholes of the clusters that a replicate draws, and of their squares.
type drawn struct{ whole, squares []float64 }

func (r *resampling) sums(whole []float64) *drawn {
	d := &drawn{whole: make([]float64, replicates), squares: make([]float64, replicates)}
	for b := range replicates {
		for i, n := range r.counts[b*r.clusters : (b+1)*r.clusters] {
			w := float64(n) * whole[i]
			d.whole[b] += w
			d.squares[b] += w * whole[i]
		}
	}
	return d
}

// ratio is a share that clusters show: sum of part over sum of whole.
type ratio struct {
	part, whole []float64 // by cluster
	// size is how many independent samples the sums would be worth if clusters
	// did not differ but by chance.
	size  float64
	drawn *drawn // of whole; nil if there is nothing to draw from
}

// spread is a ratio with its standard error by clusters.
type spread struct {
	share, error float64
	// effect is the design effect: by how much the variance is larger than that
	// of independent samples; 1 if it is not known.
	effect float64
}

// spread linearizes the ratio (W. G. Cochran, Sampling Techniques, 6.3).
func (r *ratio) spread() spread {
	var part, whole float64
	for i := range r.whole {
		part += r.part[i]
		whole += r.whole[i]
	}
	s := spread{share: part / whole, effect: 1}
	m := float64(len(r.whole))
	if m < 2 {
		return s
	}
	var squares float64
	for i := range r.whole {
		d := r.part[i] - s.share*r.whole[i]
		squares += d * d
	}
	s.error = math.Sqrt(squares*m/(m-1)) / whole
	if chance := s.share * (1 - s.share) / r.size; chance > 0 {
		s.effect = s.error * s.error / chance
	}
	return s
}

// interval is the 95 % interval of a ratio. It is never narrower than Wilson's
// for r.size independent samples. d is nil where resampling is not worth it.
func (r *ratio) interval(s spread, d *resampling) (low, high float64, method Method) {
	low, high = wilson(s.share, r.size, z95)
	m := len(r.whole)
	if m < 2 {
		return low, high, MethodWilson
	}
	widen := func(l, h float64) { low, high = max(min(low, l), 0), min(max(high, h), 1) }
	if method = MethodBootstrap; m < minClusters || d == nil {
		method = MethodDesignEffect
		if s.effect > 1 {
			widen(wilson(s.share, r.size/s.effect, studentT(m-1)))
		}
	}
	if d != nil && s.error > 0 {
		t := r.students(s, d)
		widen(s.share-t[replicates-tail]*s.error, s.share-t[tail-1]*s.error)
	}
	return low, high, method
}

// students are the replicates' errors in units of their own standard error,
// sorted. Percentiles of these hold a skewed share far better than those of the
// replicates themselves (B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 12.5).
func (r *ratio) students(s spread, d *resampling) []float64 {
	m := d.clusters
	var has []int // most functions are in few clusters
	for i, x := range r.part {
		if x != 0 {
			has = append(has, i)
		}
	}
	correction := float64(m) / float64(m-1)
	out := make([]float64, replicates)
	for b := range out {
		row := d.counts[b*m : (b+1)*m]
		var part, squares, products float64
		for _, i := range has {
			x := float64(row[i]) * r.part[i]
			part += x
			squares += x * r.part[i]
			products += x * r.whole[i]
		}
		whole := r.drawn.whole[b]
		share := part / whole
		variance := squares - 2*share*products + share*share*r.drawn.squares[b]
		if variance < 1e-12*squares {
			variance = 0 // but for rounding
		}
		t := (share - s.share) * whole / math.Sqrt(variance*correction)
		if math.IsNaN(t) {
			t = 0 // no error, and no spread
		}
		out[b] = max(min(t, maxStudent), -maxStudent)
	}
	slices.Sort(out)
	return out
}

// studentT is the 97.5 % point of Student's distribution.
func studentT(freedom int) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(freedom)}.Quantile(0.975)
}
