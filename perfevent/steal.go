// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// userHz is the unit of /proc/stat on every architecture here
// (USER_HZ in include/asm-generic/param.h).
const userHz = 100

// parseSteal reads the time that the host of a virtual machine took from all its
// CPUs from a /proc/stat: the eighth number of the line "cpu" (fs/proc/stat.c).
func parseSteal(stat io.Reader) (time.Duration, error) {
	for lines := bufio.NewScanner(stat); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 9 || f[0] != "cpu" {
			continue
		}
		ticks, err := strconv.ParseInt(f[8], 10, 64)
		if err != nil || ticks < 0 || ticks > int64(1<<62)/int64(time.Second/userHz) {
			return 0, fmt.Errorf("stolen time %q: no number of ticks", f[8])
		}
		return time.Duration(ticks) * (time.Second / userHz), nil
	}
	return 0, errors.New("no line cpu with stolen time")
}
