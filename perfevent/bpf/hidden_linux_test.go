// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"pathprof/perfevent/perftest"
)

// Where the kernel hides the addresses of its symbols, the programs load without
// them, and nothing else of the programs changes.
func TestHiddenSymbols(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	kernel := btf.NewCache()
	spec := preparedSpec(t, kernel)
	before := spec.Copy()
	dropSymbols(spec)
	dropped := 0
	for name, p := range spec.Programs {
		for i, ins := range p.Instructions {
			old := before.Programs[name].Instructions[i]
			switch {
			case ins.OpCode != old.OpCode || ins.Dst != old.Dst:
				t.Errorf("%s: instruction %d is %v, was %v", name, i, ins, old)
			case ins.Reference() != old.Reference():
				dropped++
				if ins.Constant != 0 {
					t.Errorf("%s: instruction %d is %v, was %v", name, i, ins, old)
				}
			}
		}
	}
	var o pathprofObjects
	if err := spec.LoadAndAssign(&o, &ebpf.CollectionOptions{Cache: kernel}); err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if want := variables(before); dropped != want {
		t.Errorf("%d references dropped, want %d", dropped, want)
	}
}

// variables counts references to variables of the kernel: those to nothing the
// object defines.
func variables(spec *ebpf.CollectionSpec) (n int) {
	for _, p := range spec.Programs {
		for _, ins := range p.Instructions {
			if ins.OpCode.IsDWordLoad() && ins.Reference() != "" && !ins.IsLoadFromMap() && !ins.IsFunctionReference() {
				n++
			}
		}
	}
	return n
}
