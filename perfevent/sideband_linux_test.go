// SPDX-License-Identifier: Apache-2.0

package perfevent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pathprof/perfevent"
	"pathprof/perfevent/perftest"
)

// patience bounds waits that a broken stream would make endless.
const patience = 30 * time.Second

func openSideBand(t *testing.T, cfg perfevent.SideBandConfig) *perfevent.SideBand {
	t.Helper()
	s, err := perfevent.OpenSideBand(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// collect reads until it has seen the exit of a process's main thread and
// returns the records of that process.
func collect(t *testing.T, s *perfevent.SideBand, pid int32) []perfevent.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var seen []perfevent.Record
	for {
		rec, err := s.Read(ctx)
		if err != nil {
			t.Fatalf("after %d records: %v", len(seen), err)
		}
		if rec.PID != pid || rec.Kind == perfevent.KindLost {
			continue
		}
		seen = append(seen, rec)
		if rec.Kind == perfevent.KindExit && rec.TID == pid {
			return seen
		}
	}
}

func TestSideBand(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents, perftest.Tool("true"))
	path, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		t.Fatal(err)
	}
	s := openSideBand(t, perfevent.SideBandConfig{})
	begin := perfevent.MonotonicNow()
	cmd := exec.Command(path)
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	end := perfevent.MonotonicNow()

	var forked, mapped, named, exited bool
	for _, r := range collect(t, s, int32(cmd.Process.Pid)) {
		if r.Time < begin || r.Time > end {
			t.Errorf("%v at %d, outside %d to %d", r.Kind, r.Time, begin, end)
		}
		switch r.Kind {
		case perfevent.KindFork:
			forked = true
			if r.PPID != int32(os.Getpid()) || r.IsThread() {
				t.Errorf("fork: got parent %d, thread %v, want parent %d", r.PPID, r.IsThread(), os.Getpid())
			}
		case perfevent.KindComm:
			named = named || r.Exec && r.Name == filepath.Base(path)
		case perfevent.KindMmap:
			const protExec = 4
			mapped = mapped || r.Name == path && r.Prot&protExec != 0 && r.Len > 0 && r.Addr > 0
		case perfevent.KindExit:
			exited = true
		}
	}
	for name, ok := range map[string]bool{"fork": forked, "comm": named, "mmap": mapped, "exit": exited} {
		if !ok {
			t.Errorf("no %s record", name)
		}
	}
	if got := s.Stats(); got != (perfevent.SideBandStats{}) {
		t.Errorf("losses: got %+v, want none", got)
	}
}

// Threads of Python are seen as threads, and its libraries as mappings.
func TestSideBandPython(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	var python string
	for _, python = range perftest.Pythons(t) {
		break
	}
	s := openSideBand(t, perfevent.SideBandConfig{})
	c := perftest.StartSource(t, python, "threads", `
import threading, sys
ts = [threading.Thread(target=lambda: None) for _ in range(5)]
for t in ts: t.start()
for t in ts: t.join()
print("ready")
`)
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	threads, interpreter := 0, false
	for _, r := range collect(t, s, int32(c.PID)) {
		if r.IsThread() {
			threads++
		}
		if r.Kind == perfevent.KindMmap && strings.Contains(filepath.Base(r.Name), "python") {
			interpreter = true
		}
	}
	if threads != 5 || !interpreter {
		t.Errorf("got %d threads, interpreter mapped %v; want 5 and true", threads, interpreter)
	}
}

// A burst of processes on all CPUs is complete, whoever reads late.
func TestSideBandBurst(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents, perftest.Tool("true"))
	s := openSideBand(t, perfevent.SideBandConfig{})
	const processes = 200
	pids := make(map[int32]bool)
	for range processes {
		cmd := exec.Command("true")
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		pids[int32(cmd.Process.Pid)] = true
	}
	var rec perfevent.Record
	last, swapped := int64(0), 0
	for s.TryRead(&rec) {
		// What is read late is all there, so it must be in order. Other
		// programs' events may race with the reading: not by as much.
		if rec.Time < last-1e6 {
			swapped++
		}
		last = max(last, rec.Time)
		if rec.Kind == perfevent.KindExit && rec.PID == rec.TID {
			delete(pids, rec.PID)
		}
	}
	if swapped != 0 {
		t.Errorf("%d records out of order", swapped)
	}
	if stats := s.Stats(); len(pids) != 0 && stats.Lost == 0 {
		t.Errorf("%d exits missing, %+v", len(pids), stats)
	}
}

// What a small ring cannot hold is counted.
func TestSideBandLost(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents, perftest.Tool("true"))
	s := openSideBand(t, perfevent.SideBandConfig{RingBytes: os.Getpagesize()})
	var rec perfevent.Record
	read := uint64(0)
	// The kernel tells about losses with the next record that fits, on the
	// same CPU.
	for range 20 {
		for range 60 {
			if err := exec.Command("true").Run(); err != nil {
				t.Fatal(err)
			}
		}
		for s.TryRead(&rec) {
			read++
		}
		if s.Stats().Lost > 100 {
			break
		}
	}
	t.Logf("read %d, %+v", read, s.Stats())
	if s.Stats().Lost <= 100 {
		t.Error("hardly anything lost in a ring of one page")
	}
}

func TestSideBandClose(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	for i := range 20 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			s := openSideBand(t, perfevent.SideBandConfig{})
			var wg sync.WaitGroup
			wg.Go(func() {
				var rec perfevent.Record
				for {
					err := s.ReadInto(context.Background(), &rec)
					if errors.Is(err, os.ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
			for range i {
				runtime.Gosched()
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			wg.Wait()
			if _, err := s.Read(t.Context()); !errors.Is(err, os.ErrClosed) {
				t.Errorf("read after Close: got %v, want %v", err, os.ErrClosed)
			}
		})
	}
}

func TestSideBandContext(t *testing.T) {
	perftest.Require(t, perftest.PerfEvents)
	s := openSideBand(t, perfevent.SideBandConfig{})
	until := func(ctx context.Context) error {
		for {
			if _, err := s.Read(ctx); err != nil {
				return err
			}
		}
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if err := until(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
		}
		cancel()
	}
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	if err := until(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	// The stream still works.
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatal(fmt.Errorf("%w: %s", err, out))
	}
	collect(t, s, int32(cmd.Process.Pid))
}

func TestSideBandConfig(t *testing.T) {
	for _, size := range []int{-1, 3, 12 << 10} {
		if _, err := perfevent.OpenSideBand(perfevent.SideBandConfig{RingBytes: size}); err == nil {
			t.Errorf("ring of %d bytes: got no error", size)
		}
	}
}
