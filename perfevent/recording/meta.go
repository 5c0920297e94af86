// SPDX-License-Identifier: Apache-2.0

package recording

// FormatVersion of the recordings this program writes. A reader refuses newer
// ones, and reads older ones. 2 added the causes of waits to the events, 3 the
// counter's own value to the samples.
const FormatVersion = 3

// Meta is a recording's meta.json. It is written at the start and rewritten
// (by rename) at the end; Complete tells whether the end was reached.
type Meta struct {
	Format   int  `json:"format"`
	Complete bool `json:"complete"`

	Host     string `json:"host"`
	Kernel   string `json:"kernel"`
	Arch     string `json:"arch"`
	CPUs     int    `json:"cpus"`
	PageSize int    `json:"page_size"`
	// Clock of all times: "monotonic". ClockSource is the kernel's current one.
	Clock       string `json:"clock"`
	ClockSource string `json:"clock_source"`
	// CLOCK_REALTIME minus CLOCK_MONOTONIC, ns, at start and end.
	RealtimeOffsetBeginNs int64 `json:"realtime_offset_begin_ns"`
	RealtimeOffsetEndNs   int64 `json:"realtime_offset_end_ns"`
	// BeginNs: all programs attached and the task dump done. EndNs: stopped.
	BeginNs int64 `json:"begin_ns"`
	EndNs   int64 `json:"end_ns"`

	// Event really used, e.g. cpu-clock; AskedEvent e.g. auto; EventNote why they differ.
	Event      string `json:"event"`
	AskedEvent string `json:"asked_event"`
	EventNote  string `json:"event_note,omitempty"`
	// Unit of the event's values: "nanoseconds" or "count".
	Unit string `json:"unit"`
	// Period in Unit, 0 with a frequency; FreqHz, 0 with a period.
	Period int64  `json:"period"`
	FreqHz uint64 `json:"freq_hz"`
	// AskedPeriod is the one asked for where Period is another, to keep out of step
	// with timers. Jitter: the period varies around Period; the values of samples
	// say which it was.
	AskedPeriod int64 `json:"asked_period,omitempty"`
	Jitter      bool  `json:"jitter,omitempty"`
	// AskedHz: expected overflows a second on a busy CPU, 0 if the event has no
	// fixed relation to time. AchievedHz: as measured.
	AskedHz    float64 `json:"asked_hz"`
	AchievedHz float64 `json:"achieved_hz"`
	// CountedShare is the part of the time in which the counters had the hardware:
	// below 1 where more events were open than it has counters for, and the
	// analysis then scales what samples stand for. 0: not known.
	CountedShare float64 `json:"counted_share,omitempty"`
	Samples      uint64  `json:"samples"`
	Events       uint64  `json:"events"`
	Scope        string  `json:"scope"` // system or process

	Targets      []Target      `json:"targets"`
	Interpreters []Interpreter `json:"interpreters"`
	// IRQs: interrupt number to device names, from /proc/interrupts.
	IRQs map[int32]string `json:"irqs,omitempty"`

	// Calibration of the machine that applies; nil if there is none.
	Calibration *Calibration `json:"calibration,omitempty"`

	Loss       Loss              `json:"loss"`
	LossPerCPU []Loss            `json:"loss_per_cpu,omitempty"`
	Warnings   []string          `json:"warnings,omitempty"`
	Stopped    string            `json:"stopped"` // why recording ended
	Version    string            `json:"version"`
	Options    map[string]string `json:"options,omitempty"`
}

// Target is a process whose threads have paths.
type Target struct {
	PID     int32    `json:"pid"`
	Name    string   `json:"name"`
	Command []string `json:"command"`
}

// Interpreter is a CPython found in a process.
type Interpreter struct {
	PID     int32  `json:"pid"`
	Version string `json:"version"` // e.g. 3.11.7
	Path    string `json:"path"`    // the ELF file that holds _PyRuntime
	BuildID string `json:"build_id,omitempty"`
	Offsets string `json:"offsets"` // where the offsets came from
	// Refused: why stacks of this process have no Python frames; empty if they have.
	Refused string `json:"refused,omitempty"`
}

// Calibration is what was known, when recording began, of the machine and of the
// period in use.
type Calibration struct {
	TakenAt string `json:"taken_at"` // RFC 3339
	Python  string `json:"python"`   // version it was taken with
	// SampleNs is the cost of one sample; Overhead the expected slowdown of a
	// running thread, minus one; Reached the part of the asked rate to expect.
	SampleNs float64 `json:"sample_ns"`
	Overhead float64 `json:"overhead"`
	Reached  float64 `json:"reached"`
	// RMSError of the known-share profile, in points, and how many samples it had.
	RMSError   float64 `json:"rms_error"`
	RMSSamples int64   `json:"rms_samples"`
}
