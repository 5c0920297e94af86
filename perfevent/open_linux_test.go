// SPDX-License-Identifier: Apache-2.0

package perfevent_test

import (
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

func TestMain(m *testing.M) { perftest.Main(m) }

// spin uses the processor until a counter has seen enough of it.
func spin(d time.Duration) {
	for start := time.Now(); time.Since(start) < d; {
	}
}

func open(t *testing.T, cfg perfevent.Config) *perfevent.Counters {
	t.Helper()
	c, err := perfevent.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func counts(t *testing.T, c *perfevent.Counters) perfevent.Counts {
	t.Helper()
	n, err := c.Counts()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestCounters(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	c := open(t, perfevent.Config{Event: perfevent.CPUClock})
	if got := counts(t, c).Value(); got != 0 {
		t.Errorf("before Enable: got %d ns, want 0", got)
	}
	if _, ok := counts(t, c).AchievedHz(1); ok {
		t.Error("before Enable: a rate, want none")
	}
	begin := time.Now()
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	spin(20 * time.Millisecond)
	if err := c.Disable(); err != nil {
		t.Fatal(err)
	}
	n, most := counts(t, c), uint64(time.Since(begin)+20*time.Millisecond)
	if len(n) != len(c.FDs()) || len(n) != len(c.Info().CPUs) {
		t.Fatalf("got %d counts, %d descriptors, %d CPUs; want as many of each", len(n), len(c.FDs()), len(c.Info().CPUs))
	}
	for _, count := range n {
		// A clock counts the time it runs. Their readings differ by as long as the
		// processor stops in between, where it is emulated, and by some ticks.
		if count.Value < 10e6 || count.Value > most || uint64(count.Running) > most {
			t.Errorf("CPU %d: counted %d ns in %d ns, at most %d", count.CPU, count.Value, count.Running, most)
		}
	}
	if share, ok := n.RunningShare(); !ok || share != 1 {
		t.Errorf("running share: got %v %v, want 1", share, ok)
	}
	if again := counts(t, c); again.Value() != n.Value() {
		t.Errorf("after Disable: counted on from %d to %d", n.Value(), again.Value())
	}
}

func TestInfo(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	c := open(t, perfevent.Config{})
	info := c.Info()
	if !info.AskedEvent.IsAuto() || info.Event.IsAuto() {
		t.Errorf("got %v for %v, want a real event for auto", info.Event, info.AskedEvent)
	}
	if info.Event == perfevent.CPUClock && !strings.Contains(info.Note, "using cpu-clock") {
		t.Errorf("note: got %q, want why there are no cycles", info.Note)
	}
	t.Logf("%v: %+v", info.Event, info)

	if info.Event == perfevent.CPUClock {
		_, err := perfevent.Open(perfevent.Config{Event: perfevent.Cycles})
		var missing *perfevent.FeatureError
		if !errors.As(err, &missing) || !errors.Is(err, perfevent.ErrNotSupported) || missing.Hint == "" {
			t.Errorf("cycles: got %v, want a FeatureError with a hint", err)
		}
		t.Log(err)
	}
}

func TestCountersClosed(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	c := open(t, perfevent.Config{Event: perfevent.CPUClock})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := c.Counts()
	_, err2 := c.Throttles()
	for _, err := range []error{err, err2, c.Enable(), c.Disable()} {
		if !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: got %v, want %v", err, os.ErrClosed)
		}
	}
	if len(c.FDs()) != 0 {
		t.Errorf("after Close: got descriptors %v", c.FDs())
	}
}

// Every software event can be opened, sampled by a program, and counts.
func TestSoftwareEvents(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents, perftest.BPF)
	prog := loadProgram(t, 0)
	for _, name := range perfevent.EventNames() {
		e, err := perfevent.ParseEvent(name)
		if err != nil || e.IsAuto() || e.IsHardware() {
			continue // rHEX is the form of names, not one
		}
		t.Run(name, func(t *testing.T) {
			c := open(t, perfevent.Config{Event: e})
			attach(t, c, prog)
			if err := c.Enable(); err != nil {
				t.Fatal(err)
			}
			touchMemory(t)
			n := counts(t, c)
			quiet := name == "cpu-migrations" || name == "major-faults" || name == "context-switches"
			if n.Value() == 0 && !quiet {
				t.Error("counted nothing")
			}
			t.Logf("%d %s", n.Value(), e.Unit())
		})
	}
}

// touchMemory makes page faults.
func touchMemory(t *testing.T) {
	t.Helper()
	b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
}

// The rate of overflows is the asked one: without a program, each leaves a
// record, so records and counted time are two sources for the same number.
func TestAchievedRate(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	period, err := perfevent.ParsePeriod("2ms", perfevent.CPUClock)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, perfevent.Config{Event: perfevent.CPUClock, Period: period})
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	spin(300 * time.Millisecond)
	if err := c.Disable(); err != nil {
		t.Fatal(err)
	}
	th, err := c.Throttles()
	if err != nil {
		t.Fatal(err)
	}
	n := counts(t, c)
	hz, ok := n.AchievedHz(th.Samples)
	if !ok {
		t.Fatal("no rate")
	}
	t.Logf("asked %v Hz, achieved %.1f Hz, %+v", c.Info().AskedHz, hz, th)
	// A late timer skips periods and never adds any.
	most := n.Value()/period.Value + uint64(len(n))
	if th.Samples == 0 || th.Samples > most {
		t.Errorf("%d overflows, want 1 to %d", th.Samples, most)
	}
}

// With a program that returns 0, as ours does, samples stay out of the ring,
// and what the kernel says about throttling is seen.
func TestThrottle(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.PerfEvents, perftest.BPF)
	const sysctl = "/proc/sys/kernel/perf_event_max_sample_rate"
	before, err := os.ReadFile(sysctl)
	if err != nil {
		t.Fatal(err)
	}
	// 20 kHz: below what this test asks for, above what other users of the
	// machine do.
	if err := os.WriteFile(sysctl, []byte("20000"), 0); err != nil {
		t.Skipf("the sample rate cannot be lowered here: %v", err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(sysctl, before, 0); err != nil {
			t.Error(err)
		}
	})
	period, err := perfevent.ParsePeriod("10us", perfevent.CPUClock)
	if err != nil {
		t.Fatal(err)
	}
	c := open(t, perfevent.Config{Event: perfevent.CPUClock, Period: period})
	if note := c.Info().Note; !strings.Contains(note, "perf_event_max_sample_rate=20000") {
		t.Errorf("note: got %q, want a warning of the rate", note)
	}
	attach(t, c, loadProgram(t, 0))
	if err := c.Enable(); err != nil {
		t.Fatal(err)
	}
	th := waitThrottled(t, c)
	t.Logf("%+v", th)
	if th.Samples != 0 {
		t.Errorf("got %d samples in the ring, want none beside a program", th.Samples)
	}
	if th.Lost != 0 {
		t.Errorf("lost %d records", th.Lost)
	}
}

// waitThrottled waits for a whole throttled stretch: stopped and restarted.
func waitThrottled(t *testing.T, c *perfevent.Counters) perfevent.Throttles {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		spin(20 * time.Millisecond)
		th, err := c.Throttles()
		if err != nil {
			t.Fatal(err)
		}
		if th.Throttled > 0 && th.Stopped > 0 {
			return th
		}
	}
	t.Fatal("never throttled at 100 kHz")
	return perfevent.Throttles{}
}

func TestFrequencyAboveLimit(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	faults, err := perfevent.ParseEvent("page-faults")
	if err != nil {
		t.Fatal(err)
	}
	_, err = perfevent.Open(perfevent.Config{Event: faults, FreqHz: 1 << 40})
	if !errors.Is(err, perfevent.ErrNotSupported) || !strings.Contains(err.Error(), "perf_event_max_sample_rate") {
		t.Errorf("got %v, want the sysctl named", err)
	}
}

// loadProgram loads a perf event program that returns a constant: no BPF
// library, which has its door elsewhere.
func loadProgram(t *testing.T, result int32) int {
	t.Helper()
	insns := [...]uint64{0xb7 | uint64(uint32(result))<<32, 0x95} // r0 = result; exit
	license := [...]byte{'G', 'P', 'L', 0}
	attr := struct {
		progType, insnCount uint32
		insns, license      uint64
		pad                 [5]uint64
	}{
		progType:  unix.BPF_PROG_TYPE_PERF_EVENT,
		insnCount: uint32(len(insns)),
		insns:     uint64(uintptr(unsafe.Pointer(&insns[0]))),
		license:   uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	runtime.KeepAlive(&insns)
	runtime.KeepAlive(&license)
	if errno != 0 {
		t.Fatal(errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	return int(fd)
}

func attach(t *testing.T, c *perfevent.Counters, prog int) {
	t.Helper()
	for _, e := range c.FDs() {
		if err := unix.IoctlSetInt(e.FD, unix.PERF_EVENT_IOC_SET_BPF, prog); err != nil {
			t.Fatalf("attach on CPU %d: %v", e.CPU, err)
		}
	}
}
