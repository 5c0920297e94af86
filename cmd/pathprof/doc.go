// SPDX-License-Identifier: Apache-2.0

// Pathprof tells why a stretch of a Python program's time was slow: which tasks
// the time really passed through, why each wait ended when it did, and which
// lines of code ran meanwhile.
//
// This folder wires flags to packages; it is the only place that prints, logs
// and exits. Each command has a file of its own and is a function from flags to
// output, so that tests run it without a process.
//
// # Exit status
//
// 0: done. 1: not done, and one line on standard error says why. 2: the command
// line itself is wrong. A reader that closes the pipe early (head) is no error.
package main
