// SPDX-License-Identifier: Apache-2.0

// Package perftest is for tests only: it says what a test needs from the
// machine, finds Python interpreters and runs Python programs.
//
// A test declares its needs with [Require]. What is unmet skips the test and
// names the requirement, so that an unprivileged run on a laptop is green and
// honest. A machine that is meant to have everything sets
//
//	PATHPROF_REQUIRE=all
//
// and an unmet need fails the test: a test that can never run must not look
// like one that passes. A hardware PMU is left out of "all", because most
// virtual machines have none and nothing can be installed to change that; a
// machine that has one says PATHPROF_REQUIRE=all,hardware.
//
// [Main] is a TestMain body that fails a package whose tests leave file
// descriptors open.
package perftest
