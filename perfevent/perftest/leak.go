// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"
)

// Main is the body of a TestMain: it runs the tests and makes the run fail if
// they leave more file descriptors or goroutines behind than they found.
func Main(m *testing.M) {
	os.Exit(checkLeaks(m.Run, 3*time.Second))
}

// checkLeaks runs the tests and waits so long for what is ending.
func checkLeaks(run func() int, wait time.Duration) int {
	// The runtime opens its poller with the first pipe and keeps it.
	if r, w, err := os.Pipe(); err == nil {
		r.Close()
		w.Close()
	}
	// So does package os/signal with its goroutine.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	signal.Stop(signals)
	before, goroutines := openFiles(), runtime.NumGoroutine()
	status := run()
	if status != 0 || fuzzing() {
		return status // a failed test may leave anything behind
	}
	deadline := time.Now().Add(wait)
	for {
		leaked := leakedFiles(before, openFiles())
		extra := runtime.NumGoroutine() - goroutines
		if len(leaked) == 0 && extra <= 0 {
			return 0
		}
		if time.Now().After(deadline) {
			report(leaked, extra)
			return 1
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// fuzzing tells that package testing was fuzzing, whose workers end in their own
// time. Flags are parsed by m.Run.
func fuzzing() bool {
	f := flag.Lookup("test.fuzz")
	return f != nil && f.Value.String() != ""
}

func report(leaked []string, goroutines int) {
	for _, name := range leaked {
		fmt.Fprintln(os.Stderr, "leaked file descriptor:", name)
	}
	if goroutines > 0 {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		fmt.Fprintf(os.Stderr, "leaked %d goroutines:\n%s\n", goroutines, stacks)
	}
}

// openFiles maps the open descriptors to what they point at. It is empty where
// there is no /proc, and then nothing is checked.
func openFiles() map[string]string {
	files := make(map[string]string)
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return files
	}
	for _, e := range entries {
		// The descriptor of this listing is closed by now: no link.
		if target, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			files[e.Name()] = target
		}
	}
	return files
}

func leakedFiles(before, after map[string]string) []string {
	var leaked []string
	for _, fd := range slices.Sorted(maps.Keys(after)) {
		if before[fd] != after[fd] {
			leaked = append(leaked, fd+" -> "+after[fd])
		}
	}
	return leaked
}
