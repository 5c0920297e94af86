// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// gatherEvery is how often the rings are emptied: in that time 8 MiB do not fill.
const gatherEvery = 10 * time.Millisecond

// gather empties the rings in a thread of its own until stop is called, which
// says what went wrong.
func (s *session) gather() (stop func() error) {
	// One processor of Go's more, so that this thread finds one when it wakes.
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + 1)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		hurryMost()
		for ctx.Err() == nil {
			if err := s.capture.Gather(); err != nil {
				done <- err
				return
			}
			// Not Go's timers: they fire in whichever thread gets a CPU, on busy
			// ones hundreds of milliseconds late. A signal may end it early.
			t := unix.NsecToTimespec(gatherEvery.Nanoseconds())
			_ = unix.Nanosleep(&t, nil)
		}
		done <- nil
	}()
	return sync.OnceValue(func() error {
		cancel()
		runtime.GOMAXPROCS(procs)
		return <-done
	})
}

// hurried is the nice value of threads that have little to do, but soon.
const hurried = -10

// hurry binds the goroutine to its thread and lets that go before others, until
// undo; where there is no right to it, it goes with them.
func hurry() (undo func()) {
	runtime.LockOSThread()
	before, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	if err != nil || unix.Setpriority(unix.PRIO_PROCESS, 0, hurried) != nil {
		return runtime.UnlockOSThread
	}
	before = 20 - before // the system call's own form
	return func() {
		if unix.Setpriority(unix.PRIO_PROCESS, 0, before) == nil {
			runtime.UnlockOSThread() // else the thread ends with its goroutine
		}
	}
}

// hurryMost is hurry with a real-time priority, like perf record --realtime, for
// what never takes long. The kernel keeps a share of each CPU for others
// (sched_rt_runtime_us).
func hurryMost() {
	hurry() // for good
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	_ = unix.SchedSetAttr(0, &attr, 0)
}

// laziness is by how much the timers of Go's monitor may be late.
const laziness = time.Millisecond

// calmMonitor lets the timers of Go's monitor thread be late. While a thread sleeps in a
// system call, the monitor looks for it every 20 µs (sysmon and retake in
// runtime/proc.go), which took a third of the recorder's time. It is the first thread
// that the runtime starts, and threads are listed as they started. Without
// CAP_SYS_NICE nothing changes.
func calmMonitor() {
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return
	}
	defer tasks.Close()
	if threads, err := tasks.Readdirnames(2); err == nil && len(threads) == 2 {
		// Every thread has this file under its number in /proc, not below its process.
		_ = os.WriteFile("/proc/"+threads[1]+"/timerslack_ns", strconv.AppendInt(nil, laziness.Nanoseconds(), 10), 0)
	}
}
