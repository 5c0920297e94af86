// SPDX-License-Identifier: Apache-2.0

package perfevent

import (
	"fmt"
	"strconv"
	"strings"
)

// Types and numbers of events, from include/uapi/linux/perf_event.h. They are
// repeated here because x/sys has them on Linux only, and event names are
// parsed everywhere; a test compares both.
const (
	typeHardware = 0
	typeSoftware = 1
	typeRaw      = 4

	swCPUClock  = 0
	swTaskClock = 1
)

// UnitNanoseconds and UnitCount are what values of events are counted in.
const (
	UnitNanoseconds = "nanoseconds"
	UnitCount       = "count"
)

// Clock events fire from a high-resolution timer, which the kernel never
// programs for less (perf_swevent_hrtimer in kernel/events/core.c). Longer
// periods than the maximum are surely a slip, like 1m for 1M.
const (
	minClockPeriodNanos = 10_000
	maxClockPeriodNanos = 10_000_000_000
)

// EventSpec is an event that can be counted and sampled. The zero value is the
// choice "auto": hardware cycles where the machine has them, else cpu-clock.
type EventSpec struct {
	name    string
	typ     uint32
	config  uint64
	period  uint64 // the default
	aliases string // other names perf(1) accepts, space-separated
}

// events are the named ones. The default periods aim at about a thousand
// samples a second on a busy processor for the frequent events, and at
// few enough to keep the machine usable for the others.
var events = []EventSpec{
	{name: "cycles", typ: typeHardware, config: 0, period: 1_000_000, aliases: "cpu-cycles"},
	{name: "instructions", typ: typeHardware, config: 1, period: 1_000_000},
	{name: "cache-references", typ: typeHardware, config: 2, period: 100_000},
	{name: "cache-misses", typ: typeHardware, config: 3, period: 10_000},
	{name: "branches", typ: typeHardware, config: 4, period: 1_000_000, aliases: "branch-instructions"},
	{name: "branch-misses", typ: typeHardware, config: 5, period: 10_000},
	{name: "cpu-clock", typ: typeSoftware, config: swCPUClock, period: 1_000_000},
	{name: "task-clock", typ: typeSoftware, config: swTaskClock, period: 1_000_000},
	{name: "page-faults", typ: typeSoftware, config: 2, period: 100, aliases: "faults"},
	{name: "context-switches", typ: typeSoftware, config: 3, period: 100, aliases: "cs"},
	{name: "cpu-migrations", typ: typeSoftware, config: 4, period: 10, aliases: "migrations"},
	{name: "minor-faults", typ: typeSoftware, config: 5, period: 100},
	{name: "major-faults", typ: typeSoftware, config: 6, period: 1},
}

// Auto is the zero [EventSpec]: hardware cycles, else cpu-clock.
var Auto EventSpec

// Cycles and CPUClock are what [Auto] chooses between.
var (
	Cycles   = events[0]
	CPUClock = events[6]
)

// EventNames lists the names [ParseEvent] takes, for a usage text.
func EventNames() []string {
	names := []string{"auto"}
	for _, e := range events {
		names = append(names, e.name)
	}
	return append(names, "rHEX")
}

// ParseEvent returns the event of a name: one of [EventNames], an alias perf(1)
// knows, or a raw code such as r01c2. An error is a mistake of usage.
func ParseEvent(name string) (EventSpec, error) {
	if name == "auto" {
		return Auto, nil
	}
	for _, e := range events {
		if name == e.name {
			return e, nil
		}
		for alias := range strings.FieldsSeq(e.aliases) {
			if name == alias {
				return e, nil
			}
		}
	}
	if hex, ok := strings.CutPrefix(name, "r"); ok {
		if code, err := strconv.ParseUint(hex, 16, 64); err == nil {
			return EventSpec{name: name, typ: typeRaw, config: code, period: 1_000_000}, nil
		}
	}
	if strings.Contains(name, ":") {
		// The kernel takes programs of the sampling kind on counters only
		// (perf_event_set_bpf_prog in kernel/events/core.c).
		return EventSpec{}, fmt.Errorf("event %q: tracepoints are no sampling events", name)
	}
	return EventSpec{}, fmt.Errorf("event %q: unknown; one of %s", name, strings.Join(EventNames(), ", "))
}

// String is the event's name, "auto" for the zero value.
func (e EventSpec) String() string {
	if e.IsAuto() {
		return "auto"
	}
	return e.name
}

// IsAuto tells whether the event is still to be chosen.
func (e EventSpec) IsAuto() bool { return e.name == "" }

// IsClock tells whether the event counts nanoseconds of processor time.
func (e EventSpec) IsClock() bool {
	return e.typ == typeSoftware && !e.IsAuto() && (e.config == swCPUClock || e.config == swTaskClock)
}

// IsHardware tells whether the event needs a hardware counter.
func (e EventSpec) IsHardware() bool {
	return !e.IsAuto() && (e.typ == typeHardware || e.typ == typeRaw)
}

// Unit is what the event's values and its period are counted in:
// [UnitNanoseconds] or [UnitCount]; empty for auto.
func (e EventSpec) Unit() string {
	switch {
	case e.IsAuto():
		return ""
	case e.IsClock():
		return UnitNanoseconds
	}
	return UnitCount
}

// DefaultPeriod is the period, in the event's unit, where none was asked for; 0
// for auto.
func (e EventSpec) DefaultPeriod() uint64 { return e.period }
