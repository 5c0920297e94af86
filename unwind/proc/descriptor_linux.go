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

// Descriptor returns what a file descriptor is: a path, "pipe:[INODE]", "epoll",
// "timerfd", "eventfd", or for a socket "socket:[INODE]" and its inode.
func Descriptor(pid, fd int) (name string, socket uint64, err error) {
	name, err = os.Readlink(path(pid, "fd/"+strconv.Itoa(fd)))
	if err != nil {
		return "", 0, gone(err)
	}
	if inode, ok := strings.CutPrefix(name, "socket:["); ok {
		socket, _ = strconv.ParseUint(strings.TrimSuffix(inode, "]"), 10, 64)
	}
	if kind, ok := strings.CutPrefix(name, "anon_inode:"); ok {
		if name = strings.Trim(kind, "[]"); name == "eventpoll" {
			name = "epoll"
		}
	}
	return name, socket, nil
}

// NetNamespace names the network namespace of a process.
func NetNamespace(pid int) (string, error) { return os.Readlink(path(pid, "ns/net")) }

// maxTable bounds a table of sockets: 8 MB are some 50,000 of them.
const maxTable = 8 << 20

// Sockets returns the names of the sockets in a process' network namespace, by
// inode; see Descriptor. A table that the kernel does not have is empty.
func Sockets(pid int) (map[uint64]string, error) {
	names := map[uint64]string{}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "unix"} {
		f, err := os.Open(path(pid, "net/"+table))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return names, err
		}
		r := io.LimitReader(f, maxTable)
		if table == "unix" {
			err = parseUnix(r, names)
		} else {
			err = parseInet(r, strings.TrimSuffix(table, "6"), names)
		}
		f.Close()
		if err != nil {
			return names, err
		}
	}
	return names, nil
}
