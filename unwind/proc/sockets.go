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

// parseInet reads a table of /proc/net/{tcp,tcp6,udp,udp6} into names by inode: of
// a connection's two ends "tcp 10.0.0.2:4000>10.0.0.1:80", the socket's own end
// first and the arrow towards the end that listens, if that is this one
// "tcp 10.0.0.1:80<10.0.0.2:4000"; "tcp 0.0.0.0:80 listening". What has no inode
// (a connection in TIME_WAIT) belongs to nobody and is left out.
func parseInet(r io.Reader, protocol string, names map[uint64]string) error {
	type ends struct {
		inode       uint64
		local, peer netip.AddrPort
	}
	var connected []ends
	listens := make(map[uint16]bool)
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
		case peer.Port() != 0:
			connected = append(connected, ends{inode, local, peer})
		case protocol == "tcp" && f[3] == tcpListen:
			names[inode] = protocol + " " + local.String() + " listening"
			listens[local.Port()] = true
		default:
			names[inode] = protocol + " " + local.String()
		}
	}
	for _, e := range connected {
		arrow := ">"
		if listens[e.local.Port()] {
			arrow = "<"
		}
		names[e.inode] = protocol + " " + e.local.String() + arrow + e.peer.String()
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

// parseUnix reads /proc/net/unix into names by inode: "unix /run/x", "unix @x",
// "unix" for a socket without a name.
func parseUnix(r io.Reader, names map[uint64]string) error {
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
		names[inode] = strings.TrimRight("unix "+strings.Join(f[7:], " "), " ")
	}
	return lines.Err()
}
