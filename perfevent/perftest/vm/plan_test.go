// SPDX-License-Identifier: Apache-2.0

package vm

// plan is what a machine does, from its /plan.json.
type plan struct {
	Steps []step
}

// step is one thing a machine does: it runs a program or makes a recording.
type step struct {
	Name    string
	Dir     string
	Args    []string
	Env     []string
	Limits  limits
	Profile *profileStep
	// Beside: a Python program of root runs beside.
	Beside bool
	// Seconds are the most it may take.
	Seconds int
}

// profileStep records profile10.py and compares the profile with its truth.
type profileStep struct {
	Event, Period string
	Seconds       int // of CPU time
	// Rivals are other counters of cycles opened on each CPU meanwhile, so that
	// they take turns on the hardware.
	Rivals int
	// Throttled: the kernel is to stop the counter.
	Throttled bool
}

// mark begins the lines of the console that are messages.
const mark = "@pathprof "

// message is one line from the machine.
type message struct {
	Step    string
	Line    string   `json:",omitempty"` // of the step's output
	Status  *int     `json:",omitempty"` // the step has ended; negative: it ran out of time
	Profile *profile `json:",omitempty"`
	Ready   string   `json:",omitempty"` // the machine is up: its kernel's release
	Page    int      `json:",omitempty"` // with Ready: bytes of a page
	Kernel  []string `json:",omitempty"` // warnings of the kernel
	Done    bool     `json:",omitempty"` // the last message
}

// profile is what became of a profileStep, while the functions ran.
type profile struct {
	Event      string
	Period     int64
	Samples    int64
	Lost       uint64
	Throttled  uint64
	AchievedHz float64
	// WorstError is the largest difference between a function's share and the
	// truth, Outside the functions whose intervals do not hold it.
	WorstError float64
	Outside    []string
	Missing    []string
	// Tiles: segments and classes make up the wall time without gap or overlap.
	Tiles bool
	// RunNs is the time of segments in which the thread ran, Value the sum of what
	// its samples stand for, Counted the part of the time that the counter had
	// the hardware for, 0 if it is not known, and Backward how often a CPU's
	// counter was lower than before. OfCounter is the part of what the counters
	// themselves say that samples stand for: the rest was idle, or nobody saw it.
	RunNs     int64
	Value     int64
	Counted   float64
	Backward  int
	OfCounter float64
	// Merged of the samples have whole, merged stacks.
	Merged   float64
	Unmerged map[string]int // why the others have not
	Profiles int            // files of pathprof pprof
	Warnings []string
}
