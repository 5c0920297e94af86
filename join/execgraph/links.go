// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"sort"
	"strings"

	"pathprof/join/sched"
)

// Softirq vectors (include/linux/interrupt.h).
const (
	softirqNetRX = 3
	softirqBlock = 4
)

// nearby is how long after a packet or a disk's answer the wake-ups follow that
// it causes: both are work of the same interrupt. An interrupt that wakes somebody
// later does so for another reason.
const nearby = 200_000

// maxResent bounds the search for the first sending of bytes among later packets.
const maxResent = 256

// link is what stands behind a wake-up in an interrupt.
type link struct {
	kind CauseKind // CauseNetwork, CauseDisk; CauseNone if nothing is known
	dev  int32
	took int64
	// From then back the path continues in task, if that is not -1.
	at   int64
	task int32
}

// linkOf finds what stands behind a wake-up in a context on a CPU at t.
func (g *Graph) linkOf(cpu int32, t int64, ctx sched.Context, vector int32) link {
	list := g.facts.notes[cpu]
	i := lastBy(list, t, func(n *note) int64 { return n.t })
	none := link{task: -1}
	if i < 0 || t-list[i].t > nearby || list[i].t < g.turnBegin(cpu, t) {
		return none
	}
	n := &list[i]
	switch {
	case n.kind == sched.KindReceive && ctx == sched.ContextSoftirq && vector == softirqNetRX:
		return g.sender(n, 0)
	case n.kind == sched.KindIO && (ctx == sched.ContextHardirq || ctx == sched.ContextSoftirq && vector == softirqBlock):
		l := link{kind: CauseDisk, dev: n.dev, took: n.took, at: n.t - n.took, task: -1}
		if n.tid > 0 {
			l.task = g.alive(n.tid, l.at)
		}
		return l
	}
	return none
}

// turnBegin is when a CPU last switched by t: an interrupt begins and ends
// between two switches.
func (g *Graph) turnBegin(cpu int32, t int64) int64 {
	turns := g.lanes[cpu]
	i := sort.Search(len(turns), func(i int) bool { return turns[i].begin > t }) - 1
	if i < 0 {
		return never
	}
	return turns[i].begin
}

// maxReplies bounds the packets by which the kernel answers packets, on the way
// back to who sent the first one: a connection has SYN, SYN+ACK and ACK.
const maxReplies = 4

// sender finds who first sent the last byte of a packet. The bytes of a packet
// that leaves later than they were written were written by the task that sent
// before. Where none did, the kernel answers the packet that arrived there just before.
func (g *Graph) sender(n *note, replies int) link {
	l := link{kind: CauseNetwork, task: -1}
	list := g.facts.sent[n.conn]
	last := lastBy(list, n.t, func(s *sent) int64 { return s.t })
	found := -1
	for i := last; i >= max(0, last-maxResent); i-- {
		if n.seq-list[i].seq < list[i].n { // modulo 2^32
			found = i
		}
	}
	if found < 0 {
		return l
	}
	l.at = list[found].t
	for i := found; i >= max(0, found-maxResent); i-- {
		if tid := list[i].tid; tid > 0 {
			l.task = g.alive(tid, l.at)
			return l
		}
	}
	s := &list[found]
	notes := g.facts.notes[s.cpu]
	i := lastBy(notes, s.t, func(n *note) int64 { return n.t })
	if i < 0 || notes[i].kind != sched.KindReceive || s.t-notes[i].t > nearby || notes[i].t < g.turnBegin(s.cpu, s.t) || replies == maxReplies {
		return l
	}
	return g.sender(&notes[i], replies+1)
}

// alive returns the task that had a thread number at t, -1 if none did.
func (g *Graph) alive(tid int32, t int64) int32 {
	i := g.lookup(tid, t)
	if i >= 0 && t > g.tasks[i].End {
		return -1
	}
	return i
}

// workAt returns what a kernel worker worked on at t, and since when.
func (g *Graph) workAt(task int32, t int64) (w work, ok bool) {
	list := g.facts.works[g.tasks[task].ID.TID]
	i := lastBy(list, t, func(w *work) int64 { return w.t })
	if i < 0 {
		return w, false
	}
	if list[i].end { // it wakes who waits for the item after its end was told
		if list[i].t != t || i == 0 || list[i-1].end {
			return w, false
		}
		i--
	}
	return list[i], list[i].t >= g.tasks[task].Begin
}

// queuing finds how an item came to be worked on.
func (g *Graph) queuing(w work) (q queued, ok bool) {
	list := g.facts.queued[w.item]
	i := lastBy(list, w.t, func(q *queued) int64 { return q.t })
	if i < 0 {
		return q, false
	}
	return list[i], true
}

// inNetRX tells whether a waker is the kernel thread that does the softirqs that
// were put off (kernel/softirq.c, run_ksoftirqd): it wakes for the packet's sender.
func (g *Graph) inNetRX(task int32) bool {
	return g.tasks[task].Kernel && strings.HasPrefix(g.tasks[task].Name, "ksoftirqd/")
}

// ObjectName returns what a file descriptor of a process was at t, empty if that
// is not known.
func (g *Graph) ObjectName(pid int32, fd uint64, t int64) string {
	list := g.facts.named[descriptor{pid, fd}]
	i := lastBy(list, t, func(n *named) int64 { return n.t })
	switch {
	case i >= 0:
		return list[i].name
	case len(list) > 0:
		return list[0].name // looked up soon after it was first used
	}
	return ""
}

// DeviceName returns the name of a block device (major<<20 | minor), empty if it
// was not recorded.
func (g *Graph) DeviceName(number int32) string { return g.facts.devices[number] }

// Limits returns what is known of a cgroup's CPU limit (Cause.Cgroup), by time.
func (g *Graph) Limits(cgroup uint64) []Limit { return g.facts.limits[cgroup] }
