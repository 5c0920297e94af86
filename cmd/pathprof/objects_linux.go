// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pathprof/join/sched"
	"pathprof/unwind/proc"
)

// objects tells what the file descriptors are that tasks wait on: all of the
// targets' when recording begins, others when a wait on them is first seen, and
// again after a while, since a number is used again. What is closed before the
// next poll stays without a name.
type objects struct {
	known map[descriptor]objectName
	nets  map[string]*sockets // by network namespace
	reads int                 // of this poll
	// devices are names of block devices by number.
	devices map[int32]string
}

type descriptor struct {
	pid int32
	fd  uint64
}

type objectName struct {
	name string
	at   int64 // when it was read, ns
}

// sockets are those of a network namespace.
type sockets struct {
	names map[uint64]string
	at    time.Time
}

// Bounds of what is read: a busy machine has more waits than could be looked up.
const (
	maxReads       = 200              // a poll
	maxDescriptors = 1 << 16          // remembered
	maxAtBegin     = 4096             // of one target when recording begins
	freshFor       = int64(50e6)      // ns for which a name is believed
	tableEvery     = time.Second / 10 // the tables of sockets are read again
)

func newObjects() *objects {
	return &objects{known: map[descriptor]objectName{}, nets: map[string]*sockets{}, devices: map[int32]string{}}
}

// waitsOnDescriptor tells whether a call's object is a file descriptor. A poll of
// several has the address of their list.
func waitsOnDescriptor(ev *sched.Event) bool {
	switch ev.Call {
	case 0, sched.CallFutex, sched.CallWait4, sched.CallWaitid, sched.CallNanosleep, sched.CallClockNanosleep,
		sched.CallSelect, sched.CallPselect6, sched.CallSchedYield:
		return false
	case sched.CallPoll, sched.CallPpoll:
		return ev.Object < 1<<31
	}
	return descriptorCalls[ev.Call.String()]
}

// descriptorCalls have a file descriptor as their first argument.
var descriptorCalls = func() map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(`read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2
		sendfile splice recvfrom recvmsg recvmmsg sendto sendmsg sendmmsg accept accept4 connect fsync fdatasync
		sync_file_range syncfs ftruncate fallocate flock fcntl ioctl fstat getdents64 epoll_wait epoll_pwait
		epoll_pwait2 io_uring_enter`) {
		m[name] = true
	}
	return m
}()

// poll begins a new poll.
func (o *objects) poll() { o.reads = 0 }

// waited returns the event that names what a task waits on, false if it is known
// or cannot be known.
func (o *objects) waited(ev *sched.Event) (sched.Event, bool) {
	if !sched.Blocked(ev.State, ev.Preempt) || !waitsOnDescriptor(ev) {
		return sched.Event{}, false
	}
	return o.look(descriptor{ev.Task.PID, ev.Object}, ev.Time, ev.CPU)
}

// look reads what a descriptor is, unless that was done a moment ago.
func (o *objects) look(d descriptor, at int64, cpu int32) (sched.Event, bool) {
	was, ok := o.known[d]
	if ok && at-was.at < freshFor || o.reads >= maxReads {
		return sched.Event{}, false
	}
	o.reads++
	name, inode, err := proc.Descriptor(int(d.pid), int(d.fd))
	if err != nil {
		return sched.Event{}, false // closed, or its process has ended
	}
	if inode != 0 {
		if known := o.socket(d.pid, inode); known != "" {
			name = known
		}
	}
	if len(o.known) >= maxDescriptors {
		clear(o.known)
	}
	o.known[d] = objectName{name, at}
	if ok && was.name == name {
		return sched.Event{}, false
	}
	return sched.Event{Kind: sched.KindObject, Time: at, CPU: cpu,
		Task: sched.Ref{TID: d.pid, PID: d.pid}, Object: d.fd, Name: name}, true
}

// socket names a socket, empty if it is in no table.
func (o *objects) socket(pid int32, inode uint64) string {
	namespace, err := proc.NetNamespace(int(pid))
	if err != nil {
		return ""
	}
	s := o.nets[namespace]
	if s == nil {
		s = &sockets{}
		o.nets[namespace] = s
	}
	name, ok := s.names[inode]
	if ok || time.Since(s.at) < tableEvery {
		return withInode(name, inode)
	}
	s.at = time.Now()
	names, err := proc.Sockets(int(pid))
	if err != nil && len(names) == 0 {
		return ""
	}
	s.names = names
	return withInode(names[inode], inode)
}

// withInode tells sockets apart that have no name.
func withInode(name string, inode uint64) string {
	if name == "unix" {
		return "unix:[" + strconv.FormatUint(inode, 10) + "]"
	}
	return name
}

// device names a block device by its number, major<<20 | minor.
func (o *objects) device(number int32) string {
	name, ok := o.devices[number]
	if !ok {
		// A link to the device's folder, e.g. ../../devices/…/block/vda.
		link, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", number>>20, number&(1<<20-1)))
		if err == nil {
			name = filepath.Base(link)
		}
		o.devices[number] = name
	}
	return name
}

// dumpObjects writes what the targets have open when recording begins.
func (s *session) dumpObjects(at int64) error {
	for _, t := range s.targets.list() {
		fds, err := proc.Descriptors(int(t.pid))
		if err != nil {
			continue // gone meanwhile
		}
		for _, fd := range fds[:min(len(fds), maxAtBegin)] {
			s.objects.poll()
			ev, ok := s.objects.look(descriptor{t.pid, uint64(fd)}, at, -1)
			if !ok {
				continue
			}
			if err := s.out.Event(ev); err != nil {
				return err
			}
			s.events++
		}
	}
	return nil
}
