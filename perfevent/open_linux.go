// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/elastic/go-perf"
	"golang.org/x/sys/unix"
)

const devicesDir = "/sys/bus/event_source/devices"

// OnlineCPUs lists the CPUs that run tasks now.
func OnlineCPUs() ([]int, error) {
	const path = "/sys/devices/system/cpu/online"
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	cpus, err := parseCPUList(string(text))
	if err == nil && len(cpus) == 0 {
		err = errors.New("empty list")
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return cpus, nil
}

// precise encodes precise_ip for go-perf, whose Options.marshal tests the
// upper of the two bits with 0x10 where 2 is meant.
func precise(level int) perf.Skid { return perf.Skid(level&1 | level>>1&1<<4) }

// openOn opens an event for all tasks of a CPU.
func openOn(cpu int, attr *perf.Attr) (*perf.Event, error) {
	ev, err := perf.Open(attr, perf.AllThreads, cpu, nil)
	if err == nil || attr.Type != typeHardware || !isRefused(err) {
		return ev, err
	}
	// Processors with unlike cores have a PMU for each sort, and a general
	// hardware event means the first one's unless the upper half of config
	// says which (PERF_PMU_TYPE_SHIFT in include/uapi/linux/perf_event.h).
	pmu, ok := corePMU(devicesDir, cpu)
	if !ok {
		return nil, err
	}
	own := *attr
	own.Config |= uint64(pmu) << 32
	return perf.Open(&own, perf.AllThreads, cpu, nil)
}

// corePMU returns the type of the PMU that serves a CPU where there are
// several: those list their CPUs.
func corePMU(dir string, cpu int) (uint32, bool) {
	lists, err := filepath.Glob(filepath.Join(dir, "*", "cpus"))
	if err != nil {
		return 0, false
	}
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue
		}
		if cpus, err := parseCPUList(string(text)); err != nil || !slices.Contains(cpus, cpu) {
			continue
		}
		text, err = os.ReadFile(filepath.Join(filepath.Dir(list), "type"))
		if err != nil {
			continue
		}
		if typ, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32); err == nil {
			return uint32(typ), true
		}
	}
	return 0, false
}

// isMissing tells that perf_event_open knows no counter for an event.
func isMissing(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EOPNOTSUPP)
}

// isRefused tells that a hardware event is missing, or its code or its
// precision is not one the PMU has.
func isRefused(err error) bool { return isMissing(err) || errors.Is(err, unix.EINVAL) }

// explainOpen turns an error of perf_event_open into one that helps.
func explainOpen(e EventSpec, err error) error {
	missing := &FeatureError{Feature: "event " + e.String(), Err: err}
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		missing.Feature = "perf events of all tasks"
		missing.Hint = "run as root or with CAP_PERFMON"
		if level, err := readSysctl(paranoid); err == nil && level > 0 {
			missing.Hint += fmt.Sprintf(", or: sysctl %s=0 (it is %d)", paranoid, level)
		}
	case errors.Is(err, unix.ENOSYS):
		missing.Feature = "perf_event_open"
		missing.Hint = "the kernel has no perf events, or a container forbids them (seccomp)"
	case errors.Is(err, unix.EMFILE):
		missing.Feature = "a file descriptor for each CPU"
		missing.Hint = "raise the limit: ulimit -n"
	case errors.Is(err, unix.EBUSY):
		missing.Hint = "the counter is in use by another program (the NMI watchdog: sysctl kernel.nmi_watchdog=0)"
	case isRefused(err) && e.IsHardware():
		missing.Hint = "the processor, or its virtual machine, does not have it; use --event cpu-clock"
	case isMissing(err):
		missing.Hint = "the kernel does not have it; use --event cpu-clock"
	default:
		return fmt.Errorf("open event %s: %w", e, err)
	}
	return missing
}

// noCycles says in few words why hardware cycles cannot be counted; nil if they
// can.
func noCycles() error {
	err := tryOpen(Cycles)
	switch {
	case err == nil:
		return nil
	case isMissing(err):
		return errors.New("the processor or its virtual machine shows none")
	case errors.Is(err, unix.EBUSY):
		return errors.New("all in use")
	}
	return err
}

// tryOpen opens an event on a CPU and closes it.
func tryOpen(e EventSpec) error {
	cpus, err := OnlineCPUs()
	if err != nil {
		return err
	}
	ev, err := openOn(cpus[0], &perf.Attr{
		Type:    perf.EventType(e.typ),
		Config:  e.config,
		Options: perf.Options{Disabled: true},
	})
	if err != nil {
		return err
	}
	return ev.Close()
}

// explainMmap turns an error of mapping a ring into one that helps.
func explainMmap(err error) error {
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOMEM) {
		return err
	}
	return &FeatureError{
		Feature: "memory for perf rings",
		Hint:    "give CAP_IPC_LOCK, or raise: sysctl kernel.perf_event_mlock_kb",
		Err:     err,
	}
}
