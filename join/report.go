// SPDX-License-Identifier: Apache-2.0

package join

import (
	"pathprof/join/execgraph"
	"pathprof/perfevent/recording"
)

// Report is what `pathprof report --json` prints. Its fields are a contract:
// they are added to, never renamed. Times are CLOCK_MONOTONIC nanoseconds. Lists
// are never null.
type Report struct {
	Recording RecordingReport `json:"recording"`
	Paths     []PathReport    `json:"paths"`
	Warnings  []string        `json:"warnings"`
}

// RecordingReport says what the report rests on.
type RecordingReport struct {
	Event        string                  `json:"event"`
	Period       int64                   `json:"period"` // in the event's unit; 0 with a frequency
	AskedHz      float64                 `json:"asked_hz"`
	AchievedHz   float64                 `json:"achieved_hz"`
	Samples      int64                   `json:"samples"`
	Lost         uint64                  `json:"lost"`
	Throttled    uint64                  `json:"throttled"`
	BeginNs      int64                   `json:"begin_ns"`
	EndNs        int64                   `json:"end_ns"`
	Interpreters []recording.Interpreter `json:"interpreters"`
}

// PathReport is the active path of one thread.
type PathReport struct {
	PID     int32         `json:"pid"`
	TID     int32         `json:"tid"`
	Thread  string        `json:"thread"`
	BeginNs int64         `json:"begin_ns"`
	EndNs   int64         `json:"end_ns"`
	WallNs  int64         `json:"wall_ns"`
	Classes []ClassReport `json:"classes"` // most time first
	// Segments only if [ReportOptions] asks for them.
	Segments []SegmentReport `json:"segments,omitempty"`
}

// ClassReport is a group of alike segments. Wait is the target's own wait they
// lie in, nil if none; Cause why the task was not running, nil if it was. A task
// the recording does not know has process -1.
type ClassReport struct {
	Wait      *Reason    `json:"wait"`
	State     string     `json:"state"`
	Cause     *Reason    `json:"cause"`
	PID       int32      `json:"pid"`
	Process   string     `json:"process"`
	TID       int32      `json:"tid"`
	Thread    string     `json:"thread"`
	Ns        int64      `json:"ns"`
	Share     float64    `json:"share"`
	Segments  int        `json:"segments"`
	Samples   int64      `json:"samples"`
	Clusters  int        `json:"clusters"` // samples of different ones are independent
	Functions []Function `json:"functions"`
	// Lines only if [Options].Lines asked for them.
	Lines []Line `json:"lines,omitempty"`
}

// SegmentReport is one segment of a path.
type SegmentReport struct {
	BeginNs int64   `json:"begin_ns"`
	EndNs   int64   `json:"end_ns"`
	Wait    *Reason `json:"wait"`
	State   string  `json:"state"`
	Cause   *Reason `json:"cause"`
	PID     int32   `json:"pid"`
	TID     int32   `json:"tid"`
	Thread  string  `json:"thread"`
	Depth   int     `json:"depth"`
	Samples int64   `json:"samples"`
}

// ReportOptions says what a report holds; the zero value is the usual one.
type ReportOptions struct {
	Segments bool // list every segment
}

// NewReport puts a profile into the form of the JSON contract. meta gives what
// concerns the recording as a whole. The report shares memory with p.
func NewReport(p *Profile, meta recording.Meta, opt ReportOptions) Report {
	r := Report{
		Recording: RecordingReport{
			Event: p.Event, Period: p.Period, AskedHz: p.AskedHz, AchievedHz: p.AchievedHz,
			Samples: p.Samples, Lost: p.Lost, Throttled: p.Throttled,
			BeginNs: p.BeginNs, EndNs: p.EndNs,
			Interpreters: append([]recording.Interpreter{}, meta.Interpreters...),
		},
		Paths:    make([]PathReport, 0, len(p.Paths)),
		Warnings: append([]string{}, p.Warnings...),
	}
	for i := range p.Paths {
		r.Paths = append(r.Paths, pathReport(&p.Paths[i], opt))
	}
	return r
}

func pathReport(t *ThreadPath, opt ReportOptions) PathReport {
	out := PathReport{
		PID: t.Thread.PID, TID: t.Thread.ID.TID, Thread: t.Thread.Thread,
		BeginNs: t.Path.Begin, EndNs: t.Path.End, WallNs: t.Path.End - t.Path.Begin,
		Classes: make([]ClassReport, 0, len(t.Classes)),
	}
	for _, c := range t.Classes {
		k := c.Key
		functions := c.Functions
		if functions == nil {
			functions = []Function{}
		}
		out.Classes = append(out.Classes, ClassReport{
			Wait: optional(k.Wait), State: k.State.String(), Cause: optional(k.Cause),
			PID: k.PID, Process: k.ProcessName, TID: k.TID, Thread: k.ThreadName,
			Ns: c.Ns, Share: c.Share, Segments: c.Segments, Samples: c.Samples,
			Clusters: c.Clusters, Functions: functions, Lines: c.Lines,
		})
	}
	if opt.Segments {
		out.Segments = segmentReports(t)
	}
	return out
}

func segmentReports(t *ThreadPath) []SegmentReport {
	samples := make([]int64, len(t.Path.Segments))
	for _, e := range t.Entries {
		samples[e.Segment] += e.Values.Samples
	}
	out := make([]SegmentReport, len(t.Path.Segments))
	for i, seg := range t.Path.Segments {
		k := t.Classes[t.ClassOf[i]].Key
		out[i] = SegmentReport{
			BeginNs: seg.Begin, EndNs: seg.End,
			Wait: optional(k.Wait), State: k.State.String(), Cause: optional(k.Cause),
			PID: k.PID, TID: k.TID, Thread: k.ThreadName, Depth: seg.Depth, Samples: samples[i],
		}
	}
	return out
}

// optional is nil for no reason.
func optional(r Reason) *Reason {
	if r.Kind == execgraph.CauseNone {
		return nil
	}
	return &r
}
