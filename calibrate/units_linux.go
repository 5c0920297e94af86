// SPDX-License-Identifier: Apache-2.0

package calibrate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"pathprof/perfevent"
)

// Layout of the file units.py shares; see there.
const (
	unitEntries    = 1 << 16
	unitHeaderSize = 16
	unitEntrySize  = 24
)

// leastUnits a window must have to count; on a busy CPU it is made longer, up to
// patientWindows times.
const (
	leastUnits     = 6
	patientWindows = 8
)

// UnitLog is the file in which a running program notes what each of its equal
// units of work took: see workloads/units.py, whose form it has.
type UnitLog struct{ file *os.File }

// CreateUnitLog makes an empty log for a program that is still to be started.
func CreateUnitLog(path string) (*UnitLog, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(unitHeaderSize + unitEntries*unitEntrySize); err != nil {
		f.Close()
		return nil, fmt.Errorf("make the log of units: %w", err)
	}
	return &UnitLog{file: f}, nil
}

// Path of the file, for the program.
func (u *UnitLog) Path() string { return u.file.Name() }

// Close closes the log; the file stays.
func (u *UnitLog) Close() error { return u.file.Close() }

// units is the running workload units.py.
type units struct {
	*Program
	*UnitLog
}

// startUnits runs it at a depth.
func (b *bench) startUnits(ctx context.Context, depth int) (*units, error) {
	log, err := CreateUnitLog(filepath.Join(b.dir, "units.log"))
	if err != nil {
		return nil, err
	}
	u := &units{UnitLog: log}
	if err := u.SetDepth(uint64(depth)); err != nil {
		log.Close()
		return nil, err
	}
	// It ends by itself, should nobody be left to end it.
	if u.Program, err = b.start(ctx, "units.py", log.Path(), strconv.Itoa(600)); err != nil {
		log.Close()
		return nil, err
	}
	return u, nil
}

func (u *units) close() {
	u.Stop()
	u.Close()
}

// SetDepth changes the depth, and what else units.py reads there, from the next
// unit on.
func (u *UnitLog) SetDepth(depth uint64) error {
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], depth)
	if _, err := u.file.WriteAt(word[:], 8); err != nil {
		return fmt.Errorf("set the depth: %w", err)
	}
	return nil
}

// errFewUnits: the program got next to no CPU in a window.
var errFewUnits = errors.New("the program hardly ran")

// UnitCost is the mean of what units took, ns: CPU time, and time by the clock from
// the end of one to the end of the next, while a profiler stopped the program
// included.
type UnitCost struct{ CPUNs, WallNs float64 }

// Window waits and returns the cost of the units that began and ended meanwhile.
// It waits longer if they are too few.
func (u *UnitLog) Window(ctx context.Context, d time.Duration) (UnitCost, error) {
	begin := perfevent.MonotonicNow()
	first, err := u.count()
	if err != nil {
		return UnitCost{}, err
	}
	var last uint64
	for range patientWindows {
		if err := sleep(ctx, d); err != nil {
			return UnitCost{}, err
		}
		if last, err = u.count(); err != nil {
			return UnitCost{}, err
		}
		if last-first > leastUnits+2 {
			break
		}
	}
	end := perfevent.MonotonicNow()
	// The last one may still be on its way to memory.
	n := min(int(last-first), unitEntries) - 1
	var cpu, wall, count, before uint64
	for i := first; i < first+uint64(max(n, 0)); i++ {
		at, spent, err := u.entry(i)
		if err != nil {
			return UnitCost{}, err
		}
		if before >= uint64(begin) && at <= uint64(end) {
			cpu += spent
			wall += at - before
			count++
		}
		before = at
	}
	if count < leastUnits {
		return UnitCost{}, errFewUnits
	}
	return UnitCost{float64(cpu) / float64(count), float64(wall) / float64(count)}, nil
}

func (u *UnitLog) count() (uint64, error) {
	var word [8]byte
	if _, err := u.file.ReadAt(word[:], 0); err != nil {
		return 0, fmt.Errorf("read the log of units: %w", err)
	}
	return binary.NativeEndian.Uint64(word[:]), nil
}

func (u *UnitLog) entry(i uint64) (endNs, spentNs uint64, err error) {
	var e [unitEntrySize]byte
	if _, err := u.file.ReadAt(e[:], unitHeaderSize+int64(i%unitEntries)*unitEntrySize); err != nil {
		return 0, 0, fmt.Errorf("read the log of units: %w", err)
	}
	return binary.NativeEndian.Uint64(e[0:]), binary.NativeEndian.Uint64(e[8:]), nil
}
