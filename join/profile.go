// SPDX-License-Identifier: Apache-2.0

package join

import (
	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// Frame is one line of a merged stack.
type Frame struct {
	Name      string // never empty: an address in brackets if nothing is known
	File      string
	Line      int32
	FirstLine int32
	Kind      string // python, native, kernel, or pathprof for [unsampled] and the like
	Address   uint64
	Mapping   string // mapped file of a native frame
	BuildID   string
	// Inlined: the compiler put this function into the next frame's.
	Inlined bool
}

// Verdict says how a stack's Python and native parts were put together.
type Verdict string

// The verdicts.
const (
	Merged     Verdict = "merged"      // in order, by the evaluation function
	Stacked    Verdict = "stacked"     // Python below native: their order inside is not known
	PythonOnly Verdict = "python-only" // no native part
	NativeOnly Verdict = "native-only" // no Python part; see Reason
	Cut        Verdict = "cut"         // the outermost frames are missing; see Reason
	NoStack    Verdict = "none"
)

// Stack is a merged stack, innermost first.
type Stack struct {
	Frames  []Frame
	Verdict Verdict
	Reason  string // in words, empty if the stack is complete
	// missing says whether the top of a Python stack may be missing.
	missing missing
	// tracing: of what ran at a tracepoint, not of the functions below.
	tracing bool
	// takingGIL and importing: see Status.
	takingGIL, importing bool
}

// Values of one sample or wait.
type Values struct {
	Samples int64 // samples/count
	Event   int64 // the event's own unit
	PathNs  int64 // path/nanoseconds
}

// ThreadInfo names a task for people.
type ThreadInfo struct {
	ID      sched.TaskID
	PID     int32
	Process string // name of the process' main thread
	Thread  string // name of the thread
}

// Reason is a kind with a detail, for wait and cause.
type Reason struct {
	Kind   execgraph.CauseKind `json:"kind"`
	Detail string              `json:"detail"`
}

// ClassKey groups alike segments.
type ClassKey struct {
	Wait Reason // zero Kind: not within a wait of the target
	// In is the call and object of that wait, At those of Task itself where it
	// waits for the target; empty if not known.
	In, At string
	// Polling is what it asks again and again instead of waiting, on the CPU: a system
	// call, "a lock" or "the clock".
	Polling     string
	State       execgraph.State
	Cause       Reason // zero Kind: running
	PID, TID    int32
	Task        sched.TaskID
	ProcessName string
	ThreadName  string
}

// Entry is one stack with its values inside one class.
type Entry struct {
	Stack   *Stack
	Segment int // index in ThreadPath.Path.Segments
	Values  Values
	Status  Status // of its samples
}

// Estimate is what samples say about a function or a line, with 95 % intervals.
type Estimate struct {
	// Samples with it at the top of the stack, 0 for a Python function that only
	// called others; Share of the class' samples, in [Low, High]. These are in 0…1.
	Samples int64   `json:"samples"`
	Share   float64 `json:"share"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	// Ns is its part of the class' time, which lies in [NsLow, NsHigh]: each
	// segment's time divided over its samples; that of segments too short for
	// samples of their own, over the samples of all those.
	Ns     int64 `json:"ns"`
	NsLow  int64 `json:"ns_low"`
	NsHigh int64 `json:"ns_high"`
	// Method of both intervals.
	Method Method `json:"method"`
	// TooFew: there is too little for the intervals to say much.
	TooFew bool `json:"too_few,omitempty"`
}

// Function is a function's part of a class.
type Function struct {
	Name string `json:"name"`
	File string `json:"file"`
	Line int32  `json:"line"` // first line of the function
	Kind string `json:"kind"` // python, native, kernel
	Estimate
	// TotalShare counts samples anywhere below it, too.
	TotalShare float64 `json:"total_share"`
	// Native are the native functions in which samples of a Python function ended,
	// in the kernel on their behalf included: a division of its Samples, but for those
	// in the interpreter itself.
	Native []Callee `json:"native,omitempty"`
}

// Callee is a native function that ran for a Python function, and for it alone:
// its Estimate is of the class, as that of the caller.
type Callee struct {
	Name string `json:"name"`
	File string `json:"file"` // source file, else the mapped one
	Estimate
}

// Line is a line's part of a class.
type Line struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int32  `json:"line"` // 0 if it is not known
	Kind     string `json:"kind"` // python, native, kernel
	Estimate
}

// Class is a group of alike segments of one thread's path.
type Class struct {
	Key       ClassKey
	Ns        int64   // time
	Share     float64 // of the window
	Segments  int
	Samples   int64
	Unsampled int64 // ns of running segments that got no sample
	Doubt     Doubt // what the intervals of Functions were widened by
	// Clusters are the groups of samples that were taken as independent of each
	// other; 0 without samples.
	Clusters int
	// Status divides the samples by what the interpreter did, most time first;
	// empty if nothing is known of any.
	Status    []StatusShare
	Functions []Function
	Lines     []Line // if [Options].Lines asks for them
}

// ThreadPath is the active path of one thread with everything that lies on it.
type ThreadPath struct {
	Thread  ThreadInfo
	Path    execgraph.Path
	Classes []Class // most time first
	// ClassOf gives for each segment its index in Classes.
	ClassOf []int
	Entries []Entry     // sums of PathNs equal the window's wall time exactly
	Waits   []WaitInfo  // of Path.Waits
	Modes   []ModeShare // most time first; they sum to the wall time, too
	// Readings compare the path with its causal reading, most time first; each
	// sums to the wall time.
	Readings []ReadingShare
	Loop     []LoopTask // if the thread runs an event loop of asyncio

	lines bool // Lines of classes are wanted
}

// Profile is what analysis makes of a recording; every output reads it.
type Profile struct {
	// Event, Unit ("nanoseconds" or "count"), Period, rates, loss: as recorded.
	Event, Unit              string
	EventNote                string   // why it is not the one asked for; empty if it is
	Hosts                    []string // names, by TaskID.Host
	Complete                 bool     // the recorder reached its end
	Period                   int64
	AskedHz, AchievedHz      float64
	Samples                  int64
	Lost, Throttled          uint64
	BeginNs, EndNs           int64
	RealtimeOffsetNs         int64
	Threads                  map[sched.TaskID]ThreadInfo
	Paths                    []ThreadPath // main thread of the first target first
	Verdicts                 map[Verdict]int64
	Reasons                  map[string]int64 // stop reasons of samples on the paths
	OutsideWindow, OffThread int64            // samples that fell on no running segment
	Warnings                 []string
	// Aggregated: read back from sums. Each class has one segment then, and when
	// it lay is not known.
	Aggregated bool
}
