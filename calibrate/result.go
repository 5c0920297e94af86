// SPDX-License-Identifier: Apache-2.0

package calibrate

import "time"

// FormatVersion of stored results; others are not read.
const FormatVersion = 1

// Result is what calibration found. As JSON it is a contract: fields are added
// to, never renamed. Times are nanoseconds, shares in 0…1; errors of shares are in
// points of per cent.
type Result struct {
	Format   int       `json:"format"`
	Machine  Machine   `json:"machine"`
	Python   Python    `json:"python"`
	TakenAt  time.Time `json:"taken_at"`
	TookNs   int64     `json:"took_ns"`
	Quick    bool      `json:"quick"`
	Accuracy Accuracy  `json:"accuracy"`
	Cost     Cost      `json:"cost"`
	Overhead Overhead  `json:"overhead"`
	Phase    Phase     `json:"phase"`
	Advice   []Advice  `json:"advice"`
	Warnings []string  `json:"warnings"`
}

// Sound tells whether the measured periods can be built on: a stored result comes
// from a file.
func (r *Result) Sound() bool {
	for i := range r.Overhead.Points {
		p := &r.Overhead.Points[i]
		if p.PeriodNs <= 0 || !(p.AskedHz > 0) || !(p.AchievedHz >= 0) || !(p.Slowdown.Value > 0) {
			return false
		}
	}
	return len(r.Overhead.Points) > 0
}

// Machine is where a calibration holds.
type Machine struct {
	Host   string `json:"host"`
	Kernel string `json:"kernel"`
	Arch   string `json:"arch"`
	CPUs   int    `json:"cpus"`
	CPU    string `json:"cpu"` // the processor's name; empty if it has none
	// MaxSampleRate and CPUTimeMaxPercent are the kernel's limits
	// (kernel.perf_event_max_sample_rate, kernel.perf_cpu_time_max_percent), -1
	// if they cannot be read.
	MaxSampleRate     int64 `json:"max_sample_rate"`
	CPUTimeMaxPercent int64 `json:"cpu_time_max_percent"`
}

// Python is the interpreter the programs ran on.
type Python struct {
	Path    string `json:"path"`
	Version string `json:"version"`
}

// Accuracy compares the ten-function profile with the truth and with cProfile.
type Accuracy struct {
	Event     string          `json:"event"`
	PeriodNs  int64           `json:"period_ns"`
	Samples   int64           `json:"samples"` // within the ten functions
	Lost      uint64          `json:"lost"`
	Throttled uint64          `json:"throttled"`
	Functions []FunctionShare `json:"functions"`
	// RMS errors over the functions, as means, in points. ExpectedRMS is what
	// chance alone gives so many samples. CProfileRMS is nil if cProfile did not run.
	RMS         float64  `json:"rms"`
	ExpectedRMS float64  `json:"expected_rms"`
	CProfileRMS *float64 `json:"cprofile_rms"`
	// Biased: the mean error of some function is not chance (Student's
	// intervals over slices of the run, all ten to hold with 95 %).
	Biased bool `json:"biased"`
	// Missed is how many of the functions' intervals do not hold the truth.
	Missed int `json:"missed"`
}

// FunctionShare is one function of the ten. Shares are in 0…1.
type FunctionShare struct {
	Name    string   `json:"name"`
	Nominal float64  `json:"nominal"`
	Truth   float64  `json:"truth"` // by its own clock
	Samples int64    `json:"samples"`
	Share   Estimate `json:"share"` // Wilson
	// CProfile is its share by cProfile, in a run of its own with
	// CProfileTruth; nil if that did not run.
	CProfile      *float64 `json:"cprofile"`
	CProfileTruth *float64 `json:"cprofile_truth"`
	// MeanError over slices of the run, in points.
	MeanError Estimate `json:"mean_error"`
}

// Cost is what one sample takes, by the depth of the Python stack.
type Cost struct {
	PeriodNs int64 `json:"period_ns"`
	// Interrupt is the time of a timer interrupt with an empty program, ns: the
	// floor, not part of the fits. See [Overhead].
	Interrupt Estimate    `json:"interrupt_ns"`
	Depths    []DepthCost `json:"depths"`
	// Fits in nanoseconds over the depth: the whole program, and its parts.
	Total  Fit `json:"total"`
	Native Fit `json:"native"`
	Python Fit `json:"python"`
}

// DepthCost is the mean time of a sample's parts at one depth, ns; Rest is what
// is not a walk: the program's begin and its output.
type DepthCost struct {
	Depth   int      `json:"depth"` // Python frames
	Samples uint64   `json:"samples"`
	Total   Estimate `json:"total_ns"`
	Kernel  Estimate `json:"kernel_ns"`
	Native  Estimate `json:"native_ns"`
	Python  Estimate `json:"python_ns"`
	Rest    Estimate `json:"rest_ns"`
}

// Overhead is the slowdown of a computing thread by period.
type Overhead struct {
	Depth  int             `json:"depth"`
	Points []OverheadPoint `json:"points"` // longest period first
	// Events is the cost of switch and wake-up events at a high rate.
	Events EventCost `json:"events"`
}

// OverheadPoint is one period.
type OverheadPoint struct {
	PeriodNs int64 `json:"period_ns"`
	Windows  int   `json:"windows"`
	// Slowdown and Floor are ratios of the CPU time of equal work with and
	// without the counter: with the recorder's program, and with an empty one.
	Slowdown Estimate `json:"slowdown"`
	Floor    Estimate `json:"floor"`
	// OverFloor is (Slowdown-1)/(Floor-1), nil where windows do not see the floor
	// or are too few.
	OverFloor *Estimate `json:"over_floor"`
	// ProgramNs is the mean run time of the recorder's program, by the kernel's
	// statistics. ByStatistics is the slowdown from it and the interrupt's cost,
	// for where windows see nothing; 0 if the interrupt's cost is not known.
	ProgramNs    float64 `json:"program_ns"`
	ByStatistics float64 `json:"by_statistics"`
	// Rates of overflows a second on the program's CPU.
	AskedHz    float64 `json:"asked_hz"`
	AchievedHz float64 `json:"achieved_hz"`
	Samples    uint64  `json:"samples"`
	Lost       uint64  `json:"lost"`
	Throttled  uint64  `json:"throttled"`
}

// Best is the overhead (slowdown minus one) to build on: by windows where they
// see it, else by statistics.
func (p *OverheadPoint) Best() float64 {
	over := p.Slowdown.Value - 1
	clear := over > 0.05 && p.Slowdown.High-p.Slowdown.Low < 0.4*over
	if clear || p.ByStatistics <= 1 {
		return over
	}
	return p.ByStatistics - 1
}

// EventCost is what switch and wake-up events cost a program of nothing but
// switches.
type EventCost struct {
	PerSecond float64 `json:"per_second"`
	EventNs   float64 `json:"event_ns"` // mean run time of the programs, blocked stacks included
	Share     float64 `json:"share"`    // of the time of one CPU
	Lost      uint64  `json:"lost"`
}

// Phase compares ways to sample a program that is in step with the clock, and
// tells how far a sample lies from its event.
type Phase struct {
	RoundNs int64       `json:"round_ns"` // of the program
	Ways    []PhaseWay  `json:"ways"`
	Skid    Skid        `json:"skid"`
	Periods []OddPeriod `json:"periods"`
}

// PhaseWay is one way to sample.
type PhaseWay struct {
	Way      string  `json:"way"` // "same period", "odd period", "jitter"
	PeriodNs int64   `json:"period_ns"`
	Samples  int64   `json:"samples"`
	Truth    float64 `json:"truth"` // share of the marked function
	// Share as sampled: Wilson's interval, as if samples were independent, or that
	// of the differences between slices of the run, if it is wider.
	Share Estimate `json:"share"`
	// Holds: the interval holds the truth.
	Holds bool `json:"holds"`
}

// OddPeriod is the period in use where another was asked for.
type OddPeriod struct {
	AskedNs int64 `json:"asked_ns"`
	UsedNs  int64 `json:"used_ns"`
}

// Skid tells how far the recorded line is from the event. Shares are of Samples.
type Skid struct {
	Samples int64   `json:"samples"`
	Exact   float64 `json:"exact"` // the line that ran by the program's log
	Next    float64 `json:"next"`  // one line off: the clock was read in between
	Far     float64 `json:"far"`   // farther off
	// LateNs: how late the samples are on the timer's grid, median and 99 %; nil
	// if they are too few to tell.
	LateNs   *float64 `json:"late_ns"`
	Late99Ns *float64 `json:"late_99_ns"`
}
