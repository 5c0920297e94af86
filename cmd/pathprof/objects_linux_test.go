// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent/bpf"
	"pathprof/unwind/proc"
)

// fdOf returns the number of a connection's or file's descriptor.
func fdOf(t *testing.T, c syscall.Conn) (n uint64) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { n = uint64(fd) }); err != nil {
		t.Fatal(err)
	}
	return n
}

// Descriptors that were opened long before are named as the program knows them.
func TestObjectNames(t *testing.T) {
	dir := t.TempDir()
	file, err1 := os.Create(filepath.Join(dir, "file"))
	r, w, err2 := os.Pipe()
	listener, err3 := net.Listen("tcp", "127.0.0.1:0")
	local, err4 := net.Listen("unix", filepath.Join(dir, "local"))
	epoll, err5 := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	for _, err := range []error{err1, err2, err3, err4, err5} {
		if err != nil {
			t.Fatal(err)
		}
	}
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epoll)
	for _, c := range []interface{ Close() error }{file, r, w, listener, local, conn} {
		defer c.Close()
	}
	ends := func(protocol uint16, local, peer net.Addr) bpf.File {
		return bpf.File{Protocol: protocol, Local: addrPort(local), Peer: addrPort(peer)}
	}
	listening := ends(unix.IPPROTO_TCP, listener.Addr(), nil)
	listening.Listening = true
	o := newObjects()
	for want, c := range map[string]struct {
		fd   uint64
		file bpf.File
	}{
		file.Name():                             {fd: fdOf(t, file)},
		"pipe:[INODE]":                          {fd: fdOf(t, r)},
		"tcp " + where(listener) + " listening": {fdOf(t, listener.(*net.TCPListener)), listening},
		fmt.Sprintf("tcp %v>%v", conn.LocalAddr(), conn.RemoteAddr()): {fdOf(t, conn.(*net.TCPConn)),
			ends(unix.IPPROTO_TCP, conn.LocalAddr(), conn.RemoteAddr())},
		fmt.Sprintf("tcp %v<%v", conn.RemoteAddr(), conn.LocalAddr()): {9999, // the server's end
			ends(unix.IPPROTO_TCP, conn.RemoteAddr(), conn.LocalAddr())},
		"unix " + where(local): {fd: fdOf(t, local.(*net.UnixListener))},
		"epoll":                {fd: uint64(epoll)},
	} {
		var st unix.Stat_t
		_ = unix.Fstat(int(c.fd), &st) // 9999 is not open
		c.file.Inode, c.file.Mode = st.Ino, st.Mode
		ev := sched.Event{Kind: sched.KindObject, Task: sched.Ref{PID: int32(os.Getpid())}, Object: c.fd}
		want = strings.ReplaceAll(want, "INODE", strconv.FormatUint(st.Ino, 10))
		if !o.opened(&ev, &c.file) || ev.Name != want {
			t.Errorf("descriptor %d: got %q, want %q", c.fd, ev.Name, want)
		}
		if o.opened(&ev, &c.file) {
			t.Errorf("named again: %v", ev)
		}
	}
	// At the recording's begin there is only /proc, which says the same.
	o = newObjects()
	for fd, want := range map[uint64]string{
		fdOf(t, listener.(*net.TCPListener)): "tcp " + where(listener) + " listening",
		fdOf(t, local.(*net.UnixListener)):   "unix " + where(local),
		uint64(epoll):                        "epoll",
	} {
		ev := sched.Event{Task: sched.Ref{PID: int32(os.Getpid())}, Object: fd}
		if !o.open(&ev) || ev.Name != want {
			t.Errorf("descriptor %d: got %q, want %q", fd, ev.Name, want)
		}
	}
}

func where(l net.Listener) string { return l.Addr().String() }

func addrPort(a net.Addr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	return netip.MustParseAddrPort(a.String())
}

// A number that is another file by now does not lend it its name, and a poll reads
// no more than it may.
func TestObjectsClosed(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	o := newObjects()
	ev := sched.Event{Task: sched.Ref{PID: int32(os.Getpid())}, Object: fdOf(t, file)}
	for inode := range uint64(2 * maxReads) {
		name := o.name(ev.Task.PID, ev.Object, &bpf.File{Inode: 1<<60 + inode, Mode: unix.S_IFREG, Device: 8<<20 | 1})
		if want := fmt.Sprintf("closed file, inode %d of device 8:1", uint64(1<<60)+inode); name != want {
			t.Errorf("got %q, want %q", name, want)
		}
	}
	for mode, want := range map[uint32]string{unix.S_IFIFO: "pipe:[7]", unix.S_IFSOCK: "socket:[7]"} {
		if name := o.name(1<<30, 3, &bpf.File{Inode: 7, Mode: mode}); name != want {
			t.Errorf("got %q, want %q", name, want)
		}
	}
	if o.reads != maxReads {
		t.Errorf("%d reads, want %d", o.reads, maxReads)
	}
}

// A page fault is named by the file that is mapped there, once.
func TestFaultedFile(t *testing.T) {
	maps, err := proc.Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	o := newObjects()
	fault := sched.Event{Kind: sched.KindSwitch, Time: 5, Call: sched.CallFault, Task: sched.Ref{PID: int32(os.Getpid())}}
	for _, m := range maps[:min(len(maps), 20)] {
		fault.Object = m.End - 1
		got, ok := o.faulted(&fault)
		if file := strings.HasPrefix(m.Path, "/"); ok != file || ok && (got.Name != m.Path || got.Object != fault.Object || got.Time != 5) {
			t.Errorf("at %#x: %v, %v; want %q", fault.Object, got, ok, m.Path)
		}
		if again, ok := o.faulted(&fault); ok {
			t.Errorf("named again: %v", again)
		}
	}
	fault.Call = sched.CallRead
	if got, ok := o.faulted(&fault); ok {
		t.Errorf("a call is no fault: %v", got)
	}
}

// A Unix socket is named by its ends, with the arrow towards the one that has a name.
func TestUnixNames(t *testing.T) {
	names := map[uint64]string{1: "unix /run/x", 2: "unix", 3: "unix", 4: "unix /run/x", 5: "netlink"}
	for _, c := range []struct {
		inode, peer uint64
		want        string
	}{
		{1, 0, "unix /run/x"}, // listening
		{2, 4, "unix [2]>/run/x"},
		{4, 2, "unix /run/x<[2]"}, // what was accepted has the name of what listens
		{2, 3, "unix [2]>[3]"},
		{3, 9, "unix [3]>[9]"},
		{2, 0, "unix:[2]"},
		{5, 0, "netlink"},
		{9, 0, "socket:[9]"},
	} {
		if got := unixName(names, &bpf.File{Inode: c.inode, PeerInode: c.peer}); got != c.want {
			t.Errorf("%d to %d: got %q, want %q", c.inode, c.peer, got, c.want)
		}
	}
}
