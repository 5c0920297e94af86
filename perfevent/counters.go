// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"strconv"
	"strings"
	"time"
)

// CPUFD is the open counter of one CPU.
type CPUFD struct {
	CPU int
	// FD of the perf event. It belongs to the [Counters].
	FD int
}

// Count is what a counter has counted.
type Count struct {
	CPU int
	// Value in the event's unit, since the counter was first enabled.
	Value uint64
	// Enabled is how long the counter was enabled; Running how long it really
	// counted. They differ where more events are open than the hardware has
	// counters for, and Value is then that of the running time only.
	Enabled, Running time.Duration
}

// Counts are the counts of all CPUs at about the same time.
type Counts []Count

// Value is the sum of the values.
func (c Counts) Value() uint64 {
	var sum uint64
	for _, n := range c {
		sum += n.Value
	}
	return sum
}

// Running is the sum of the times the counters counted: CPU time, idle time
// included.
func (c Counts) Running() time.Duration {
	var sum time.Duration
	for _, n := range c {
		sum += n.Running
	}
	return sum
}

// RunningShare is the share of the enabled time the counters counted: 1 unless
// events had to take turns. ok is false before anything was enabled.
func (c Counts) RunningShare() (share float64, ok bool) {
	var enabled time.Duration
	for _, n := range c {
		enabled += n.Enabled
	}
	if enabled <= 0 {
		return 0, false
	}
	return float64(c.Running()) / float64(enabled), true
}

// AchievedHz is the rate of overflows a second on one CPU, given how many there
// were, those on idle CPUs and lost ones included. ok is false before anything
// was counted.
func (c Counts) AchievedHz(overflows uint64) (hz float64, ok bool) {
	running := c.Running()
	if running <= 0 {
		return 0, false
	}
	return float64(overflows) / running.Seconds(), true
}

// Throttles says how often the kernel stopped counters because they overflowed
// more often than kernel.perf_event_max_sample_rate allows.
type Throttles struct {
	// Throttled is how often a counter was stopped.
	Throttled uint64
	// Stopped is the time counters were stopped for, summed over CPUs, as far
	// as records of it were not lost.
	Stopped time.Duration
	// Lost counts records of stops and restarts that found no room.
	Lost uint64
	// Samples counts overflows that no BPF program took: from before one was
	// attached.
	Samples uint64
}

// throttleState turns the records of one CPU's counter into Throttles.
type throttleState struct {
	Throttles
	since int64 // when it was stopped, 0 if it is running
}

func (s *throttleState) add(rec *ringRecord) {
	switch rec.typ {
	case recordThrottle:
		s.Throttled++
		s.since = int64(rec.time)
	case recordUnthrottle:
		if s.since != 0 && int64(rec.time) > s.since {
			s.Stopped += time.Duration(int64(rec.time) - s.since)
		}
		s.since = 0
	case recordLost, recordLostSamples:
		s.Lost += rec.lost
		s.since = 0 // the restart may be among the lost
	case recordSample:
		s.Samples++
	}
}

func (t *Throttles) merge(o Throttles) {
	t.Throttled += o.Throttled
	t.Stopped += o.Stopped
	t.Lost += o.Lost
	t.Samples += o.Samples
}

// maxCPUs bounds lists of CPUs read from files: the kernel's own bound is
// 8192 (NR_CPUS of x86 and arm64).
const maxCPUs = 1 << 16

// parseCPUList reads the kernel's form of a set of CPUs, such as "0-3,6".
func parseCPUList(text string) ([]int, error) {
	var cpus []int
	bad := func() ([]int, error) {
		return nil, &strconv.NumError{Func: "CPU list", Num: text, Err: strconv.ErrSyntax}
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		lo, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return bad()
		}
		hi := lo
		if isRange {
			if hi, err = strconv.ParseUint(last, 10, 16); err != nil || hi < lo {
				return bad()
			}
		}
		if len(cpus)+int(hi-lo) >= maxCPUs {
			return bad()
		}
		for cpu := lo; cpu <= hi; cpu++ {
			cpus = append(cpus, int(cpu))
		}
	}
	return cpus, nil
}
