// SPDX-License-Identifier: Apache-2.0

package join

import (
	"strings"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// Mode is what a processor, or the kernel for a task, does at an instant of a
// path: "user", "system call NAME", "fault", "interrupt", "softirq", "kernel thread",
// "preempted" or "unknown". Off the CPU it is where the task left it: one that was
// preempted in a system call is in that call still.
type Mode string

// The modes, but for system calls, which have their name.
const (
	ModeUser      Mode = "user"
	ModeFault     Mode = "fault"
	ModeInterrupt Mode = "interrupt"
	ModeSoftirq   Mode = "softirq"
	ModeThread    Mode = "kernel thread"
	ModePreempted Mode = "preempted" // runnable, and the recording does not say in what
	ModeUnknown   Mode = "unknown"
)

// callMode is the mode within a system call.
func callMode(name string) Mode { return Mode("system call " + name) }

// unnamedCall is on the way into a system call or out of it: the stack has the
// entry, and no longer says which one.
const unnamedCall = "unnamed"

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
	m, ok := c.stacks[s.Stack]
	if !ok {
		m = c.ofStack(s.Stack)
		c.stacks[s.Stack] = m
	}
	return c.kernelOr(seg, m)
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
	switch {
	case seg.State != execgraph.Preempted:
		return ModeUnknown
	case c.calls:
		return ModeUser // who leaves his CPU in a call says so
	}
	return ModePreempted
}

// kernelOr is ModeThread if a segment's task is the kernel's.
func (c *modeClock) kernelOr(seg *execgraph.Segment, m Mode) Mode {
	if c.j.graph != nil && m == ModeUnknown {
		if t, ok := c.j.graph.Task(seg.Task); ok && (t.Kernel || strings.HasPrefix(t.Name, "iou-")) { // io_uring/io-wq.c, sqpoll.c
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

// callPrefixes begin the names of the functions of system calls, and weakPrefixes
// those of parts that several calls share: they count where the compiler left nothing else.
var (
	callPrefixes = []string{"__x64_sys_", "__arm64_sys_", "__se_sys_", "__do_sys_", "__ia32_sys_"}
	weakPrefixes = []string{"ksys_", "do_sys_"}
)

// callEntries are the functions through which all system calls go.
var callEntries = []string{"do_syscall_64", "entry_SYSCALL_64", "x64_sys_call", "do_el0_svc", "el0_svc", "invoke_syscall"}

// ofStack finds the mode by the innermost entry among the kernel's frames.
func (c *modeClock) ofStack(id uint32) Mode {
	if id == 0 {
		return ModeUnknown
	}
	weak := Mode("")
	frames := c.j.stacks.get(id).Frames
	for i := range frames {
		if frames[i].Kind != KindKernel {
			continue
		}
		m, sure := entryMode(frames[i].Name)
		switch {
		case sure && m == callMode(unnamedCall) && weak != "":
			return weak
		case sure:
			return m
		case m != "" && weak == "":
			weak = m
		}
	}
	return Mode(or(string(weak), string(ModeUnknown)))
}

// entryMode is the mode that begins with a function of the kernel, empty if none
// does.
func entryMode(name string) (m Mode, sure bool) {
	for _, p := range callPrefixes {
		if call, ok := strings.CutPrefix(name, p); ok {
			return callMode(call), true
		}
	}
	for _, p := range weakPrefixes {
		if call, ok := strings.CutPrefix(name, p); ok {
			return callMode(call), false
		}
	}
	for _, e := range entries {
		if strings.HasPrefix(name, e.prefix) {
			return e.mode, true
		}
	}
	for _, e := range callEntries {
		if strings.HasPrefix(name, e) {
			return callMode(unnamedCall), true
		}
	}
	return "", false
}
