// SPDX-License-Identifier: Apache-2.0

package bpf

import "github.com/cilium/ebpf"

// ipiPrograms see the interrupts between processors that run functions.
var ipiPrograms = []string{"call_enter", "call_leave", "single_enter", "single_leave", "irq_work_enter", "irq_work_leave"}

func ipiOf(o *pathprofPrograms) map[string]*ebpf.Program {
	return map[string]*ebpf.Program{
		"call_enter": o.CallEnter, "call_leave": o.CallLeave,
		"single_enter": o.SingleEnter, "single_leave": o.SingleLeave,
		"irq_work_enter": o.IrqWorkEnter, "irq_work_leave": o.IrqWorkLeave,
	}
}
