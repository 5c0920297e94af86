// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package perfevent

import "runtime"

// Probe says that recording works on Linux only.
func Probe() []Feature {
	return []Feature{{
		Name:   "Linux",
		Mode:   ModeRecord,
		Detail: "this is " + runtime.GOOS,
		Hint:   "record on Linux; recordings are read anywhere",
	}}
}

// CheckRecord returns a [*FeatureError]: recording works on Linux only.
func CheckRecord() error { return blocking(Probe()) }
