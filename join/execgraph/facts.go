// SPDX-License-Identifier: Apache-2.0

package execgraph

import (
	"maps"
	"sort"

	"pathprof/join/sched"
)

// On is what a task waits on.
type On struct {
	Call   sched.Call // system call, 0 none or not known
	Object uint64     // see sched.Event.Object
	// Timeout of a timed wait in ns, 0 none.
	Timeout int64
	Lock    sched.LockKind
	// Holder held the lock when the wait began: the zero Ref if not known,
	// sched.Nobody if it was free.
	Holder sched.Ref
}

// departed is a switch-out with what the task waits on.
type departed struct {
	t int64
	On
}

// reading says who held a process' GIL at a time.
type reading struct {
	t      int64
	holder int32 // thread number; nobody
}

// note is a packet's arrival or a disk's answer on a CPU.
type note struct {
	t    int64
	kind sched.Kind // KindReceive or KindIO
	seq  uint32     // receive: number of the last byte
	conn uint64     // receive: connection
	dev  int32      // io: device
	tid  int32      // io: who issued it
	took int64      // io: ns
}

// sent are bytes that left on a connection.
type sent struct {
	t      int64
	seq, n uint32
	tid    int32 // who sent; 0 if another context did
	cpu    int32
}

// queued is a work item that was queued.
type queued struct {
	t      int64
	tid    int32 // by whom, in ContextTask
	cpu    int32
	ctx    sched.Context
	vector int32
}

// work is a kernel worker's stretch with one item, or the end of one.
type work struct {
	t    int64
	item uint64
	name string
	end  bool
}

// named is what a file descriptor was from a time on.
type named struct {
	t    int64
	name string
}

// descriptor is a file descriptor of a process.
type descriptor struct {
	pid int32
	fd  uint64
}

// Limit is what cpu.stat and cpu.max said of a cgroup at a time.
type Limit struct {
	Time          int64
	Cgroup        string
	Quota, Period int64  // ns
	Periods       uint32 // throttled, since the recording began
	Throttled     int64  // ns, since the recording began
}

// facts are what events tell besides the states of tasks: each is true on its
// own, so that units are merged by putting them one after the other.
type facts struct {
	departed  map[int32][]departed // by thread number
	dumped    map[int32]On         // by thread number
	readings  map[int32][]reading  // by process
	notes     map[int32][]note     // by CPU
	sent      map[uint64][]sent    // by connection
	queued    map[uint64][]queued  // by item
	works     map[int32][]work     // by thread number
	named     map[descriptor][]named
	throttled map[int32][]throttled // by thread number
	limits    map[uint64][]Limit    // by cgroup
	devices   map[int32]string      // names by number
}

// throttled is a switch-out that a CPU limit caused.
type throttled struct {
	t      int64
	cgroup uint64
}

func newFacts() facts {
	return facts{
		departed: make(map[int32][]departed), dumped: make(map[int32]On), readings: make(map[int32][]reading), notes: make(map[int32][]note),
		sent: make(map[uint64][]sent), queued: make(map[uint64][]queued), works: make(map[int32][]work),
		named: make(map[descriptor][]named), throttled: make(map[int32][]throttled), limits: make(map[uint64][]Limit),
		devices: make(map[int32]string),
	}
}

// merge appends the facts of a unit that follows.
func (f *facts) merge(u *facts) {
	follow(f.departed, u.departed)
	maps.Copy(f.dumped, u.dumped)
	follow(f.readings, u.readings)
	follow(f.notes, u.notes)
	follow(f.sent, u.sent)
	follow(f.queued, u.queued)
	follow(f.works, u.works)
	follow(f.named, u.named)
	follow(f.throttled, u.throttled)
	follow(f.limits, u.limits)
	maps.Copy(f.devices, u.devices)
}

func follow[K comparable, V any](into, from map[K][]V) {
	for k, list := range from {
		into[k] = append(into[k], list...)
	}
}

// left notes what a task that leaves a CPU waits on, and who has the GIL.
func (f *facts) left(ev *sched.Event, blocked bool) {
	on := On{Call: ev.Call, Object: ev.Object, Timeout: ev.Timeout, Lock: ev.Lock, Holder: ev.Holder}
	if !blocked { // the holder read there is the GIL's, which it does not wait for
		on = On{Call: ev.Call, Object: ev.Object}
	}
	if tid := ev.Task.TID; on != (On{}) {
		f.departed[tid] = append(f.departed[tid], departed{ev.Time, on})
	}
	// Of another lock the holder is that lock's.
	if ev.Holder != (sched.Ref{}) && (ev.Lock == sched.LockUnknown || ev.Lock == sched.LockGIL) {
		pid := ev.Task.PID
		f.readings[pid] = append(f.readings[pid], reading{ev.Time, max(ev.Holder.TID, nobody)})
	}
}

// tell notes an event that is no change of state.
func (f *facts) tell(ev *sched.Event) {
	by := int32(0)
	if ev.Ctx == sched.ContextTask {
		by = ev.Other.TID
	}
	switch ev.Kind {
	case sched.KindObject:
		k := descriptor{ev.Task.PID, ev.Object}
		f.named[k] = append(f.named[k], named{ev.Time, ev.Name})
	case sched.KindSend:
		f.sent[ev.Conn] = append(f.sent[ev.Conn], sent{ev.Time, ev.Seq, uint32(ev.Count), by, ev.CPU})
	case sched.KindReceive:
		f.notes[ev.CPU] = append(f.notes[ev.CPU], note{t: ev.Time, kind: ev.Kind, conn: ev.Conn, seq: ev.Seq + uint32(ev.Count) - 1})
	case sched.KindIO:
		if ev.Name != "" {
			f.devices[ev.Vector] = ev.Name
		}
		f.notes[ev.CPU] = append(f.notes[ev.CPU], note{t: ev.Time, kind: ev.Kind, dev: ev.Vector, tid: ev.Task.TID, took: max(ev.Count, 0)})
	case sched.KindQueue:
		f.queued[ev.Object] = append(f.queued[ev.Object], queued{ev.Time, by, ev.CPU, ev.Ctx, ev.Vector})
	case sched.KindWork, sched.KindWorkEnd:
		tid := ev.Task.TID
		f.works[tid] = append(f.works[tid], work{ev.Time, ev.Object, ev.Name, ev.Kind == sched.KindWorkEnd})
	case sched.KindThrottle:
		f.limited(ev)
	}
}

func (f *facts) limited(ev *sched.Event) {
	if tid := ev.Task.TID; tid != 0 {
		f.throttled[tid] = append(f.throttled[tid], throttled{ev.Time, ev.Conn})
		return
	}
	f.limits[ev.Conn] = append(f.limits[ev.Conn], Limit{Time: ev.Time, Cgroup: ev.Name, Quota: int64(ev.Object),
		Period: ev.Timeout, Periods: ev.Seq, Throttled: ev.Count})
}

// lastBy returns the index of the last element at or before t, -1 if there is none.
func lastBy[V any](list []V, t int64, at func(*V) int64) int {
	return sort.Search(len(list), func(i int) bool { return at(&list[i]) > t }) - 1
}

// on returns what a task waits on since it left its CPU at t.
func (f *facts) on(tid int32, t int64) On {
	if t == never {
		return f.dumped[tid]
	}
	list := f.departed[tid]
	if i := lastBy(list, t, func(d *departed) int64 { return d.t }); i >= 0 && list[i].t == t {
		return list[i].On
	}
	return On{}
}

// limit returns the cgroup whose limit took a task off its CPU at t.
func (f *facts) limit(tid int32, t int64) (cgroup uint64, ok bool) {
	list := f.throttled[tid]
	if i := lastBy(list, t, func(d *throttled) int64 { return d.t }); i >= 0 && list[i].t == t {
		return list[i].cgroup, true
	}
	return 0, false
}
