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
	// Modes tile the wall time; Loop is there if the thread runs an event loop.
	Modes []ModeShare `json:"modes"`
	Loop  []LoopTask  `json:"asyncio,omitempty"`
	// Readings: of the whole window and causal, each tiles the wall time.
	Readings   []ReadingReport `json:"readings"`
	Migrations int             `json:"migrations"`
	// Segments and Waits only if [ReportOptions] asks for them.
	Segments []SegmentReport `json:"segments,omitempty"`
	Waits    []WaitReport    `json:"waits,omitempty"`
}

// WaitReport is one wait of a path's own thread. What is not known is left out.
type WaitReport struct {
	BeginNs int64   `json:"begin_ns"`
	EndNs   int64   `json:"end_ns"`
	Cause   *Reason `json:"cause"`
	Call    string  `json:"call,omitempty"`
	In      string  `json:"in,omitempty"`     // call and object in words
	Object  uint64  `json:"object,omitempty"` // file descriptor, address, process: as the call has it
	// TimeoutNs of a timed wait; Pieces of them that are this wait.
	TimeoutNs int64  `json:"timeout_ns,omitempty"`
	Pieces    int    `json:"pieces"`
	Lock      string `json:"lock,omitempty"`
	// By says whom the cause names: the lock's holder or the waker. Holder had the
	// lock at the begin; the one that gave it had it for HeldNs.
	By     execgraph.By `json:"by,omitempty"`
	Holder string       `json:"holder,omitempty"`
	HeldNs int64        `json:"held_ns,omitempty"`
	// TookNs is the way of the packet, or the answer of the disk.
	TookNs  int64  `json:"took_ns,omitempty"`
	Work    string `json:"work,omitempty"`     // function of the kernel worker
	WokenIn string `json:"woken_in,omitempty"` // where the waker stood
}

// ClassReport is a group of alike segments. Wait is the target's own wait they
// lie in, nil if none; Cause why the task was not running, nil if it was. A task
// the recording does not know has process -1.
type ClassReport struct {
	Wait    *Reason `json:"wait"`
	In      string  `json:"in,omitempty"` // call and object of that wait
	At      string  `json:"at,omitempty"` // call and object of the class' own task
	State   string  `json:"state"`
	Polling bool    `json:"polling,omitempty"`
	// PollingFor is the system call by which it asks, "a lock" or "the clock".
	PollingFor string  `json:"polling_for,omitempty"`
	Cause      *Reason `json:"cause"`
	PID        int32   `json:"pid"`
	Process    string  `json:"process"`
	TID        int32   `json:"tid"`
	Thread     string  `json:"thread"`
	Ns         int64   `json:"ns"`
	Share      float64 `json:"share"`
	Segments   int     `json:"segments"`
	Samples    int64   `json:"samples"`
	Clusters   int     `json:"clusters"` // samples of different ones are independent
	// Status divides samples and their time by what the interpreter did, most
	// time first; left out if nothing is known of any.
	Status    []StatusShare `json:"status,omitempty"`
	Functions []Function    `json:"functions"`
	// Lines only if [Options].Lines asked for them.
	Lines []Line `json:"lines,omitempty"`
}

// ReadingReport is the time that a path leads through a task in a state, in both
// readings: classes and segments are of the whole window.
type ReadingReport struct {
	PID      int32   `json:"pid"`
	Process  string  `json:"process"`
	TID      int32   `json:"tid"`
	Thread   string  `json:"thread"`
	State    string  `json:"state"`
	Cause    *Reason `json:"cause"` // of waits and what is unknown
	WholeNs  int64   `json:"whole_ns"`
	CausalNs int64   `json:"causal_ns"`
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
	Segments bool // list every segment and wait
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
			Wait: optional(k.Wait), In: k.In, At: k.At, State: k.State.String(), Polling: k.Polling != "", PollingFor: k.Polling, Cause: optional(k.Cause),
			PID: k.PID, Process: k.ProcessName, TID: k.TID, Thread: k.ThreadName,
			Ns: c.Ns, Share: c.Share, Segments: c.Segments, Samples: c.Samples,
			Clusters: c.Clusters, Status: c.Status, Functions: functions, Lines: c.Lines,
		})
	}
	out.Modes, out.Loop, out.Migrations = append([]ModeShare{}, t.Modes...), t.Loop, t.Path.Migrations
	out.Readings = make([]ReadingReport, len(t.Readings))
	for i, s := range t.Readings {
		out.Readings[i] = ReadingReport{
			PID: s.Thread.PID, Process: s.Thread.Process, TID: s.Thread.ID.TID, Thread: s.Thread.Thread,
			State: s.State.String(), Cause: optional(s.Cause), WholeNs: s.WholeNs, CausalNs: s.CausalNs,
		}
	}
	if opt.Segments {
		out.Segments = segmentReports(t)
		out.Waits = waitReports(t)
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

func waitReports(t *ThreadPath) []WaitReport {
	out := make([]WaitReport, len(t.Waits))
	for i := range t.Waits {
		w, info := &t.Path.Waits[i], &t.Waits[i]
		out[i] = WaitReport{
			BeginNs: w.Begin, EndNs: w.End, Cause: optional(info.Cause), In: info.In, Object: w.On.Object,
			TimeoutNs: w.On.Timeout, Pieces: w.Pieces, By: w.By, Holder: info.Holder, HeldNs: w.HeldNs,
			TookNs: w.Took, Work: w.Work, WokenIn: info.WokenIn,
		}
		if w.On.Call != 0 {
			out[i].Call = w.On.Call.String()
		}
		if w.On.Lock != 0 {
			out[i].Lock = w.On.Lock.String()
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
