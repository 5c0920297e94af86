// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// load makes the maps and loads the programs, without those that this kernel has
// no place for, or refuses.
func (c *Capture) load(spec *ebpf.CollectionSpec, cache *btf.Cache) error {
	kernel, err := cache.Kernel()
	if err != nil {
		return fmt.Errorf("kernel types (CONFIG_DEBUG_INFO_BTF): %w", err)
	}
	if err := c.missing.leaveOut(spec, func(o *option) error { return o.lacks(spec, kernel) }); err != nil {
		return err
	}
	if err := setCountsDisabled(spec, kernel); err != nil {
		return err
	}
	err = c.loadAll(spec, cache)
	if err == nil || errors.Is(err, unix.EPERM) {
		return err
	}
	// One that an option can do without may be to blame: each is tried alone.
	before := len(c.missing)
	options := &ebpf.CollectionOptions{Cache: cache}
	if err := c.missing.leaveOut(spec, func(o *option) error { return o.refused(spec, options) }); err != nil {
		return err
	}
	if len(c.missing) == before {
		return err
	}
	return c.loadAll(spec, cache)
}

// setCountsDisabled tells the programs how the kernel's nesting count is laid out
// (c/context.h).
func setCountsDisabled(spec *ebpf.CollectionSpec, kernel *btf.Spec) error {
	var f *btf.Func
	if kernel.TypeByName("local_interrupt_disable", &f) != nil {
		return nil
	}
	if err := spec.Variables[pathprofVarCountsDisabled].Set(uint8(1)); err != nil {
		return fmt.Errorf("set the layout of the nesting count: %w", err)
	}
	return nil
}

// loadAll loads the programs that the verifier takes long for beside each other.
func (c *Capture) loadAll(spec *ebpf.CollectionSpec, cache *btf.Cache) error {
	all, err := ebpf.NewCollectionWithOptions(with(spec, nil), ebpf.CollectionOptions{Cache: cache})
	if err != nil {
		return err
	}
	defer all.Close()
	options := ebpf.CollectionOptions{Cache: cache, MapReplacements: all.Maps}
	parts := partition(spec.Programs)
	loaded, errs := make([]*ebpf.Collection, len(parts)), make([]error, len(parts))
	var work sync.WaitGroup
	for i, part := range parts {
		work.Go(func() { loaded[i], errs[i] = ebpf.NewCollectionWithOptions(with(spec, part), options) })
	}
	work.Wait()
	for _, part := range loaded {
		if part != nil {
			maps.Copy(all.Programs, part.Programs)
			clear(part.Programs)
			part.Close()
		}
	}
	if err := cmp.Or(errs...); err != nil {
		return err
	}
	return all.Assign(&c.objects)
}

// with is spec with other programs.
func with(spec *ebpf.CollectionSpec, programs map[string]*ebpf.ProgramSpec) *ebpf.CollectionSpec {
	other := *spec
	other.Programs = programs
	return &other
}

// partition divides programs so that each part has at most one that takes long.
func partition(programs map[string]*ebpf.ProgramSpec) []map[string]*ebpf.ProgramSpec {
	parts := []map[string]*ebpf.ProgramSpec{{}, {}, {}}
	long := map[string]int{"on_switch": 0, "sample": 1}
	for name, p := range programs {
		i, ok := long[name]
		if !ok {
			i = 2
		}
		parts[i][name] = p
	}
	return parts
}

// findSymbols lets the programs know where the kernel keeps what context_at reads.
// Where the kernel hides its addresses (kallsyms_show_value in
// kernel/ksyms_common.c), it is not known, and said.
func (c *Capture) findSymbols() error {
	status, err := c.objects.FindSymbols.Run(&ebpf.RunOptions{})
	if err != nil {
		return fmt.Errorf("find the kernel's variables: %w", err)
	}
	c.hidden = status != 0
	return nil
}
