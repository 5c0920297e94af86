// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// MinKernel is the oldest kernel that recording works on: the first that lets
// programs of counters use hash maps that are not preallocated (96da3f7d489d).
const MinKernel = "6.1"

// Mode says what a feature is needed for.
type Mode string

// The modes. Only a missing feature of ModeRecord keeps one from recording.
const (
	ModeRecord   Mode = "record"
	ModeCauses   Mode = "causes of waits"
	ModeHardware Mode = "hardware events"
	ModePython   Mode = "Python names of others' processes"
	ModeKernel   Mode = "kernel function names"
	ModeRate     Mode = "high sampling rates"
	ModeFallback Mode = "kernels without BTF tracepoints"
	ModeDemo     Mode = "demo"
)

// Feature is what one probe found out about the machine.
type Feature struct {
	// Name of the feature, a noun phrase.
	Name string
	// Mode it is needed for.
	Mode Mode
	// OK: the feature is there.
	OK bool
	// Detail of what was found: a version, a value, an error.
	Detail string
	// Hint is the sysctl, capability or flag that would help; empty if OK, or if none would.
	Hint string
	// MinKernel is set if the feature needs a newer kernel.
	MinKernel string
}

// blocking returns the error of the first feature recording cannot do without.
func blocking(features []Feature) error {
	for _, f := range features {
		if f.OK || f.Mode != ModeRecord {
			continue
		}
		err := &FeatureError{Feature: "recording", MinKernel: f.MinKernel, Hint: f.Hint}
		if f.Detail != "" {
			err.Err = errors.New(f.Detail)
		}
		return err
	}
	return nil
}

// Numbers of capabilities, from include/uapi/linux/capability.h.
const (
	capIPCLock   = 14
	capSysPtrace = 19
	capSysAdmin  = 21
	capPerfmon   = 38
	capBPF       = 39
)

// capSet is a set of capabilities as /proc/PID/status shows it.
type capSet uint64

// has tells whether the set holds a capability, or the one that was split into
// it and others in Linux 5.8.
func (c capSet) has(number uint) bool {
	if c&(1<<number) != 0 {
		return true
	}
	return (number == capBPF || number == capPerfmon) && c&(1<<capSysAdmin) != 0
}

// parseEffective finds the effective capabilities in a /proc/PID/status.
func parseEffective(status []byte) (capSet, error) {
	for s := bufio.NewScanner(bytes.NewReader(status)); s.Scan(); {
		hex, ok := strings.CutPrefix(s.Text(), "CapEff:")
		if !ok {
			continue
		}
		set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
		if err != nil {
			return 0, fmt.Errorf("effective capabilities: %w", err)
		}
		return capSet(set), nil
	}
	return 0, errors.New("no line CapEff")
}

// parseRelease reads the version at the head of a kernel's release, such as
// "5.15.0-91-generic".
func parseRelease(release string) (major, minor int, err error) {
	first, rest, ok := strings.Cut(release, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(rest)
	}
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(rest[:end])
	if !ok || err1 != nil || err2 != nil {
		return 0, 0, fmt.Errorf("kernel release %q: no version", release)
	}
	return major, minor, nil
}

// atLeast compares a release with a version such as "5.15".
func atLeast(release, version string) (bool, error) {
	major, minor, err := parseRelease(release)
	if err != nil {
		return false, err
	}
	wantMajor, wantMinor, err := parseRelease(version)
	if err != nil {
		return false, err
	}
	return major > wantMajor || major == wantMajor && minor >= wantMinor, nil
}

// parseChoice finds the chosen word in a file such as "none [integrity]".
func parseChoice(text string) (word string, ok bool) {
	_, rest, ok1 := strings.Cut(text, "[")
	word, _, ok2 := strings.Cut(rest, "]")
	return word, ok1 && ok2 && word != ""
}
