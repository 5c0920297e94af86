// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MonotonicNow is CLOCK_MONOTONIC in nanoseconds: the clock of all events.
func MonotonicNow() int64 { return now(unix.CLOCK_MONOTONIC) }

func now(clock int32) int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		// Every Linux has both clocks; only a wrong number gets here.
		panic(fmt.Sprintf("clock_gettime(%d): %v", clock, err))
	}
	return ts.Nano()
}

// RealtimeOffset is CLOCK_REALTIME minus CLOCK_MONOTONIC in nanoseconds, and how
// far the truth may be from it. It changes when the wall clock is set: take it
// at both ends of a recording.
func RealtimeOffset() (offset, uncertainty int64) {
	uncertainty = math.MaxInt64
	// The tightest of a few tries: an interrupt between the readings only
	// widens one.
	for range 10 {
		before := now(unix.CLOCK_MONOTONIC)
		wall := now(unix.CLOCK_REALTIME)
		after := now(unix.CLOCK_MONOTONIC)
		if half := (after-before)/2 + 1; half < uncertainty {
			offset, uncertainty = wall-before-(after-before)/2, half
		}
	}
	return offset, uncertainty
}

// ClockSource names the hardware clock the kernel reads, such as "tsc"; empty if
// the kernel does not tell.
func ClockSource() string {
	text, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// readSysctl reads a number below /proc/sys.
func readSysctl(name string) (int64, error) {
	text, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(name, ".", "/"))
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
