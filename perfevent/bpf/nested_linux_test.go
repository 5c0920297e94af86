// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"bufio"
	"cmp"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pathprof/join/sched"
	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// Samples at the highest rate interrupt the other programs: no record is torn,
// and each CPU's are in order. Threads that wake each other, talk over TCP and
// start processes keep those programs busy. A counter whose interrupt is no NMI
// only gets at programs that run with interrupts on; the log says which were hit.
func TestNested(t *testing.T) {
	perftest.Require(t, perftest.Root, perftest.BPF, perftest.PerfEvents)
	c, counters := openSampling(t, time.Millisecond)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer pingPong(t)()
	defer talk(t)()
	defer startProcesses(t)()
	period := highestRate(t, c, counters)
	if err := counters.SetPeriod(uint64(period)); err != nil {
		t.Fatal(err)
	}
	n := nested{t: t, programs: loadedPrograms(t), last: map[onCPU]int64{}, seen: map[sched.Kind]int{}, hit: map[string]int{}}
	// In bursts, so that this thread has a CPU in between on any machine.
	for burst := 0; burst < 500 && (burst < 20 || !n.enough()); burst++ {
		if err := counters.Enable(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if err := counters.Disable(); err != nil {
			t.Fatal(err)
		}
		if err := c.Poll(new(Record), n.take); err != nil {
			t.Fatal(err)
		}
	}
	if c.Undecodable() != 0 {
		t.Errorf("%d records are torn", c.Undecodable())
	}
	if !n.enough() {
		t.Errorf("events %v, samples in the kernel %d: too few to say anything", n.seen, n.inKernel)
	}
	t.Logf("every %v: %v, %d samples in the kernel, of which in programs: %v", period, n.seen, n.inKernel, n.hit)
}

// openSampling returns a capture whose samples are those of stopped counters of
// cpu-clock, or of cycles where the machine has them.
func openSampling(t *testing.T, period time.Duration) (*Capture, *perfevent.Counters) {
	t.Helper()
	c, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	counters, err := perfevent.Open(perfevent.Config{Event: perfevent.Cycles, Period: perfevent.Period{Value: uint64(period)}})
	if err != nil {
		counters, err = perfevent.Open(perfevent.Config{Event: perfevent.CPUClock, Period: perfevent.Period{Value: uint64(period), Time: true}})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { counters.Close() })
	for _, fd := range counters.FDs() {
		if err := c.AttachCounter(fd.FD); err != nil {
			t.Fatal(err)
		}
	}
	return c, counters
}

// highestRate is a period that leaves the CPUs time for something else.
func highestRate(t *testing.T, c *Capture, counters *perfevent.Counters) time.Duration {
	t.Helper()
	statistics, err := EnableRunTimes()
	if err != nil {
		t.Fatal(err)
	}
	defer statistics.Close()
	if err := counters.Enable(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if err := counters.Disable(); err != nil {
		t.Fatal(err)
	}
	sample, _, err := c.RunTimes()
	if err != nil || sample.Runs == 0 {
		t.Fatalf("%d samples in 100 ms, %v", sample.Runs, err)
	}
	cost, factor := sample.Time/time.Duration(sample.Runs), time.Duration(3)
	if cost > 30*time.Microsecond {
		// An emulated processor, whose host may have no time for it: samples that
		// take longer than the period would leave none to stop the counter.
		factor = 20
	}
	return max(factor*cost, 10*time.Microsecond)
}

// nested looks at records that were written while samples interrupted.
type nested struct {
	t        *testing.T
	programs []loadedProgram
	last     map[onCPU]int64    // times
	seen     map[sched.Kind]int // samples are KindInvalid
	inKernel int
	hit      map[string]int
}

// onCPU is a kind of record of a CPU.
type onCPU struct {
	kind sched.Kind
	cpu  int32
}

func (n *nested) enough() bool {
	return n.seen[sched.KindSwitch] >= 100 && n.seen[sched.KindWaking] >= 100 && n.inKernel >= 100
}

func (n *nested) take(r *Record) error {
	ev := &r.Event
	if ev.Kind == sched.KindLost {
		return nil
	}
	// Samples do not interrupt each other, nor do switches; whatever else may be
	// overtaken by what interrupts it.
	if r.Sample || ev.Kind == sched.KindSwitch {
		key := onCPU{ev.Kind, ev.CPU}
		if ev.Time <= n.last[key] {
			n.t.Errorf("%v at %d after %d on CPU %d", ev.Kind, ev.Time, n.last[key], ev.CPU)
		}
		n.last[key] = ev.Time
	}
	n.seen[ev.Kind]++
	switch {
	case ev.Kind == sched.KindSwitch && ev.Task == ev.Other, ev.Kind == sched.KindWaking && ev.Task.TID == 0,
		r.Sample && (ev.Task.TID == 0 || !r.HasStack || r.Value <= 0):
		n.t.Errorf("no event is like that: %+v", *r)
	}
	if !r.Sample || !r.KernelMode {
		return nil
	}
	n.inKernel++
	for _, address := range r.Stack.Kernel {
		if name := n.program(address); name != "" {
			n.hit[name]++
			break
		}
	}
	return nil
}

// loadedProgram is the code of one of our programs in the kernel.
type loadedProgram struct {
	start uint64
	name  string // empty: something else begins here
}

// loadedPrograms reads where the kernel has compiled our programs to, sorted.
func loadedPrograms(t *testing.T) []loadedProgram {
	t.Helper()
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	spec, err := loadPathprof()
	if err != nil {
		t.Fatal(err)
	}
	var list []loadedProgram
	for lines := bufio.NewScanner(f); lines.Scan(); {
		address, rest, _ := strings.Cut(lines.Text(), " ")
		start, err := strconv.ParseUint(address, 16, 64)
		if err != nil {
			continue
		}
		p := loadedProgram{start: start}
		// t bpf_prog_TAG_NAME	[bpf]
		if name, ok := strings.CutPrefix(rest, "t bpf_prog_"); ok {
			_, name, _ = strings.Cut(strings.TrimSuffix(name, "\t[bpf]"), "_")
			if spec.Programs[name] != nil && name != "sample" {
				p.name = name
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b loadedProgram) int { return cmp.Compare(a.start, b.start) })
	return list
}

func (n *nested) program(address uint64) string {
	i, found := slices.BinarySearchFunc(n.programs, address, func(p loadedProgram, a uint64) int { return cmp.Compare(p.start, a) })
	if !found {
		i--
	}
	if i < 0 {
		return ""
	}
	return n.programs[i].name
}

// pingPong keeps two threads of this process waking each other.
func pingPong(t *testing.T) (stop func()) {
	t.Helper()
	r1, w1, err1 := os.Pipe()
	r2, w2, err2 := os.Pipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for _, f := range []*os.File{r1, w1, r2, w2} {
		f.Fd() // blocking from here on: a thread that reads is a thread that waits
	}
	var ended atomic.Bool
	var both sync.WaitGroup
	pass := func(r, w *os.File) {
		runtime.LockOSThread()
		ball := make([]byte, 1)
		for !ended.Load() {
			if _, err := r.Read(ball); err != nil {
				return
			}
			if _, err := w.Write(ball); err != nil {
				return
			}
		}
	}
	both.Go(func() { pass(r1, w2) })
	both.Go(func() { pass(r2, w1) })
	if _, err := w1.Write([]byte{0}); err != nil {
		t.Fatal(err)
	}
	return func() {
		ended.Store(true)
		for _, f := range []*os.File{w1, w2, r1, r2} {
			f.Close()
		}
		both.Wait()
	}
}

// talk keeps an echo over TCP going.
func talk(t *testing.T) (stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	// By read and write: io.Copy would splice, and keep its pipe.
	echo := func(c net.Conn) { _, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c}) }
	both.Go(func() { echo(server) })
	both.Go(func() { echo(client) })
	if _, err := client.Write(make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	return func() {
		client.Close()
		server.Close()
		l.Close()
		both.Wait()
	}
}

// startProcesses has processes begin and end.
func startProcesses(t *testing.T) (stop func()) {
	t.Helper()
	var ended atomic.Bool
	var one sync.WaitGroup
	one.Go(func() {
		for !ended.Load() {
			if err := exec.Command("true").Run(); err != nil {
				t.Error(err)
				return
			}
		}
	})
	return func() {
		ended.Store(true)
		one.Wait()
	}
}
