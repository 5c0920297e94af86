// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"pathprof/join"
)

// z95 is the 97.5 % point of the standard normal distribution.
var z95 = distuv.UnitNormal.Quantile(0.975)

// Estimate is a value with its 95 % interval.
// A value that is not known is NaN, an end that is not known infinite.
type Estimate struct {
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// numbers is an [Estimate] as JSON, which has no infinite numbers: what is not
// known is null.
type numbers struct {
	Value *float64 `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// MarshalJSON writes a value and ends that are not known as null.
func (e Estimate) MarshalJSON() ([]byte, error) {
	return json.Marshal(numbers{finite(e.Value), finite(e.Low), finite(e.High)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (e *Estimate) UnmarshalJSON(text []byte) error {
	var n numbers
	if err := json.Unmarshal(text, &n); err != nil {
		return err
	}
	*e = Estimate{math.NaN(), math.Inf(-1), math.Inf(1)}
	for into, from := range map[*float64]*float64{&e.Value: n.Value, &e.Low: n.Low, &e.High: n.High} {
		if from != nil {
			*into = *from
		}
	}
	return nil
}

// finite is nil for what is no number.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Holds tells whether x lies within the interval.
func (e Estimate) Holds(x float64) bool { return e.Low <= x && x <= e.High }

// Median returns the median of a list, NaN if it is empty.
func Median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// bootstraps is how often a list is drawn again: the ends of a 95 % interval
// then rest on 50 draws each.
const bootstraps = 2000

// fewValues: from fewer, order statistics cannot state 95 % with something to
// spare (the least and the greatest of five hold the median in 93.75 %).
const fewValues = 10

// MedianEstimate returns the median with its bootstrap interval; that of few values
// is widened to Student's interval of the mean.
func MedianEstimate(list []float64) Estimate {
	e := bootstrapMedian(list)
	if len(list) < fewValues {
		mean := MeanEstimate(list, 0.95)
		e.Low, e.High = min(e.Low, mean.Low), max(e.High, mean.High)
	}
	return e
}

func bootstrapMedian(list []float64) Estimate {
	return bootstrap(len(list), func(pick func(int) int) float64 {
		draw := make([]float64, len(list))
		for i := range draw {
			draw[i] = list[pick(i)]
		}
		return Median(draw)
	})
}

// bootstrap evaluates a statistic over n observations, as they are and drawn
// again with replacement; the statistic reads observation pick(i) for each i. The
// draws are the same each time.
func bootstrap(n int, statistic func(pick func(int) int) float64) Estimate {
	e := Estimate{Value: statistic(func(i int) int { return i })}
	if n == 0 {
		return Estimate{Value: math.NaN(), Low: math.Inf(-1), High: math.Inf(1)}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 0, bootstraps)
	for range bootstraps {
		if v := statistic(func(int) int { return rng.IntN(n) }); !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return Estimate{Value: math.NaN(), Low: math.Inf(-1), High: math.Inf(1)}
	}
	slices.Sort(values)
	e.Low = stat.Quantile(0.025, stat.Empirical, values, nil)
	e.High = stat.Quantile(0.975, stat.Empirical, values, nil)
	return e
}

// MeanEstimate returns the mean with Student's interval: confidence is 0.95 for
// one, and more where several must hold at once. Below two values the interval
// is endless.
func MeanEstimate(list []float64, confidence float64) Estimate {
	if len(list) < 2 {
		e := Estimate{Value: math.NaN(), Low: math.Inf(-1), High: math.Inf(1)}
		if len(list) == 1 {
			e.Value = list[0]
		}
		return e
	}
	mean, sd := stat.MeanStdDev(list, nil)
	n := float64(len(list))
	half := student(n-1, confidence) * sd / math.Sqrt(n)
	return Estimate{Value: mean, Low: mean - half, High: mean + half}
}

// sliceNs is long against the time in which samples resemble each other: a varied
// period stays for some 20 to 40 ms.
const sliceNs = 100_000_000

// sliceCounts are samples of a kind, and all, by slices of time.
type sliceCounts map[int64]*[2]float64

func (c sliceCounts) add(ns int64, is bool) {
	n := c[ns/sliceNs]
	if n == nil {
		n = new([2]float64)
		c[ns/sliceNs] = n
	}
	if is {
		n[0]++
	}
	n[1]++
}

// share of the kind in all samples: a ratio of two sums over slices, whose variance
// is linearized (W. G. Cochran, Sampling Techniques, 6.3), with Student's interval; at
// least Wilson's.
func (c sliceCounts) share() (samples int64, e Estimate) {
	var part, whole, squares float64
	for _, n := range c {
		part, whole = part+n[0], whole+n[1]
	}
	e.Value = part / whole // NaN of nothing
	e.Low, e.High = join.Wilson(int64(part), int64(whole))
	m := float64(len(c))
	if m < 3 {
		return int64(whole), e
	}
	for _, n := range c {
		d := n[0] - e.Value*n[1]
		squares += d * d
	}
	half := student(m-1, 0.95) * math.Sqrt(squares*m/(m-1)) / whole
	e.Low, e.High = max(0, min(e.Low, e.Value-half)), min(1, max(e.High, e.Value+half))
	return int64(whole), e
}

// student is half the width of Student's interval in standard errors.
func student(freedom, confidence float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: freedom}.Quantile(1 - (1-confidence)/2)
}

// RMS is the root of the mean of the squares; NaN of nothing.
func RMS(list []float64) float64 {
	var sum float64
	for _, x := range list {
		sum += x * x
	}
	return math.Sqrt(sum / float64(len(list)))
}

// Fit is a straight line: Base + Slope·x.
type Fit struct {
	Base  Estimate `json:"base"`
	Slope Estimate `json:"slope"`
}

// FitLine fits a line by least squares, with bootstrap intervals over the points.
func FitLine(x, y []float64) Fit {
	part := func(second bool) func(func(int) int) float64 {
		return func(pick func(int) int) float64 {
			px, py := make([]float64, len(x)), make([]float64, len(y))
			for i := range x {
				k := pick(i)
				px[i], py[i] = x[k], y[k]
			}
			base, slope := stat.LinearRegression(px, py, nil, false)
			if second {
				return slope
			}
			return base
		}
	}
	return Fit{Base: bootstrap(len(x), part(false)), Slope: bootstrap(len(x), part(true))}
}
