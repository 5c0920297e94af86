// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

func TestDiskFull(t *testing.T) {
	perftest.Require(t, perftest.Root)
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH)
	dir := filepath.Join(mount, "x.pathprof")
	out, err := Create(dir, Meta{Format: FormatVersion, BeginNs: 1}, Options{RowsPerBatch: 500})
	check(t, err)
	rng := rand.New(rand.NewPCG(6, 6))
	n := int64(0)
	for ; err == nil && n < 1<<20; n++ {
		err = out.Event(sched.Event{Time: n, Count: rng.Int64(), Kind: sched.KindSwitch})
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("after %d events: got %v, want ENOSPC", n, err)
	}
	if err := out.Close(Meta{Format: FormatVersion, BeginNs: 1, EndNs: n, Stopped: "disk full"}); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("close: got %v", err)
	}
	r := openDir(t, dir)
	if m := r.Meta(); m.Complete || m.Stopped != "disk full" {
		t.Errorf("got complete %v, stopped %q", m.Complete, m.Stopped)
	}
	got := int64(len(collect(t, r.Events())))
	if got == 0 || got%500 != 0 || got > n {
		t.Errorf("%d of %d events", got, n)
	}
}
