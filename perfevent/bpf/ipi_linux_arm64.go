// SPDX-License-Identifier: Apache-2.0

package bpf

import "github.com/cilium/ebpf"

// ipiPrograms see the interrupts between processors.
var ipiPrograms = []string{"ipi_enter", "ipi_leave"}

func ipiOf(o *pathprofPrograms) map[string]*ebpf.Program {
	return map[string]*ebpf.Program{"ipi_enter": o.IpiEnter, "ipi_leave": o.IpiLeave}
}
