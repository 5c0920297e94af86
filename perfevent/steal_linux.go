// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"fmt"
	"os"
	"time"
)

// StolenTime returns what the host of a virtual machine has taken from its CPUs
// since boot, all together, while tasks wanted to run; in steps of 10 ms. It is
// zero on a machine of its own, and on hosts that do not tell.
func StolenTime() (time.Duration, error) {
	f, err := os.Open("/proc/stat")
	if err != nil {
		return 0, fmt.Errorf("stolen time: %w", err)
	}
	defer f.Close()
	return parseSteal(f)
}
