// SPDX-License-Identifier: Apache-2.0

package proc

import (
	"io"
	"os"
	"strconv"
	"strings"
)

// Descriptors lists the open file descriptors of a process.
func Descriptors(pid int) ([]int, error) { return numbers(path(pid, "fd")) }

// Descriptor returns what a file descriptor is: a path, "pipe:[INODE]",
// "socket:[INODE]", "epoll", "timerfd", "eventfd"; and its inode, 0 if unknown.
func Descriptor(pid, fd int) (name string, inode uint64, err error) {
	number := strconv.Itoa(fd)
	name, err = os.Readlink(path(pid, "fd/"+number))
	if err != nil {
		return "", 0, gone(err)
	}
	// Not stat: on overlays and btrfs its inode is another than the kernel's.
	if text, err := os.ReadFile(path(pid, "fdinfo/"+number)); err == nil {
		inode = parseInode(text)
	}
	if kind, ok := strings.CutPrefix(name, "anon_inode:"); ok {
		if name = strings.Trim(kind, "[]"); name == "eventpoll" {
			name = "epoll"
		}
	}
	return name, inode, nil
}

// parseInode reads the inode of /proc/PID/fdinfo/N, where it is since 5.14.
func parseInode(text []byte) uint64 {
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "ino:"); ok {
			inode, _ := strconv.ParseUint(strings.TrimSpace(value), 10, 64)
			return inode
		}
	}
	return 0
}

// NetNamespace names the network namespace of a process.
func NetNamespace(pid int) (string, error) { return os.Readlink(path(pid, "ns/net")) }

// maxTable bounds a table of sockets: 8 MB are some 50,000 of them.
const maxTable = 8 << 20

// ReadSockets returns the sockets in a process' network namespace. A table that
// the kernel does not have is empty; what was read before an error is returned.
func ReadSockets(pid int) (*Sockets, error) {
	s := newSockets()
	defer s.nameConnected()
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		f, err := os.Open(path(pid, "net/"+table))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return s, err
		}
		r := io.LimitReader(f, maxTable)
		if table == "unix" {
			err = s.parseUnix(r)
		} else {
			err = s.parseInet(r, strings.TrimSuffix(table, "6"))
		}
		f.Close()
		if err != nil {
			return s, err
		}
	}
	return s, nil
}
