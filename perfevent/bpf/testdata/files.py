# SPDX-License-Identifier: Apache-2.0
"""Waits on one descriptor number, which is another file each time, and prints for
each: inode, local end, peer, or - for none."""

import os
import select
import socket
import sys
import threading
import time

FD = 77


def polling():
    """Tells whether the main thread sleeps in poll (amd64) or ppoll (arm64)."""
    with open("/proc/%d/syscall" % os.getpid()) as f:
        return f.read().split()[0] in ("7", "73")


def when_asleep(wake):
    """Calls wake when the main thread sleeps, however busy the machine is."""
    while not polling():
        time.sleep(0.005)
    wake()


def wait(fd, wake):
    """Waits on FD, which becomes what fd is, until wake has woken it."""
    os.dup2(fd, FD)
    ends = ["-", "-"]
    if os.fstat(FD).st_mode & 0o170000 == 0o140000:
        with socket.socket(fileno=os.dup(FD)) as s:
            if s.family == socket.AF_INET:
                ends[0] = "%s:%d" % s.getsockname()
                try:
                    ends[1] = "%s:%d" % s.getpeername()
                except OSError:
                    pass
    waker = threading.Thread(target=when_asleep, args=(wake,))
    waker.start()
    poll = select.poll()
    poll.register(FD, select.POLLIN)
    poll.poll()
    waker.join()
    print(os.fstat(FD).st_ino, *ends, flush=True)


print("ready", flush=True)
sys.stdin.readline()
for _ in range(2):
    r, w = os.pipe()
    wait(r, lambda: os.write(w, b"x"))
    os.close(r)
    os.close(w)
a, b = socket.socketpair()
wait(a.fileno(), lambda: b.send(b"x"))
server = socket.create_server(("127.0.0.1", 0))
clients = []
wait(server.fileno(), lambda: clients.append(socket.create_connection(server.getsockname())))
accepted, _ = server.accept()
wait(accepted.fileno(), lambda: clients[0].send(b"x"))
wait(clients[0].fileno(), lambda: accepted.send(b"x"))
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 0))
wait(udp.fileno(), lambda: udp.sendto(b"x", udp.getsockname()))
# Two files of one inode.
epoll = select.epoll()
epoll.register(b.fileno(), select.EPOLLIN)
wait(epoll.fileno(), lambda: a.send(b"x"))
if hasattr(os, "eventfd"):
    event = os.eventfd(0)
    wait(event, lambda: os.eventfd_write(event, 1))
# And seen before.
b.recv(1)
wait(epoll.fileno(), lambda: a.send(b"x"))
