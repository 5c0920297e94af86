// SPDX-License-Identifier: Apache-2.0

package unwind

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Functions are the ranges of code that call frame information describes one by
// one. A stripped file has them, too: so its functions can be told apart, though
// not named. It is safe for concurrent use.
type Functions struct {
	ranges []addrRange // by start
}

// OpenFunctions reads the ranges of an ELF file. Without call frame information
// it returns an error that wraps [ErrNoTable].
func OpenFunctions(r io.ReaderAt) (*Functions, error) {
	f, err := openELF(r)
	if err != nil {
		return nil, err
	}
	base, err := f.base()
	if err != nil {
		return nil, fmt.Errorf("read functions: %w", err)
	}
	fdes, err := f.describe(&Table{Machine: f.Machine, Base: base})
	if err != nil {
		return nil, fmt.Errorf("read functions: %w", err)
	}
	out := &Functions{ranges: make([]addrRange, 0, len(fdes))}
	for _, fde := range fdes {
		out.ranges = append(out.ranges, addrRange{fde.Begin(), fde.End()})
	}
	return out, nil
}

// Start returns the first address of the function around an address, as the
// linker gave it.
func (f *Functions) Start(addr uint64) (uint64, bool) {
	i, exact := slices.BinarySearchFunc(f.ranges, addr, func(r addrRange, addr uint64) int { return cmp.Compare(r.start, addr) })
	if !exact {
		i--
	}
	if i < 0 || addr >= f.ranges[i].end {
		return 0, false
	}
	return f.ranges[i].start, true
}
