// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent/bpf"
	"pathprof/unwind/proc"
)

// objects names the file descriptors that tasks wait on. The kernel's side says
// which file a descriptor is, when that is news; a name from /proc is read later
// and only believed if it is that file's. What is closed by then is named by what
// the kernel said.
type objects struct {
	known map[descriptor]objectName
	nets  map[string]*sockets // by network namespace
	reads int                 // of this poll
	// devices are names of block devices by number.
	devices map[int32]string
	maps    map[int32]*mappings // of processes
}

// mappings of a process.
type mappings struct {
	list []proc.Mapping
	read time.Time
}

type descriptor struct {
	pid int32
	fd  uint64
}

type objectName struct {
	name  string
	inode uint64
}

// sockets are those of a network namespace.
type sockets struct {
	*proc.Sockets
	at time.Time
}

// Bounds of what is read: a busy machine has more waits than could be looked up.
const (
	maxReads       = 200              // a poll
	maxDescriptors = 1 << 16          // remembered
	maxAtBegin     = 4096             // of one target when recording begins
	tableEvery     = time.Second / 10 // the tables of sockets are read again
	mapsEvery      = time.Second / 50 // and mappings, for an address in none of them
	maxMapped      = 64               // processes whose mappings are remembered
)

func newObjects() *objects {
	return &objects{known: map[descriptor]objectName{}, nets: map[string]*sockets{}, devices: map[int32]string{}, maps: map[int32]*mappings{}}
}

// poll begins a new poll.
func (o *objects) poll() { o.reads = 0 }

// opened gives an event that says what a descriptor is its name, false if it had
// that name before.
func (o *objects) opened(ev *sched.Event, f *bpf.File) bool {
	pid := ev.Task.PID
	name := o.name(pid, ev.Object, f)
	d := descriptor{pid, ev.Object}
	now := objectName{name, f.Inode}
	if o.known[d] == now {
		return false
	}
	if len(o.known) >= maxDescriptors {
		clear(o.known)
	}
	o.known[d] = now
	ev.Name = name
	return true
}

// name names a file.
func (o *objects) name(pid int32, fd uint64, f *bpf.File) string {
	inode := strconv.FormatUint(f.Inode, 10)
	protocol := map[uint16]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp"}[f.Protocol]
	switch {
	case f.Listening:
		return protocol + " " + f.Local.String() + " listening"
	case protocol != "":
		return o.table(pid, func(s *proc.Sockets) string { return s.Ends(protocol, f.Local, f.Peer) })
	case f.Mode&unix.S_IFMT == unix.S_IFSOCK:
		return o.table(pid, func(s *proc.Sockets) string { return unixName(s.Names, f) })
	}
	if o.reads < maxReads {
		o.reads++
		name, found, err := proc.Descriptor(int(pid), int(fd))
		if err == nil && found == f.Inode {
			return name
		}
	}
	if f.Mode&unix.S_IFMT == unix.S_IFIFO {
		return "pipe:[" + inode + "]"
	}
	return fmt.Sprintf("closed file, inode %s of device %d:%d", inode, f.Device>>20, f.Device&(1<<20-1))
}

// unixName names a socket without addresses by what /proc calls it and its peer,
// the arrow towards the one that has a name.
func unixName(names map[uint64]string, f *bpf.File) string {
	inode := func(n uint64) string { return "[" + strconv.FormatUint(n, 10) + "]" }
	name := names[f.Inode]
	if name != "" && !strings.HasPrefix(name, "unix") {
		return name
	}
	if f.PeerInode == 0 {
		if name == "" || name == "unix" {
			return cmp.Or(name, "socket") + ":" + inode(f.Inode)
		}
		return name
	}
	own, named := strings.CutPrefix(name, "unix ")
	peer, _ := strings.CutPrefix(names[f.PeerInode], "unix ")
	if peer == "" || peer == "unix" {
		peer = inode(f.PeerInode)
	}
	if named {
		return "unix " + own + "<" + peer
	}
	return "unix " + inode(f.Inode) + ">" + peer
}

// table asks the tables of sockets of a process' network namespace, and again
// when they are read anew if the answer could have changed.
func (o *objects) table(pid int32, ask func(*proc.Sockets) string) string {
	namespace, err := proc.NetNamespace(int(pid))
	if err != nil {
		return ask(&proc.Sockets{}) // its process has ended
	}
	s := o.nets[namespace]
	if s == nil {
		s = &sockets{Sockets: &proc.Sockets{}}
		o.nets[namespace] = s
	}
	if time.Since(s.at) >= tableEvery {
		s.at = time.Now()
		if read, err := proc.ReadSockets(int(pid)); err == nil {
			s.Sockets = read
		}
	}
	return ask(s.Sockets)
}

// faulted returns the event that names the file in whose page a task waits, false
// if it does not, or the name is known.
func (o *objects) faulted(ev *sched.Event) (sched.Event, bool) {
	if ev.Call != sched.CallFault || ev.Object == 0 {
		return sched.Event{}, false
	}
	d := descriptor{ev.Task.PID, ev.Object}
	now := objectName{name: o.mapped(d)}
	if now.name == "" || o.known[d] == now {
		return sched.Event{}, false
	}
	if len(o.known) >= maxDescriptors {
		clear(o.known)
	}
	o.known[d] = now
	return sched.Event{Kind: sched.KindObject, Time: ev.Time, CPU: ev.CPU,
		Task: sched.Ref{TID: d.pid, PID: d.pid}, Object: d.fd, Name: now.name}, true
}

// mapped returns the file that is mapped at an address, empty if none is.
func (o *objects) mapped(d descriptor) string {
	m := o.maps[d.pid]
	if name, ok := m.at(d.fd); ok || m != nil && time.Since(m.read) < mapsEvery || o.reads >= maxReads {
		return name
	}
	o.reads++
	if len(o.maps) >= maxMapped {
		clear(o.maps)
	}
	m = &mappings{read: time.Now()}
	m.list, _ = proc.Maps(int(d.pid)) // an ended process has none
	o.maps[d.pid] = m
	name, _ := m.at(d.fd)
	return name
}

// at returns the file at an address, false if there is none.
func (m *mappings) at(address uint64) (string, bool) {
	if m == nil {
		return "", false
	}
	i := sort.Search(len(m.list), func(i int) bool { return m.list[i].End > address })
	if i == len(m.list) || m.list[i].Start > address || !strings.HasPrefix(m.list[i].Path, "/") {
		return "", false
	}
	return m.list[i].Path, true
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

// dumpObjects writes what the targets have open when recording begins: waits that
// are under way then began before anything was said of their descriptors.
func (s *session) dumpObjects(at int64) error {
	for _, t := range s.targets.list() {
		fds, err := proc.Descriptors(int(t.pid))
		if err != nil {
			continue // gone meanwhile
		}
		for _, fd := range fds[:min(len(fds), maxAtBegin)] {
			ev := sched.Event{Kind: sched.KindObject, Time: at, CPU: -1,
				Task: sched.Ref{TID: t.pid, PID: t.pid}, Object: uint64(fd)}
			if !s.objects.open(&ev) {
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

// open names a descriptor by /proc alone, false if it is closed.
func (o *objects) open(ev *sched.Event) bool {
	pid := ev.Task.PID
	name, inode, err := proc.Descriptor(int(pid), int(ev.Object))
	if err != nil {
		return false
	}
	if strings.HasPrefix(name, "socket:") {
		known := o.table(pid, func(s *proc.Sockets) string { return s.Names[inode] })
		if known != "" && known != "unix" {
			name = known
		} else if known == "unix" {
			name = "unix" + strings.TrimPrefix(name, "socket")
		}
	}
	o.known[descriptor{pid, ev.Object}] = objectName{name, inode}
	ev.Name = name
	return true
}
