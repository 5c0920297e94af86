// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"pathprof/join/sched"
	"pathprof/perfevent/perftest"
)

// Who waits for a Unix socket's data waits for the socket at its other end.
func TestUnixPeer(t *testing.T) {
	perftest.Require(t, perftest.BPF)
	c, err := Open(Config{BufferBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	var own, peer unix.Stat_t
	if unix.Fstat(pair[0], &own) != nil || unix.Fstat(pair[1], &peer) != nil {
		t.Fatal("no sockets")
	}
	done := make(chan error, 1)
	go func() {
		_, err := unix.Read(pair[0], make([]byte, 1))
		done <- err
	}()
	time.Sleep(50 * time.Millisecond) // mostly asleep by then
	if _, err := unix.Write(pair[1], []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var rec Record
	seen := false
	if err := c.Poll(&rec, func(r *Record) error {
		if r.Event.Kind == sched.KindObject && r.Event.Object == uint64(pair[0]) && r.File.Inode == own.Ino {
			seen = true
			if r.File.PeerInode != peer.Ino {
				t.Errorf("peer %d, want %d", r.File.PeerInode, peer.Ino)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !seen {
		t.Skip("the machine is so busy that nobody waited")
	}
}
