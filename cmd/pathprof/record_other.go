// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"errors"
	"fmt"

	"pathprof/perfevent"
)

func probe() []perfevent.Feature { return perfevent.Probe() }

// record needs Linux; everything else works on any system.
func record(context.Context, recordOptions) (summary, error) {
	return summary{}, fmt.Errorf("recording needs Linux; recordings are analysed here: %w", errors.ErrUnsupported)
}
