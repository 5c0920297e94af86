// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"pathprof/unwind"
)

// Room for unwind tables: 16 MiB of rows, that is some thirty large libraries,
// and 1.5 MiB of rules.
const (
	maxRows  = 2 << 20
	maxRules = 64 << 10
)

// ErrTablesFull says that an unwind table found no room.
var ErrTablesFull = errors.New("no room for more unwind tables")

// tableMemory is the memory of the maps that hold unwind tables: to copy half a
// million rows by system calls takes a tenth of a second. What is written is read
// by programs once SetCodeMaps names it.
type tableMemory struct {
	mapped [][]byte
	rows   []pathprofUnwindRow
	rules  []pathprofUnwindRule
}

func openTables(rows, rules *ebpf.Map) (*tableMemory, error) {
	rowBytes, err := mapMemory(rows, maxRows*int(unsafe.Sizeof(pathprofUnwindRow{})))
	if err != nil {
		return nil, err
	}
	ruleBytes, err := mapMemory(rules, maxRules*int(unsafe.Sizeof(pathprofUnwindRule{})))
	if err != nil {
		unix.Munmap(rowBytes)
		return nil, err
	}
	return &tableMemory{
		mapped: [][]byte{rowBytes, ruleBytes},
		rows:   unsafe.Slice((*pathprofUnwindRow)(unsafe.Pointer(&rowBytes[0])), maxRows),
		rules:  unsafe.Slice((*pathprofUnwindRule)(unsafe.Pointer(&ruleBytes[0])), maxRules),
	}, nil
}

func (m *tableMemory) close() error {
	return errors.Join(unix.Munmap(m.mapped[0]), unix.Munmap(m.mapped[1]))
}

// TableRef is where a loaded table lies. The zero value stands for code without
// call frame information: it is walked by frame pointers.
type TableRef struct {
	row, rows uint32
	base      uint64
}

// NotLoaded stands for a table that could not be loaded: walks stop there, and
// say so.
var NotLoaded = TableRef{rows: noTable}

const noTable = 0xffffffff // NO_TABLE in c/native.h

// CodeMap is an executable mapping of a process.
type CodeMap struct {
	Start, End uint64
	Bias       uint64 // address in the process minus that in the file
	Table      TableRef
}

// LoadTable copies an unwind table into the kernel, where it stays until Close.
// It may be called from another goroutine than the rest, one at a time.
func (c *Capture) LoadTable(t *unwind.Table) (TableRef, error) {
	if c.rows+uint32(len(t.Rows)) > maxRows || c.rules+uint32(len(t.Rules)) > maxRules {
		return NotLoaded, ErrTablesFull
	}
	ref := TableRef{row: c.rows, rows: uint32(len(t.Rows)), base: t.Base}
	if ref.rows == 0 {
		return TableRef{}, nil
	}
	for i, r := range t.Rules {
		c.tables.rules[c.rules+uint32(i)] = pathprofUnwindRule{
			CfaOff: r.CFAOff, CfaAdd: r.CFAAdd, FpOff: r.FPOff, RaOff: r.RAOff,
			Cfa: uint8(r.CFA), CfaReg: uint8(r.CFAReg), Fp: uint8(r.FP), FpReg: uint8(r.FPReg),
			Ra: uint8(r.RA), RaReg: uint8(r.RAReg), Flags: uint8(r.Flags),
		}
	}
	for i, r := range t.Rows {
		c.tables.rows[c.rows+uint32(i)] = pathprofUnwindRow{Pc: r.PC, Rule: c.rules + r.Rule}
	}
	c.rows += uint32(len(t.Rows))
	c.rules += uint32(len(t.Rules))
	return ref, nil
}

// SetCodeMaps makes the executable mappings of a process known under a number,
// for Process.Maps. They must be sorted; more than fit are left out from the
// end, and counted in the result. Processes forked from one another can share a
// number.
func (c *Capture) SetCodeMaps(id uint32, maps []CodeMap) (left int, err error) {
	list := pathprofCodeMapList{}
	if n := len(list.Maps); len(maps) > n {
		left, maps = len(maps)-n, maps[:n]
	}
	list.Count = uint32(len(maps))
	for i, m := range maps {
		list.Maps[i] = pathprofCodeMap{
			Start: m.Start, End: m.End, Base: m.Bias + m.Table.base, Row: m.Table.row, Rows: m.Table.rows,
		}
	}
	if err := c.objects.CodeMaps.Put(id, &list); err != nil {
		return left, fmt.Errorf("make mappings known: %w", err)
	}
	return left, nil
}

// DropCodeMaps forgets the mappings of a number; it is no error if there are none.
func (c *Capture) DropCodeMaps(id uint32) error {
	err := c.objects.CodeMaps.Delete(id)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("forget mappings: %w", err)
	}
	return nil
}
