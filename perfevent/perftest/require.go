// SPDX-License-Identifier: Apache-2.0

package perftest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// RequireEnv names the environment variable that turns skips into failures.
// It holds a comma-separated list of "all" and "hardware".
const RequireEnv = "PATHPROF_REQUIRE"

// Need is one requirement of a test.
type Need struct {
	name     string
	probe    func() error // nil: met; else what is missing
	hardware bool         // not installable, so not part of "all"
}

// String is the name of the need.
func (n Need) String() string { return n.name }

// Unmet returns nil if the machine meets the need, else what is missing.
func (n Need) Unmet() error {
	if n.probe == nil {
		return fmt.Errorf("need %q cannot be probed", n.name)
	}
	return n.probe()
}

// The needs that are the machine's. Each is probed once in a test process.
var (
	// Root: the effective user is root.
	Root = newNeed("root", probeRoot)
	// BPF: a BPF program can be loaded, and the kernel carries its BTF.
	BPF = newNeed("BPF", probeBPF)
	// PerfEvents: a cpu-clock counter for all tasks of a CPU can be opened.
	PerfEvents = newNeed("perf events", probePerfEvents)
	// Tracefs: the list of the kernel's tracepoints can be read.
	Tracefs = newNeed("tracefs", probeTracefs)
	// HardwarePMU: the processor's cycle counter can be opened.
	HardwarePMU = Need{name: "hardware PMU", probe: sync.OnceValue(probeHardware), hardware: true}
)

func newNeed(name string, probe func() error) Need {
	return Need{name: name, probe: sync.OnceValue(probe)}
}

// Tool needs an executable of this name in PATH.
func Tool(name string) Need {
	return Need{name: "tool " + name, probe: func() error {
		_, err := exec.LookPath(name)
		return err
	}}
}

// Python needs an interpreter of a minor version, such as "3.11".
func Python(version string) Need {
	return Need{name: "Python " + version, probe: func() error {
		_, err := findPython(version)
		return err
	}}
}

// Require skips the test unless all needs are met, and says which is not. With
// PATHPROF_REQUIRE=all it fails the test instead.
func Require(t testing.TB, needs ...Need) {
	t.Helper()
	for _, n := range needs {
		err := n.Unmet()
		if err == nil {
			continue
		}
		fail, note := verdict(n, os.Getenv(RequireEnv))
		if fail {
			t.Fatalf("%s demands %s: %v", RequireEnv, n, err)
		}
		t.Skipf("needs %s: %v%s", n, err, note)
	}
}

// verdict decides whether an unmet need fails the test, and what to add to the
// message of a skip.
func verdict(n Need, require string) (fail bool, note string) {
	asked := make(map[string]bool)
	for word := range strings.SplitSeq(require, ",") {
		asked[strings.TrimSpace(word)] = true
	}
	if n.hardware {
		if !asked["hardware"] && asked["all"] {
			note = " (" + RequireEnv + "=all leaves hardware out)"
		}
		return asked["hardware"], note
	}
	return asked["all"], ""
}
