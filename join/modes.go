// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"slices"
	"strings"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// Mode is what a processor, or the kernel for a task, does at an instant of a
// path: "user", "system call NAME", "fault", "interrupt", "softirq", "kernel thread"
// or "unknown".
type Mode string

// The modes, but for system calls, which have their name.
const (
	ModeUser      Mode = "user"
	ModeFault     Mode = "fault"
	ModeInterrupt Mode = "interrupt"
	ModeSoftirq   Mode = "softirq"
	ModeThread    Mode = "kernel thread"
	ModeUnknown   Mode = "unknown"
)

// callMode is the mode within a system call.
func callMode(name string) Mode { return Mode("system call " + name) }

// ModeShare is the time of a path in one mode, ns.
type ModeShare struct {
	Mode Mode  `json:"mode"`
	Ns   int64 `json:"ns"`
}

// modeClock sums up the modes of a path.
type modeClock struct {
	j     *joiner
	calls bool // the recording says in which call a task leaves its CPU
	sums  map[Mode]int64
}

func (c *modeClock) add(m Mode, ns int64) { c.sums[m] += ns }

// shares lists the modes, most time first.
func (c *modeClock) shares() []ModeShare {
	out := make([]ModeShare, 0, len(c.sums))
	for m, ns := range c.sums {
		out = append(out, ModeShare{m, ns})
	}
	slices.SortFunc(out, func(a, b ModeShare) int { return cmp.Or(cmp.Compare(b.Ns, a.Ns), cmp.Compare(a.Mode, b.Mode)) })
	return out
}

// running divides a segment on a CPU over the modes of its samples.
func (c *modeClock) running(seg *execgraph.Segment, s span) {
	length := seg.End - seg.Begin
	if s.lo == s.hi {
		c.add(c.kernelOr(seg, ModeUnknown), length)
		return
	}
	list := c.j.samples[s.task][s.lo:s.hi]
	parts := shareOut(length, weights(list))
	for i := range list {
		c.add(c.sampled(seg, &list[i]), parts[i])
	}
}

// sampled is the mode in which a sample was taken.
func (c *modeClock) sampled(seg *execgraph.Segment, s *recording.Sample) Mode {
	switch {
	case !s.Kernel && !c.inKernel(s.Stack):
		return ModeUser
	case s.Ctx == sched.ContextSoftirq:
		return ModeSoftirq
	case s.Ctx == sched.ContextHardirq, s.Ctx == sched.ContextNMI, s.Ctx == sched.ContextIPI:
		return ModeInterrupt
	}
	return c.kernelOr(seg, c.ofStack(s.Stack))
}

// off is the mode of a segment off the CPU: of its task, or of the target that
// waits, where there is nobody else.
func (c *modeClock) off(seg *execgraph.Segment) Mode {
	if seg.State == execgraph.Unknown || c.j.graph == nil {
		return ModeUnknown
	}
	v, ok := c.j.graph.StateAt(seg.Task, seg.Begin)
	if ok && v.State == execgraph.Preempted && v.On.Call == 0 && seg.State == execgraph.Preempted {
		// Woken and not on a CPU since: it is still in the call it slept in.
		if before, ok := c.j.graph.StateAt(seg.Task, v.Begin-1); ok && before.State == execgraph.Blocked {
			v = before
		}
	}
	switch {
	case ok && v.On.Call == sched.CallFault:
		return ModeFault
	case ok && v.On.Call != 0:
		return callMode(v.On.Call.String())
	case v.Stack != 0:
		if m := c.ofStack(v.Stack); m != ModeUnknown {
			return m
		}
	}
	if m := c.kernelOr(seg, ModeUnknown); m != ModeUnknown {
		return m
	}
	if c.calls && c.j.targets[c.j.names.of(seg.Task).PID] {
		if v.State == execgraph.Preempted {
			return ModeUser
		}
		return ModeFault // it sleeps in no call
	}
	return ModeUnknown
}

// kernelOr is ModeThread if a segment's task is the kernel's.
func (c *modeClock) kernelOr(seg *execgraph.Segment, m Mode) Mode {
	if c.j.graph != nil && m == ModeUnknown {
		if t, ok := c.j.graph.Task(seg.Task); ok && t.Kernel {
			return ModeThread
		}
	}
	return m
}

// inKernel tells whether a stack's innermost frame is the kernel's.
func (c *modeClock) inKernel(id uint32) bool {
	if id == 0 {
		return false
	}
	frames := c.j.stacks.get(id).Frames
	return len(frames) > 0 && frames[0].Kind == KindKernel
}

// entries of the kernel, by the begin of a function's name (arch/x86/entry,
// arch/arm64/kernel/entry-common.c; 6.18).
var entries = []struct {
	prefix string
	mode   Mode
}{
	{"handle_softirqs", ModeSoftirq}, {"__do_softirq", ModeSoftirq}, {"__softirqentry_text", ModeSoftirq},
	{"asm_sysvec_", ModeInterrupt}, {"asm_common_interrupt", ModeInterrupt}, {"sysvec_", ModeInterrupt}, {"common_interrupt", ModeInterrupt},
	{"el1_interrupt", ModeInterrupt}, {"el0_interrupt", ModeInterrupt},
	{"asm_exc_page_fault", ModeFault}, {"exc_page_fault", ModeFault}, {"handle_mm_fault", ModeFault}, {"do_page_fault", ModeFault}, {"asm_exc_", ModeFault},
}

// callPrefixes begin the names of the functions of system calls.
var callPrefixes = []string{"__x64_sys_", "__arm64_sys_", "__se_sys_", "__ia32_sys_", "ksys_", "do_sys_"}

// ofStack finds the mode by the innermost entry among the kernel's frames.
func (c *modeClock) ofStack(id uint32) Mode {
	if id == 0 {
		return ModeUnknown
	}
	frames := c.j.stacks.get(id).Frames
	for i := range frames {
		if frames[i].Kind != KindKernel {
			continue
		}
		name := frames[i].Name
		for _, p := range callPrefixes {
			if call, ok := strings.CutPrefix(name, p); ok {
				return callMode(call)
			}
		}
		for _, e := range entries {
			if strings.HasPrefix(name, e.prefix) {
				return e.mode
			}
		}
	}
	return ModeUnknown
}

// polling tells whether a task polls instead of waiting: it gives its CPU away
// without anything to wait for, or asks without a timeout, again and again.
func polling(s *Stack) bool {
	for i := range s.Frames {
		switch f := &s.Frames[i]; f.Name {
		case "__x64_sys_sched_yield", "__arm64_sys_sched_yield", "sched_yield", "do_sched_yield", "__sched_yield":
			return true
		}
	}
	return false
}
