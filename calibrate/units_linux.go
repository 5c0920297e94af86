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

// units is the running workload units.py.
type units struct {
	*program
	file *os.File
}

// startUnits runs it at a depth.
func (b *bench) startUnits(ctx context.Context, depth int) (*units, error) {
	path := filepath.Join(b.dir, "units.log")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	u := &units{file: f}
	if err := f.Truncate(unitHeaderSize + unitEntries*unitEntrySize); err != nil {
		f.Close()
		return nil, fmt.Errorf("make the log of units: %w", err)
	}
	if err := u.setDepth(depth); err != nil {
		f.Close()
		return nil, err
	}
	// It ends by itself, should nobody be left to end it.
	if u.program, err = b.start(ctx, "units.py", path, strconv.Itoa(600)); err != nil {
		f.Close()
		return nil, err
	}
	return u, nil
}

func (u *units) close() {
	u.stop()
	u.file.Close()
}

// setDepth changes the depth from the next unit on.
func (u *units) setDepth(depth int) error {
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], uint64(depth))
	if _, err := u.file.WriteAt(word[:], 8); err != nil {
		return fmt.Errorf("set the depth: %w", err)
	}
	return nil
}

// errFewUnits: the program got next to no CPU in a window.
var errFewUnits = errors.New("the program hardly ran")

// window waits and returns the mean CPU time, ns, of the units that began and
// ended meanwhile.
// It waits longer if they are too few.
func (u *units) window(ctx context.Context, d time.Duration) (float64, error) {
	begin := perfevent.MonotonicNow()
	first, err := u.count()
	if err != nil {
		return 0, err
	}
	var last uint64
	for range patientWindows {
		if err := sleep(ctx, d); err != nil {
			return 0, err
		}
		if last, err = u.count(); err != nil {
			return 0, err
		}
		if last-first > leastUnits+2 {
			break
		}
	}
	end := perfevent.MonotonicNow()
	// The last one may still be on its way to memory.
	n := min(int(last-first), unitEntries) - 1
	var sum, count, before uint64
	for i := first; i < first+uint64(max(n, 0)); i++ {
		at, spent, err := u.entry(i)
		if err != nil {
			return 0, err
		}
		if before >= uint64(begin) && at <= uint64(end) {
			sum += spent
			count++
		}
		before = at
	}
	if count < leastUnits {
		return 0, errFewUnits
	}
	return float64(sum) / float64(count), nil
}

func (u *units) count() (uint64, error) {
	var word [8]byte
	if _, err := u.file.ReadAt(word[:], 0); err != nil {
		return 0, fmt.Errorf("read the log of units: %w", err)
	}
	return binary.NativeEndian.Uint64(word[:]), nil
}

func (u *units) entry(i uint64) (endNs, spentNs uint64, err error) {
	var e [unitEntrySize]byte
	if _, err := u.file.ReadAt(e[:], unitHeaderSize+int64(i%unitEntries)*unitEntrySize); err != nil {
		return 0, 0, fmt.Errorf("read the log of units: %w", err)
	}
	return binary.NativeEndian.Uint64(e[0:]), binary.NativeEndian.Uint64(e[8:]), nil
}
