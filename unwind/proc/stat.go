// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"fmt"
	"strconv"
)

// Task is one thread as /proc/PID/task/TID/stat shows it.
type Task struct {
	PID, TID int
	Comm     string
	// State letter: R running or runnable, S, D, I sleeping, T, t stopped, Z, X dead.
	State byte
	PPID  int // parent process
	// StartTime is CLOCK_MONOTONIC nanoseconds, negative before its zero, to the
	// precision of a clock tick (10 ms).
	StartTime int64
	// Kernel: a kernel thread (PF_KTHREAD, include/linux/sched.h).
	Kernel bool
}

const flagKthread = 0x00200000

// ticksPerSecond is USER_HZ, which is 100 on every processor Go runs on.
const ticksPerSecond = 100

// parseStat reads the text of a stat file (fs/proc/array.c, do_task_stat).
// StartTime is left in CLOCK_BOOTTIME nanoseconds.
func parseStat(text []byte) (t Task, err error) {
	open, end := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || end < open {
		return t, fmt.Errorf("stat %q: malformed", text)
	}
	t.Comm = string(text[open+1 : end])
	if t.TID, err = strconv.Atoi(string(bytes.TrimSpace(text[:open]))); err != nil {
		return t, fmt.Errorf("stat: %w", err)
	}
	// After the name: state is field 3, ppid 4, flags 9, starttime 22.
	f := bytes.Fields(text[end+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return t, fmt.Errorf("stat %q: malformed", text)
	}
	t.State = f[0][0]
	if t.PPID, err = strconv.Atoi(string(f[1])); err != nil {
		return t, fmt.Errorf("stat: %w", err)
	}
	flags, err := strconv.ParseUint(string(f[6]), 10, 32)
	if err != nil {
		return t, fmt.Errorf("stat: %w", err)
	}
	t.Kernel = flags&flagKthread != 0
	ticks, err := strconv.ParseInt(string(f[19]), 10, 64)
	if err != nil || ticks < 0 || ticks > 1<<53 {
		return t, fmt.Errorf("stat %q: malformed start time", text)
	}
	t.StartTime = ticks * (1e9 / ticksPerSecond)
	return t, nil
}

func parseSwitches(text []byte) (sum uint64, err error) {
	found := 0
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if !bytes.HasSuffix(name, []byte("voluntary_ctxt_switches")) {
			continue
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("count of switches: %w", err)
		}
		sum += n
		found++
	}
	if found != 2 {
		return 0, fmt.Errorf("%d counts of switches, want 2", found)
	}
	return sum, nil
}

// parseLast returns the last number in a field of a status file: the one of the
// innermost namespace where there are several (fs/proc/array.c, task_state).
func parseLast(text []byte, field string) (int, error) {
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if string(name) != field {
			continue
		}
		numbers := bytes.Fields(value)
		if len(numbers) == 0 {
			break
		}
		n, err := strconv.Atoi(string(numbers[len(numbers)-1]))
		if err != nil {
			return 0, fmt.Errorf("status field %s: %w", field, err)
		}
		return n, nil
	}
	return 0, fmt.Errorf("status field %s: missing", field)
}
