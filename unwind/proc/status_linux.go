// SPDX-License-Identifier: Apache-2.0

package proc

import "os"

// ProcessOf returns the process that a thread belongs to: its Tgid.
func ProcessOf(tid int) (int, error) { return statusField(tid, "Tgid") }

// InnerTID returns the number by which a thread knows itself, in the innermost
// pid namespace it lives in; that is what gettid() gave it.
func InnerTID(tid int) (int, error) { return statusField(tid, "NSpid") }

// statusField reads a field of any thread: /proc knows threads by number, too,
// though it does not list them.
func statusField(tid int, field string) (int, error) {
	text, err := os.ReadFile(path(tid, "status"))
	if err != nil {
		return 0, gone(err)
	}
	return parseLast(text, field)
}
