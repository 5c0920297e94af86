// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// tcpListen is TCP_LISTEN of include/net/tcp_states.h.
const tcpListen = "0A"

// Sockets are those of a network namespace.
type Sockets struct {
	// Names are by inode: "tcp 10.0.0.1:80 listening", "unix /run/x", "unix" for
	// one without a name, and as Ends has it.
	Names map[uint64]string
	// listening are the TCP ports on which connections are accepted.
	listening map[uint16]bool
	connected []connection
}

type connection struct {
	inode       uint64
	protocol    string
	local, peer netip.AddrPort
}

func newSockets() *Sockets {
	return &Sockets{Names: map[uint64]string{}, listening: map[uint16]bool{}}
}

// Ends names a socket of a protocol by its ends, its own first and the arrow
// towards the one that listens: "tcp 10.0.0.2:4000>10.0.0.1:80", or, if that is
// this one, "tcp 10.0.0.1:80<10.0.0.2:4000".
func (s *Sockets) Ends(protocol string, local, peer netip.AddrPort) string {
	if peer.Port() == 0 {
		return protocol + " " + local.String()
	}
	arrow := ">"
	if s.listening[local.Port()] {
		arrow = "<"
	}
	return protocol + " " + local.String() + arrow + peer.String()
}

// nameConnected names connections, when all that listen are known.
func (s *Sockets) nameConnected() {
	for _, c := range s.connected {
		s.Names[c.inode] = s.Ends(c.protocol, c.local, c.peer)
	}
	s.connected = nil
}

// parseInet reads a table of /proc/net/{tcp,tcp6,udp,udp6}. What has no inode (a
// connection in TIME_WAIT) belongs to nobody and is left out.
func (s *Sockets) parseInet(r io.Reader, protocol string) error {
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 10 {
			return fmt.Errorf("socket: %q", lines.Text())
		}
		local, err := parseEndpoint(f[1])
		if err != nil {
			return err
		}
		peer, err := parseEndpoint(f[2])
		if err != nil {
			return err
		}
		inode, err := strconv.ParseUint(f[9], 10, 64)
		if err != nil {
			return fmt.Errorf("inode of a socket: %w", err)
		}
		switch {
		case inode == 0:
		case protocol == "tcp" && f[3] == tcpListen:
			s.Names[inode] = protocol + " " + local.String() + " listening"
			s.listening[local.Port()] = true
		default:
			s.connected = append(s.connected, connection{inode, protocol, local, peer})
		}
	}
	return lines.Err()
}

// parseEndpoint reads ADDRESS:PORT in hexadecimal; the address is 32-bit words in
// the machine's byte order (net/ipv4/tcp_ipv4.c, get_tcp4_sock).
func parseEndpoint(text string) (netip.AddrPort, error) {
	address, port, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if !ok || err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, fmt.Errorf("address of a socket: %q", text)
	}
	for i := 0; i < len(raw); i += 4 {
		binary.BigEndian.PutUint32(raw[i:], binary.NativeEndian.Uint32(raw[i:]))
	}
	ip, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("address of a socket: %q", text)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("port of a socket: %w", err)
	}
	return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
}

// parseUnix reads /proc/net/unix.
func (s *Sockets) parseUnix(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Scan()
	for lines.Scan() {
		// Num RefCount Protocol Flags Type St Inode Path: a path may hold blanks.
		f := strings.Fields(lines.Text())
		if len(f) < 7 {
			return fmt.Errorf("socket: %q", lines.Text())
		}
		inode, err := strconv.ParseUint(f[6], 10, 64)
		if err != nil {
			return fmt.Errorf("inode of a socket: %w", err)
		}
		s.Names[inode] = strings.TrimRight("unix "+strings.Join(f[7:], " "), " ")
	}
	return lines.Err()
}
