// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"pathprof/perfevent/perftest"
	"pathprof/pyframes"
)

// BenchmarkEventCost reports what an event without a stack costs by the kernel's
// own clock of BPF programs, in ns, where two threads wake each other all the
// time: of a program of which nothing is known, and of a target in Python, by
// semaphores and by TCP. ns-empty is a program on the same tracepoint that does
// nothing: the clock's own share of every figure.
func BenchmarkEventCost(b *testing.B) {
	perftest.Require(b, perftest.Root, perftest.BPF)
	b.Run("unknown", func(b *testing.B) {
		perftest.Start(b, builtC(b, "pingpong"), "0")
		c, err := Open(Config{})
		if err != nil {
			b.Fatal(err)
		}
		eventCost(b, c)
	})
	for _, version := range []string{"3.8", "3.11", "3.13"} {
		for _, kind := range []string{"ping", "echo"} {
			b.Run(version+"-"+kind, func(b *testing.B) { eventCost(b, switching(b, version, kind)) })
		}
	}
}

// switching starts two Python threads that switch by a kind of means, and opens a
// capture with them as targets that takes next to no stacks.
func switching(b *testing.B, version, kind string) *Capture {
	const switches = "../../cmd/pathprof/testdata/switches"
	log := filepath.Join(b.TempDir(), "units.log")
	if err := os.WriteFile(log, make([]byte, 1<<21), 0o600); err != nil {
		b.Fatal(err)
	}
	child := perftest.Start(b, perftest.PythonPath(b, version), switches+".py",
		builtFrom(b, switches+".c", "-shared", "-fPIC"), kind, "2000", "0", log)
	in, err := pyframes.Find(child.PID, pyframes.NewCache())
	if err != nil {
		b.Fatal(err)
	}
	c, err := Open(Config{StacksPerSecond: 1})
	if err != nil {
		b.Fatal(err)
	}
	python := &Python{RuntimeAddr: in.RuntimeAddr, Offsets: in.Runtime.Offsets, EvalRanges: in.EvalRanges}
	if err := c.SetProcess(int32(child.PID), Process{Target: true, Python: python}); err != nil {
		b.Fatal(err)
	}
	return c
}

func eventCost(b *testing.B, c *Capture) {
	defer c.Close()
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	empty := attachEmpty(b)
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()
	o := &c.objects
	programs := map[string]*ebpf.Program{
		"empty":  empty,
		"switch": o.OnSwitch, "waking": o.OnWaking, "irq-enter": o.IrqEnter, "irq-leave": o.IrqLeave,
		"softirq-enter": o.SoftirqEnter, "hrtimer-enter": o.HrtimerEnter, "hrtimer-leave": o.HrtimerLeave,
		"send": o.OnSend, "receive": o.OnReceive,
	}
	for b.Loop() {
		before := map[string]*ebpf.ProgramStats{}
		for name, p := range programs {
			before[name] = programStats(b, p)
		}
		for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			var rec Record
			if err := c.Poll(&rec, func(*Record) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
		for name, p := range programs {
			after := programStats(b, p)
			if n := after.RunCount - before[name].RunCount; n > 1000 {
				b.ReportMetric(float64(after.Runtime-before[name].Runtime)/float64(n), "ns-"+name)
			}
		}
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(lostEvents(b, c), "lost")
	}
}

// attachEmpty attaches a program that does nothing to sched_waking.
func attachEmpty(b *testing.B) *ebpf.Program {
	b.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_waking", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	return p
}

func lostEvents(b *testing.B, c *Capture) (n float64) {
	b.Helper()
	losses, err := c.Losses()
	if err != nil {
		b.Fatal(err)
	}
	for _, l := range losses {
		n += float64(l.Events + l.Samples)
	}
	return n
}

// builtC compiles testdata/NAME.c without frame pointers.
func builtC(b testing.TB, name string, flags ...string) string {
	b.Helper()
	return builtFrom(b, "testdata/"+name+".c", flags...)
}

func builtFrom(b testing.TB, source string, flags ...string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), filepath.Base(source)+".out")
	args := append([]string{"-O2", "-fomit-frame-pointer", "-pthread", "-o", path, source}, flags...)
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		b.Skipf("needs gcc: %v\n%s", err, out)
	}
	return path
}
