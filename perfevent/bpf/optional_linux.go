// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"pathprof/perfevent"
)

// option is something that only some kernels let us record.
type option struct {
	name     string   // what is recorded
	without  string   // what a recording is like without it
	programs []string // as in c/; each has one tracepoint
	// structure and field that programs read which go without them.
	structure, field string
	config           string // the kernel's option that provides it; empty: none, its processor decides
	// contexts: the programs keep the contexts of CPUs, from the beginning.
	contexts bool
	// blind: without it an interrupt that no program sees may be of any kind.
	blind bool
	// unwanted tells whether the user does not want it.
	unwanted func(*Config) bool
}

var options = []option{
	{
		name: "device interrupts", without: "what interrupts wake has no known cause",
		programs: []string{"irq_enter", "irq_leave"}, config: "CONFIG_TRACEPOINTS", contexts: true, blind: true,
	},
	{
		name: "high-resolution timers", without: "what interrupts wake has no known cause",
		programs: []string{"hrtimer_enter", "hrtimer_leave"}, config: "CONFIG_TRACEPOINTS", contexts: true, blind: true,
	},
	{
		name: "interrupts between processors", without: "what they wake may seem woken by whom they interrupt",
		programs: ipiPrograms, config: "CONFIG_SMP", contexts: true,
	},
	{
		name: "softirqs", without: "what they wake does not tell which it was",
		programs: []string{"softirq_enter", "softirq_leave"}, config: "CONFIG_TRACEPOINTS", contexts: true,
	},
	{
		name: "timers", without: "what they wake names their softirq",
		programs: []string{"timer_enter", "timer_leave"}, config: "CONFIG_TRACEPOINTS", contexts: true,
	},
	{
		name: "changes of tasks' names", without: "tasks keep their first names",
		programs: []string{"on_rename"}, config: "CONFIG_TRACEPOINTS",
	},
	{
		name: "TCP packets", without: "waits for data end at the interrupt that brought it",
		programs: []string{"on_send", "on_receive"}, config: "CONFIG_NET",
		unwanted: func(cfg *Config) bool { return cfg.NoPackets },
	},
	{
		name: "items of kernel workers", without: "workers do not tell what they do, and for whom",
		programs: []string{"on_queue", "on_work", "on_work_end"}, config: "CONFIG_TRACEPOINTS",
		unwanted: func(cfg *Config) bool { return cfg.OnlyTargets },
	},
	{
		name: "requests of block devices", without: "waits for a disk end at its interrupt",
		programs: []string{"on_issue", "on_complete"}, config: "CONFIG_BLOCK",
		unwanted: func(cfg *Config) bool { return cfg.OnlyTargets },
	},
	{
		name: "files of page faults", without: "waits for mapped files do not name them",
		programs: []string{"on_fault"}, // arch/x86/include/asm/trace/exceptions.h; arm64 has none
	},
	{
		name: "CPU limits", without: "tasks that they keep from running look preempted",
		structure: "cfs_rq", field: "throttle_count", config: "CONFIG_CFS_BANDWIDTH",
	},
}

// lacks says why the kernel does not provide an option, nil if it does.
func (o *option) lacks(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	for _, name := range o.programs {
		var def *btf.Typedef
		point := spec.Programs[name].AttachTo
		if err := kernel.TypeByName("btf_trace_"+point, &def); err != nil {
			return fmt.Errorf("this kernel has no tracepoint %s (%s)", point, cmp.Or(o.config, "it depends on the processor"))
		}
	}
	if o.structure == "" {
		return nil
	}
	var s *btf.Struct
	if err := kernel.TypeByName(o.structure, &s); err != nil {
		return fmt.Errorf("this kernel has no type %s", o.structure)
	}
	if !slices.ContainsFunc(s.Members, func(m btf.Member) bool { return m.Name == o.field }) {
		return fmt.Errorf("this kernel was built without %s", o.config)
	}
	return nil
}

// empty puts a program that does nothing, and is never attached, in the place of
// each of an option's.
func (o *option) empty(spec *ebpf.CollectionSpec) {
	for _, name := range o.programs {
		spec.Programs[name] = emptyProgram(name)
	}
}

func emptyProgram(name string) *ebpf.ProgramSpec {
	return &ebpf.ProgramSpec{
		Name: name, Type: ebpf.PerfEvent, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
}

// missing are the options that are left out, and why.
type missing map[*option]error

// leaveOut leaves out the options for which why has a reason.
func (m missing) leaveOut(spec *ebpf.CollectionSpec, why func(*option) error) error {
	for i := range options {
		o := &options[i]
		if m[o] != nil {
			continue
		}
		reason := why(o)
		if reason == nil {
			continue
		}
		m[o] = reason
		o.empty(spec)
		if !o.blind {
			continue
		}
		if err := spec.Variables[pathprofVarSeesInterrupts].Set(uint8(0)); err != nil {
			return fmt.Errorf("set what is seen of interrupts: %w", err)
		}
	}
	return nil
}

// refused says why the kernel does not load an option's programs, nil if it does.
func (o *option) refused(spec *ebpf.CollectionSpec, collection *ebpf.CollectionOptions) error {
	alone := spec.Copy()
	clear(alone.Programs)
	for _, name := range o.programs {
		alone.Programs[name] = spec.Programs[name].Copy()
	}
	loaded, err := ebpf.NewCollectionWithOptions(alone, *collection)
	if err != nil {
		return loadError(err)
	}
	loaded.Close()
	return nil
}

// attachOptions attaches programs of the options that are there and wanted,
// those of contexts or the others. What cannot be attached is missing.
func (c *Capture) attachOptions(contexts bool) error {
	programs := c.optionalPrograms()
	for i := range options {
		o := &options[i]
		if c.missing[o] != nil || o.contexts != contexts || o.unwanted != nil && o.unwanted(&c.cfg) {
			continue
		}
		before := len(c.links)
		for _, name := range o.programs {
			if err := c.attach(programs[name]); err != nil && o.blind {
				return err // too late to say what is not seen
			} else if err != nil {
				c.missing[o] = err
				c.detach(before)
				break
			}
		}
	}
	return nil
}

// optionalPrograms are the programs of options, by name.
func (c *Capture) optionalPrograms() map[string]*ebpf.Program {
	o := &c.objects.pathprofPrograms
	programs := map[string]*ebpf.Program{
		"irq_enter": o.IrqEnter, "irq_leave": o.IrqLeave, "softirq_enter": o.SoftirqEnter, "softirq_leave": o.SoftirqLeave,
		"hrtimer_enter": o.HrtimerEnter, "hrtimer_leave": o.HrtimerLeave,
		"timer_enter": o.TimerEnter, "timer_leave": o.TimerLeave,
		"on_rename": o.OnRename, "on_send": o.OnSend, "on_receive": o.OnReceive,
		"on_queue": o.OnQueue, "on_work": o.OnWork, "on_work_end": o.OnWorkEnd,
		"on_issue": o.OnIssue, "on_complete": o.OnComplete,
		"on_fault": o.OnFault,
	}
	maps.Copy(programs, ipiOf(o))
	return programs
}

// Missing says what the capture leaves out because this kernel does not let it be
// recorded, and what follows from that: one sentence each.
func (c *Capture) Missing() []string {
	var list []string
	for i := range options {
		o := &options[i]
		if why := c.missing[o]; why != nil {
			first, _, _ := strings.Cut(why.Error(), "\n")
			list = append(list, fmt.Sprintf("%s are not recorded, so %s: %s", o.name, o.without, first))
		}
	}
	if c.hidden {
		list = append(list, "the kernel hides the addresses of its symbols, so what an interrupt wakes that no program sees has no known cause: "+
			perfevent.SymbolsHint())
	}
	return list
}

// Probe looks for what only some kernels let us record, and changes nothing.
func Probe() []perfevent.Feature {
	spec, err := loadPathprof()
	var kernel *btf.Spec
	if err == nil {
		kernel, err = btf.LoadKernelSpec()
	}
	var list []perfevent.Feature
	for i := range options {
		o := &options[i]
		f := perfevent.Feature{Name: o.name, Mode: perfevent.ModeCauses}
		if err != nil {
			f.Detail, f.Hint = err.Error(), "use a kernel built with CONFIG_DEBUG_INFO_BTF=y"
		} else if why := o.lacks(spec, kernel); why != nil {
			f.Detail = fmt.Sprintf("%v: %s", why, o.without)
			if o.config != "" {
				f.Hint = "use a kernel built with " + o.config + "=y"
			}
		} else {
			f.OK, f.Detail = true, o.seen(spec)
		}
		list = append(list, f)
	}
	return list
}

// seen names what the option rests on.
func (o *option) seen(spec *ebpf.CollectionSpec) string {
	if o.structure != "" {
		return o.config
	}
	var points []string
	for _, name := range o.programs {
		points = append(points, spec.Programs[name].AttachTo)
	}
	return strings.Join(points, ", ")
}
