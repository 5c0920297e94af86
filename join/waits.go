// SPDX-License-Identifier: Apache-2.0

package join

import (
	"fmt"
	"strconv"
	"strings"

	"pathprof/join/execgraph"
	"pathprof/join/sched"
)

// WaitInfo is what is known of one wait of a path's target, beside
// [execgraph.Wait]. Words are empty where nothing is known.
type WaitInfo struct {
	Cause Reason
	// In is the system call and its object: "read of pipe:[33]".
	In string
	// Holder is the thread that held the lock when the wait began.
	Holder string
	// WokenIn is the innermost Python function (else native, else kernel) of the
	// waker, with file and line, where it ended the wait.
	WokenIn string
}

// maxObjects bounds the objects that classes of one path are told apart by: a
// server has a socket for each request. Those beyond are named by their kind.
const maxObjects = 64

// objects names what waits are in, for the classes of one path.
type objects struct {
	j    *joiner
	seen map[string]bool
}

// in returns the words for what a wait is in, full and as a class has them.
func (o *objects) in(on *execgraph.On, pid int32, at int64) (full, class string) {
	full = o.j.in(on, pid, at, true)
	class = alikeIn(full)
	if o.seen[class] {
		return full, class
	}
	if len(o.seen) >= maxObjects {
		return full, o.j.in(on, pid, at, false)
	}
	o.seen[class] = true
	return full, class
}

// alikeIn leaves what stays the same when a client connects anew, or another child is
// waited for: "tcp 10.0.0.2:4000>10.0.0.1:80" becomes "tcp >10.0.0.1:80", "unix
// [77]>/run/x" "unix >/run/x", and "for child 77" "for a child".
func alikeIn(in string) string {
	if head, _, ok := strings.Cut(in, forChild); ok {
		return head + " for a child"
	}
	for _, kind := range []string{" of tcp ", " of unix "} {
		head, ends, ok := strings.Cut(in, kind)
		if !ok {
			continue
		}
		if i := strings.IndexByte(ends, '>'); i >= 0 {
			return head + kind + ends[i:]
		}
		if i := strings.IndexByte(ends, '<'); i >= 0 {
			return head + kind + ends[:i+1]
		}
	}
	return in
}

const forChild = " for child "

// lockWords are the kinds of locks as a sentence has them.
var lockWords = map[sched.LockKind]string{
	sched.LockGIL:       "the GIL",
	sched.LockMutex:     "a mutex",
	sched.LockSemaphore: "a semaphore",
	sched.LockPyMutex:   "a PyMutex",
	sched.LockCondition: "a condition",
}

// fdCalls take a file descriptor first, those of epoll the epoll's own.
var fdCalls = map[sched.Call]bool{
	sched.CallRead: true, sched.CallWrite: true, sched.CallPread64: true, sched.CallReadv: true, sched.CallWritev: true,
	sched.CallConnect: true, sched.CallAccept: true, sched.CallAccept4: true, sched.CallSendto: true, sched.CallSendmsg: true,
	sched.CallRecvfrom: true, sched.CallRecvmsg: true, sched.CallFlock: true, sched.CallFsync: true, sched.CallFdatasync: true,
	sched.CallEpollWait: true, sched.CallEpollPwait: true, sched.CallEpollPwait2: true,
}

// in says which system call a task is in, and on what, in full or by the kind
// of the object.
func (j *joiner) in(on *execgraph.On, pid int32, at int64, full bool) string {
	call := on.Call.String()
	switch {
	case on.Call == 0:
		return ""
	case on.Call == sched.CallFutex:
		if lock := lockWords[on.Lock]; lock != "" {
			return call + ": " + lock
		}
		return call
	case on.Call == sched.CallWait4, on.Call == sched.CallWaitid:
		if child := int32(on.Object); child > 0 && full {
			return call + forChild + strconv.Itoa(int(child))
		}
		return call + " for a child"
	case on.Call == sched.CallFault:
		if name := j.graph.ObjectName(pid, on.Object, at); on.Object != 0 && name != "" {
			return "page fault in " + name
		}
		return "page fault"
	case !fdCalls[on.Call] || j.graph == nil:
		return call
	}
	name := j.graph.ObjectName(pid, on.Object, at)
	if name == "" {
		return call + " of fd " + strconv.FormatUint(on.Object, 10)
	}
	if !full {
		name = objectKind(name)
	}
	return call + " of " + name
}

// objectKind is the kind of a named object: pipe, tcp, socket, file.
func objectKind(name string) string {
	if strings.HasPrefix(name, "/") {
		return "a file"
	}
	return strings.TrimRight(name[:len(name)-len(strings.TrimLeft(name, "abcdefghijklmnopqrstuvwxyz0123456789"))], ":")
}

// waitInfo describes a wait of the target in words.
func (j *joiner) waitInfo(o *objects, pid int32, w *execgraph.Wait) (info WaitInfo, class string) {
	info.Cause = j.names.reason(w.Cause)
	info.In, class = o.in(&w.On, pid, w.Begin)
	if w.Holder.TID != 0 {
		info.Holder = j.names.label(w.Holder)
	}
	if w.WakerStack != 0 {
		info.WokenIn = placeIn(j.stacks.waited(w.WakerStack))
	}
	return info, class
}

// placeIn is the innermost frame of a stack that a person wrote: Python if there is
// any, else native, else the kernel's.
func placeIn(s *Stack) string {
	for _, kind := range []string{KindPython, KindNative, KindKernel} {
		for i := range s.Frames {
			if f := &s.Frames[i]; f.Kind == kind {
				return framePlace(f)
			}
		}
	}
	return ""
}

func framePlace(f *Frame) string {
	if f.File == "" {
		return f.Name
	}
	file := f.File[strings.LastIndexByte(f.File, '/')+1:]
	if f.Line <= 0 {
		return fmt.Sprintf("%s (%s)", f.Name, file)
	}
	return fmt.Sprintf("%s (%s:%d)", f.Name, file, f.Line)
}

// at says what a task other than the target is in while it is off the CPU.
func (j *joiner) at(o *objects, seg *execgraph.Segment) string {
	if seg.Depth == 0 || seg.State != execgraph.Blocked || j.graph == nil {
		return ""
	}
	v, ok := j.graph.StateAt(seg.Task, seg.Begin)
	if !ok {
		return ""
	}
	_, class := o.in(&v.On, j.names.of(seg.Task).PID, seg.Begin)
	return class
}
