// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// path is a file of a process.
func path(pid int, name string) string { return "/proc/" + strconv.Itoa(pid) + "/" + name }

// Stat reads one thread of a process.
func Stat(pid, tid int) (Task, error) {
	t, err := stat(pid, tid)
	t.StartTime -= sleptNanos()
	return t, err
}

func stat(pid, tid int) (Task, error) {
	text, err := os.ReadFile(path(pid, "task/"+strconv.Itoa(tid)+"/stat"))
	if err != nil {
		return Task{}, gone(err)
	}
	t, err := parseStat(text)
	t.PID = pid
	return t, err
}

// sleptNanos is CLOCK_BOOTTIME minus CLOCK_MONOTONIC.
func sleptNanos() int64 {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil {
		return 0
	}
	slept := boot.Nano() - mono.Nano()
	if slept < 1e6 {
		return 0 // the machine never slept: the difference is the two calls'
	}
	return slept
}

// Tasks lists the threads of a process.
func Tasks(pid int) ([]int, error) { return numbers(path(pid, "task")) }

// Processes lists the processes of this pid namespace.
func Processes() ([]int, error) { return numbers("/proc") }

// numbers lists the entries of a folder that are numbers.
func numbers(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, gone(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, gone(err)
	}
	var list []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			list = append(list, n)
		}
	}
	return list, nil
}

// AllTasks reads every thread of every process. One that vanishes meanwhile
// yields an error with its numbers set.
func AllTasks() iter.Seq2[Task, error] {
	return func(yield func(Task, error) bool) {
		pids, err := Processes()
		if err != nil {
			yield(Task{}, err)
			return
		}
		slept := sleptNanos()
		for _, pid := range pids {
			tids, err := Tasks(pid)
			if err != nil {
				if !yield(Task{PID: pid}, err) {
					return
				}
				continue
			}
			for _, tid := range tids {
				t, err := stat(pid, tid)
				t.PID, t.TID, t.StartTime = pid, tid, t.StartTime-slept
				if !yield(t, err) {
					return
				}
			}
		}
	}
}

// Cmdline is the command line of a process; empty for a kernel thread.
func Cmdline(pid int) ([]string, error) {
	text, err := os.ReadFile(path(pid, "cmdline"))
	if err != nil {
		return nil, gone(err)
	}
	var args []string
	for _, a := range bytes.Split(bytes.TrimSuffix(text, []byte{0}), []byte{0}) {
		if len(text) > 0 {
			args = append(args, string(a))
		}
	}
	return args, nil
}

// Switches counts how often a thread has left a CPU, of its own will or not.
func Switches(pid, tid int) (uint64, error) {
	text, err := os.ReadFile(path(pid, "task/"+strconv.Itoa(tid)+"/status"))
	if err != nil {
		return 0, gone(err)
	}
	return parseSwitches(text)
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

// WorkingDir is the current folder of a process.
func WorkingDir(pid int) (string, error) { return os.Readlink(path(pid, "cwd")) }
