// SPDX-License-Identifier: Apache-2.0

package recording

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
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

// A pipe in place of a stream does not stop the reader.
func TestPipe(t *testing.T) {
	for _, name := range []string{"samples.arrow", "events-cpu1.arrow", "index.arrow"} {
		dir, _ := finished(t, "x", 64, 20)
		check(t, unix.Unlink(filepath.Join(dir, name)))
		check(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
		r := openDir(t, dir)
		collect(t, r.Events())
		if text := strings.Join(r.Warnings(), "\n"); !strings.Contains(text, "not a regular file") {
			t.Errorf("%s: got warnings %q", name, text)
		}
	}
	dir, _ := finished(t, "x", 64, 20)
	check(t, unix.Unlink(filepath.Join(dir, metaName)))
	check(t, unix.Mkfifo(filepath.Join(dir, metaName), 0o600))
	if _, err := Open(dir); err == nil {
		t.Error("meta.json is a pipe: got no error")
	}
}

// On a full disk, a meta.json that has no room loses what can be missed.
func TestDiskFullLongMeta(t *testing.T) {
	perftest.Require(t, perftest.Root)
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("mount a small file system: %v", err)
	}
	defer unix.Unmount(mount, unix.MNT_DETACH)
	dir := filepath.Join(mount, "x")
	out, err := Create(dir, Meta{Format: FormatVersion, BeginNs: 1}, Options{})
	check(t, err)
	check(t, out.Event(sched.Event{Time: 50, Kind: sched.KindSwitch}))
	check(t, out.Flush())
	fill, err := os.Create(filepath.Join(mount, "fill"))
	check(t, err)
	for err == nil {
		_, err = fill.Write(make([]byte, 4096))
	}
	check(t, fill.Close())
	m := Meta{Format: FormatVersion, BeginNs: 1, EndNs: 1 << 40, Stopped: "disk full", Loss: Loss{Events: 5}}
	for i := range 3000 {
		m.Targets = append(m.Targets, Target{PID: int32(i), Command: []string{"python3", "app.py"}})
		m.LossPerCPU = append(m.LossPerCPU, Loss{Events: 1})
	}
	out.Close(m) // may find room for its end marks
	r := openDir(t, dir)
	got := r.Meta()
	if got.Stopped != "disk full" || got.Loss.Events != 5 || len(got.Targets) != 100 || got.LossPerCPU != nil {
		t.Errorf("got stopped %q, loss %+v, %d targets", got.Stopped, got.Loss, len(got.Targets))
	}
	if text := strings.Join(r.Warnings(), "\n"); !strings.Contains(text, "without the loss per CPU") {
		t.Errorf("got warnings %q", text)
	}
}
