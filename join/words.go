// SPDX-License-Identifier: Apache-2.0

package join

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
	"pathprof/perfevent/recording"
)

// softirqWords are the kernel's softirq vectors (include/linux/interrupt.h,
// stable since 2.6; kernel/softirq.c, softirq_to_name).
var softirqWords = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

// CauseGIL is the kind of a wait for the GIL whose holder is known.
const CauseGIL execgraph.CauseKind = "gil"

const gilWords = "the GIL, held by "

// ParseReason takes apart what [Reason.String] writes.
func ParseReason(words string) Reason {
	if holder, ok := strings.CutPrefix(words, gilWords); ok {
		return Reason{Kind: CauseGIL, Detail: holder}
	}
	kind, detail, _ := strings.Cut(words, " ")
	return Reason{Kind: execgraph.CauseKind(kind), Detail: detail}
}

// String returns kind and detail in words; empty for no reason.
func (r Reason) String() string {
	if r.Kind == execgraph.CauseNone || r.Detail == "" {
		return string(r.Kind)
	}
	if r.Kind == CauseGIL {
		return gilWords + r.Detail
	}
	return string(r.Kind) + " " + r.Detail
}

// String returns the class in words, as in the label "segment":
//
//	running app/worker
//	blocked (timer hrtimer) app/app
//	in wait (task app/worker): running app/worker
//
// A wait of the target's own that nothing replaced is named once.
func (k ClassKey) String() string {
	s := k.State.String()
	if k.In != "" && !k.InWait() {
		s += " in " + k.In
	}
	if k.Cause.Kind != execgraph.CauseNone {
		s += " (" + k.Cause.String() + ")"
	}
	if k.At != "" {
		s += " in " + k.At
	}
	if k.Polling != "" {
		s += " (polling " + k.Polling + ")"
	}
	s += " " + k.Thread().String()
	if k.InWait() {
		in := "in wait "
		if k.In != "" {
			in += "in " + k.In + " "
		}
		s = in + "(" + k.Wait.String() + "): " + s
	}
	return s
}

// InWait tells whether the class shows what happened elsewhere while the target
// waited. A wait that no task ended has nothing to show but itself: there Wait
// and Cause are the same.
func (k ClassKey) InWait() bool {
	return k.Wait.Kind != execgraph.CauseNone && k.Wait != k.Cause
}

// Thread returns the names of the class' task.
func (k ClassKey) Thread() ThreadInfo {
	return ThreadInfo{ID: k.Task, PID: k.PID, Process: k.ProcessName, Thread: k.ThreadName}
}

// names knows what tasks are called.
type names struct {
	info map[sched.TaskID]ThreadInfo
	irqs map[int32]string
	// graph knows the names of devices and limits; nil if there is none.
	graph *execgraph.Graph
}

func newNames(tasks []execgraph.Task, meta *recording.Meta) *names {
	n := &names{info: make(map[sched.TaskID]ThreadInfo, len(tasks)), irqs: meta.IRQs}
	mains := make(map[int32][]execgraph.Task) // by process: numbers are used again
	for _, t := range tasks {
		if t.ID.TID == t.PID {
			mains[t.PID] = append(mains[t.PID], t)
		}
	}
	for _, list := range mains {
		slices.SortFunc(list, func(a, b execgraph.Task) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	for _, t := range tasks {
		info := ThreadInfo{ID: t.ID, PID: t.PID, Thread: or(t.Name, "tid "+strconv.Itoa(int(t.ID.TID)))}
		info.Process = processName(t, mains[t.PID], meta.Targets)
		n.info[t.ID] = info
	}
	return n
}

// processName is the name of the main thread that lived when t began.
func processName(t execgraph.Task, mains []execgraph.Task, targets []recording.Target) string {
	name := ""
	for i, m := range mains {
		if i == 0 || m.Begin <= t.Begin {
			name = m.Name
		}
	}
	for _, target := range targets {
		if name == "" && target.PID == t.PID {
			name = target.Name
		}
	}
	return or(name, "pid "+strconv.Itoa(int(t.PID)))
}

// of returns a task's names. A task the graph does not hold has process -1.
func (n *names) of(id sched.TaskID) ThreadInfo {
	if info, ok := n.info[id]; ok {
		return info
	}
	return ThreadInfo{ID: id, PID: -1, Process: "unknown", Thread: "tid " + strconv.Itoa(int(id.TID))}
}

// label is a task as the detail of a cause.
func (n *names) label(id sched.TaskID) string {
	if id.TID == 0 {
		return "idle"
	}
	return n.of(id).String()
}

// String returns PROCESS/THREAD. A thread that only inherited its process' name
// goes by its number: up to Python 3.13 all threads of a program have the same.
func (t ThreadInfo) String() string {
	return t.Process + "/" + t.ShortName()
}

// ShortName returns the thread's name, its number if it only inherited the name
// of its process.
func (t ThreadInfo) ShortName() string {
	if t.Thread == t.Process && t.PID != t.ID.TID {
		return strconv.Itoa(int(t.ID.TID))
	}
	return t.Thread
}

// reason is a cause in words.
func (n *names) reason(c execgraph.Cause) Reason {
	r := Reason{Kind: c.Kind}
	switch c.Kind {
	case execgraph.CauseNone:
	case execgraph.CauseTask:
		r.Detail = n.label(c.Task)
		if c.Lock == sched.LockGIL {
			r.Kind = CauseGIL
		}
	case execgraph.CauseNetwork:
		r.Detail = "from an unknown sender"
		if c.Task.TID != 0 {
			r.Detail = "from " + n.label(c.Task)
		}
	case execgraph.CauseDisk:
		r.Detail = n.device(c.Vector)
	case execgraph.CauseLimit:
		r.Detail = n.limit(c.Cgroup)
	case execgraph.CauseInterrupt:
		r.Detail = n.interrupt(c)
	case execgraph.CauseSoftirq:
		r.Detail = "vector " + strconv.Itoa(int(c.Vector))
		if c.Vector >= 0 && int(c.Vector) < len(softirqWords) {
			r.Detail = softirqWords[c.Vector]
		}
	case execgraph.CauseUnknown:
		r.Detail = or(c.Why, "unknown")
	default: // timers, and what later work adds
		r.Detail = or(c.Why, c.Ctx.String())
	}
	return r
}

// device names a block device, by the number that lsblk shows.
func (n *names) device(number int32) string {
	dev := strconv.Itoa(int(number>>20)) + ":" + strconv.Itoa(int(number&(1<<20-1)))
	if n.graph != nil {
		if name := n.graph.DeviceName(number); name != "" {
			return name + " (" + dev + ")"
		}
	}
	return dev
}

// limit names a cgroup's CPU limit with quota, period and what it took.
func (n *names) limit(cgroup uint64) string {
	var list []execgraph.Limit
	if n.graph != nil {
		list = n.graph.Limits(cgroup)
	}
	if len(list) == 0 {
		return "of cgroup " + strconv.FormatUint(cgroup, 10)
	}
	last := list[len(list)-1]
	s := "of " + last.Cgroup
	if last.Quota > 0 && last.Period > 0 {
		s += fmt.Sprintf(": %v of every %v", time.Duration(last.Quota), time.Duration(last.Period))
	}
	if last.Periods > 0 {
		s += fmt.Sprintf(", %d periods throttled", last.Periods)
	}
	return s
}

// interrupt names an interrupt by number and device: irq 33 nvme0q1.
func (n *names) interrupt(c execgraph.Cause) string {
	if c.Ctx != sched.ContextHardirq {
		return c.Ctx.String()
	}
	s := "irq " + strconv.Itoa(int(c.Vector))
	if name := n.irqs[c.Vector]; name != "" {
		s += " " + name
	}
	return s
}
