// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"fmt"
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Costs are the times the parts of samples' stacks took, summed over all CPUs.
// Only samples with a Python part count. Each part includes one reading of the
// clock.
type Costs struct {
	Samples uint64
	// Total is that of the whole program, output included.
	Total                  time.Duration
	Kernel, Native, Python time.Duration
}

// Sub returns what was added since an earlier reading.
func (c Costs) Sub(before Costs) Costs {
	return Costs{
		Samples: c.Samples - before.Samples, Total: c.Total - before.Total, Kernel: c.Kernel - before.Kernel,
		Native: c.Native - before.Native, Python: c.Python - before.Python,
	}
}

// Costs returns the sums since Open; they stay zero without [Config].Costs. It
// may be called from any goroutine.
func (c *Capture) Costs() (Costs, error) {
	var perCPU []pathprofCost
	if err := c.objects.Costs.Lookup(uint32(0), &perCPU); err != nil {
		return Costs{}, fmt.Errorf("read costs: %w", err)
	}
	var sum Costs
	for _, n := range perCPU {
		sum.Samples += n.Samples
		sum.Total += time.Duration(n.Total)
		sum.Kernel += time.Duration(n.Kernel)
		sum.Native += time.Duration(n.Native)
		sum.Python += time.Duration(n.Python)
	}
	return sum, nil
}

// RunTime is what the kernel measured of BPF programs while its run-time
// statistics were on.
type RunTime struct {
	Runs uint64
	Time time.Duration
}

// Sub returns what was added since an earlier reading.
func (r RunTime) Sub(before RunTime) RunTime {
	return RunTime{Runs: r.Runs - before.Runs, Time: r.Time - before.Time}
}

// EnableRunTimes turns the kernel's run-time statistics on until the result is
// closed: some 20 ns a run. [Capture.RunTimes] and [Empty.RunTime] read them.
func EnableRunTimes() (io.Closer, error) {
	c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return nil, fmt.Errorf("enable run-time statistics of BPF programs: %w", err)
	}
	return c, nil
}

// RunTimes returns the run times of the sampler and, in one sum, of the programs
// on switches and wake-ups, which are the ones that cost by the event. It may be
// called from any goroutine.
func (c *Capture) RunTimes() (sample, events RunTime, err error) {
	o := &c.objects.pathprofPrograms
	if sample, err = runTime(o.Sample); err != nil {
		return sample, events, err
	}
	for _, p := range []*ebpf.Program{o.OnSwitch, o.OnWaking} {
		one, err := runTime(p)
		if err != nil {
			return sample, events, err
		}
		events.Runs += one.Runs
		events.Time += one.Time
	}
	return sample, events, nil
}

func runTime(p *ebpf.Program) (RunTime, error) {
	stats, err := p.Stats()
	if err != nil {
		return RunTime{}, fmt.Errorf("read run time of %v: %w", p, err)
	}
	return RunTime{Runs: stats.RunCount, Time: stats.Runtime}, nil
}

// Empty is a program that does nothing when a counter overflows: what it costs
// is the floor under everything that samples.
type Empty struct{ program *ebpf.Program }

// OpenEmpty loads an empty program.
func OpenEmpty() (*Empty, error) {
	p, err := ebpf.NewProgram(emptyProgram("empty"))
	if err != nil {
		return nil, loadError(err)
	}
	return &Empty{program: p}, nil
}

// AttachCounter lets the overflows of a perf event run the program.
func (e *Empty) AttachCounter(fd int) error { return attachCounter(fd, e.program) }

// RunTime returns how often it ran, while the statistics were on, and for how
// long.
func (e *Empty) RunTime() (RunTime, error) { return runTime(e.program) }

// Close unloads the program once no counter uses it.
func (e *Empty) Close() error { return e.program.Close() }

func attachCounter(fd int, p *ebpf.Program) error {
	if err := unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.FD()); err != nil {
		return fmt.Errorf("attach a program to a counter: %w", err)
	}
	return nil
}
