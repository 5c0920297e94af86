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
	// Seconds are the most it may take.
	Seconds int
}

// profileStep records profile10.py and compares the profile with its truth.
type profileStep struct {
	Event, Period string
	Seconds       int
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
	Kernel  []string `json:",omitempty"` // warnings of the kernel
	Done    bool     `json:",omitempty"` // the last message
}

// profile is what became of a profileStep.
type profile struct {
	Event      string
	Period     int64
	Samples    int64
	Lost       uint64
	Throttled  uint64
	AchievedHz float64
	// WorstError is the largest difference between a function's share and the
	// truth, OutOf the number of functions outside their intervals.
	WorstError float64
	Outside    []string
	Missing    []string
	// Sums: the classes make up the wall time. Merged of the samples in the
	// target have whole, merged stacks.
	Sums     bool
	Merged   float64
	Unmerged map[string]int // why the others are not
	Profiles int            // files of pathprof pprof
	Warnings []string
}
