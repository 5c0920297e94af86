// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
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
	var st unix.Stat_t
	if err := unix.Fstat(int(fdOf(t, r)), &st); err != nil {
		t.Fatal(err)
	}
	o := newObjects()
	for fd, want := range map[uint64]string{
		fdOf(t, file):                        file.Name(),
		fdOf(t, r):                           fmt.Sprintf("pipe:[%d]", st.Ino),
		fdOf(t, listener.(*net.TCPListener)): fmt.Sprintf("tcp %v listening", listener.Addr()),
		fdOf(t, conn.(*net.TCPConn)):         fmt.Sprintf("tcp %v>%v", conn.LocalAddr(), conn.RemoteAddr()),
		fdOf(t, local.(*net.UnixListener)):   fmt.Sprintf("unix %v", local.Addr()),
		uint64(epoll):                        "epoll",
	} {
		ev := sched.Event{Kind: sched.KindSwitch, Time: 100, CPU: 1, State: sched.StateInterruptible,
			Task: sched.Ref{TID: 1, PID: int32(os.Getpid())}, Call: sched.CallRead, Object: fd}
		got, ok := o.waited(&ev)
		if !ok || got.Name != want || got.Object != fd || got.Time != 100 {
			t.Errorf("descriptor %d: got %v, want %s", fd, got, want)
		}
		if again, ok := o.waited(&ev); ok {
			t.Errorf("named again: %v", again)
		}
	}
}

// Only waits on descriptors are looked up, and a poll reads no more than it may.
func TestObjectsBounded(t *testing.T) {
	o := newObjects()
	ev := sched.Event{Kind: sched.KindSwitch, State: sched.StateInterruptible,
		Task: sched.Ref{TID: 1, PID: int32(os.Getpid())}, Call: sched.CallFutex}
	if got, ok := o.waited(&ev); ok || o.reads > 0 {
		t.Errorf("a futex is %v, %d reads", got, o.reads)
	}
	ev.Call = sched.CallRead
	for fd := range uint64(2 * maxReads) {
		ev.Object = 1<<20 + fd // not open
		if got, ok := o.waited(&ev); ok {
			t.Errorf("not open, but %v", got)
		}
	}
	if o.reads != maxReads {
		t.Errorf("%d reads, want %d", o.reads, maxReads)
	}
}
