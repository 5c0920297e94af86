// SPDX-License-Identifier: Apache-2.0

package execgraph

// nobody is the thread number in a lane where it is not known who had the CPU.
const nobody int32 = -1

// turn is an interval of a lane. It ends where the next one begins.
type turn struct {
	begin int64
	tid   int32 // 0 idle; nobody
	task  int32 // in a Graph: index of the task, -1 if none
	why   why   // nobody: why
}

// lane is who had one CPU. A CPU of which nobody is known to have it was had by
// one task since that became so: the first switch says by whom.
type lane struct {
	known bool
	why   why   // not known: why
	tid   int32 // known: who has it
	since int64
	last  int64 // last event of this CPU
	turns []turn
	// first is the first event of a unit that names who has the CPU or loses it;
	// while there is none (pending), the lane is as earlier units left it.
	first   naming
	pending bool
}

// naming is a switch or a loss on a CPU.
type naming struct {
	idx        int
	t          int64
	lost       bool
	prev, next int32
	// alias is another number that the one who leaves may have, 0 if none.
	alias int32
	last  int64 // last event before it within the unit, never if none
}

// departure tells that a task had left a CPU unseen.
type departure struct {
	tid  int32 // 0 if there is none
	last int64 // when it was last known to be there
	why  why
}

func newLane(pending bool) *lane {
	return &lane{why: whyOutside, since: never, last: never, pending: pending}
}

func (n *lane) close(t int64, tid int32, w why) {
	if t > n.since {
		n.turns = append(n.turns, turn{begin: n.since, tid: tid, task: -1, why: w})
		n.since = t
	}
}

// name advances the lane by a switch or a loss.
func (n *lane) name(e naming) (d departure) {
	if n.known && e.alias != 0 && n.tid == e.alias {
		e.prev = e.alias
	}
	switch {
	case n.pending:
		n.pending, n.first = false, e
		n.first.last = n.last
	case n.known && (e.lost || n.tid != e.prev):
		d = departure{tid: n.tid, last: n.last, why: whyNoSwitch}
		if e.lost {
			d.why = whyLost
		}
		n.close(n.last, n.tid, whyNone)
		n.close(e.t, nobody, d.why)
	case e.lost:
		n.close(e.t, nobody, n.why)
	default:
		n.close(e.t, e.prev, whyNone)
	}
	n.known, n.tid, n.why = !e.lost, e.next, whyNone
	if e.lost {
		n.tid, n.why = nobody, whyLost
	}
	n.since, n.last = e.t, e.t
	return d
}

// proof is since when the task that leaves the CPU at t is sure to have had it,
// if it was not seen to come.
func (n *lane) proof(t int64) int64 {
	if n.known {
		return t
	}
	return n.since
}

// merge appends what a unit saw of the lane. It returns who left unseen at
// the border, with the unit's event that shows it.
func (n *lane) merge(u *lane) (departure, naming) {
	if u.pending {
		n.last = max(n.last, u.last)
		return departure{}, naming{}
	}
	n.last = max(n.last, u.first.last)
	d := n.name(u.first)
	n.turns = append(n.turns, u.turns...)
	n.known, n.why, n.tid, n.since, n.last = u.known, u.why, u.tid, u.since, u.last
	return d, u.first
}
