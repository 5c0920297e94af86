// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package perftest

import "errors"

var errNotLinux = errors.New("this is not Linux")

func probeRoot() error       { return errNotLinux }
func probeBPF() error        { return errNotLinux }
func probePerfEvents() error { return errNotLinux }
func probeHardware() error   { return errNotLinux }
func probeTracefs() error    { return errNotLinux }
