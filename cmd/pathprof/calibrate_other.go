// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"

	"pathprof/calibrate"
)

// runCalibration needs Linux, as recording does.
func runCalibration(context.Context, calibration) (calibrate.Result, error) {
	return calibrate.Result{}, fmt.Errorf("calibration needs Linux: %w", errors.ErrUnsupported)
}

// readMachine knows nothing where nothing can be recorded.
func readMachine() calibrate.Machine { return calibrate.Machine{} }
