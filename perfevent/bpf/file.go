// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"pathprof/join/sched"
)

// File is what a file descriptor is at the moment a task waits on it.
type File struct {
	Inode uint64
	// Device is that of the file system, major<<20 | minor.
	Device uint32
	// Mode has the type of the file: stat(2), st_mode.
	Mode uint32
	// Protocol is a TCP or UDP socket's (IPPROTO_TCP, IPPROTO_UDP), 0 of others.
	Protocol uint16
	// Listening: the socket is a TCP socket that accepts connections.
	Listening bool
	// Local and Peer are the ends of such a socket; Peer's port is 0 if it has none.
	Local, Peer netip.AddrPort
	// PeerInode is that of the socket a Unix socket is connected to, 0 for none.
	PeerInode uint64
}

const (
	fileSize = 120
	// From the kernel: include/linux/socket.h, include/net/tcp_states.h.
	familyUnix, familyInet, familyInet6 = 1, 2, 10
	stateListen                         = 10
)

// decodeFile reads a struct file_event of c/event.h.
func (rec *Record) decodeFile(raw []byte) error {
	if len(raw) < fileSize {
		return fmt.Errorf("file of %d bytes", len(raw))
	}
	le := binary.LittleEndian
	ev := &rec.Event
	*ev = sched.Event{Kind: sched.KindObject, Time: ev.Time, CPU: ev.CPU,
		Task: sched.Ref{TID: ev.Task.PID, PID: ev.Task.PID}, Object: uint64(rec.Value)}
	rec.File = File{
		Inode:  le.Uint64(raw[16:]),
		Device: le.Uint32(raw[36:]),
		Mode:   le.Uint32(raw[56:]),
	}
	if le.Uint16(raw[72:]) == familyUnix {
		rec.File.PeerInode = le.Uint64(raw[96:])
	}
	size := map[uint16]int{familyInet: 4, familyInet6: 16}[le.Uint16(raw[72:])]
	if size == 0 {
		return nil
	}
	f := &rec.File
	f.Protocol = le.Uint16(raw[74:])
	f.Listening = raw[112] == stateListen
	f.Local = endpoint(raw[80:80+size], le.Uint16(raw[76:]))
	f.Peer = endpoint(raw[96:96+size], le.Uint16(raw[78:]))
	return nil
}

func endpoint(address []byte, port uint16) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(address) // 4 or 16 bytes
	return netip.AddrPortFrom(ip.Unmap(), port)
}
