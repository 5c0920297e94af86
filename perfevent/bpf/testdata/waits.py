# SPDX-License-Identifier: Apache-2.0
"""Waits of every kind, each told in one line:

    tid begin_ns end_ns call object timeout_ms lock holder
"""

import ctypes
import fcntl
import os
import select
import socket
import sys
import tempfile
import threading
import time

libc = ctypes.CDLL(None)
me = threading.get_native_id
# From 3.14 on locks are PyMutexes; only an RLock's says who holds it.
LOCK = "pymutex" if sys.version_info >= (3, 14) else "sem"
print("ready", flush=True)
sys.stdin.readline()


def told(begin, call, obj="-", timeout="-", lock="-", holder="-", tid=None):
    print(tid or me(), begin, time.monotonic_ns(), call, obj, timeout, lock, holder, flush=True)


def later(action, delay=0.03):
    """Does action in another thread, which releases the GIL meanwhile."""
    def run():
        time.sleep(delay)
        action()
    threading.Thread(target=run).start()


def descriptors():
    r, w = os.pipe()
    begin = time.monotonic_ns()
    later(lambda: os.write(w, b"x"))
    os.read(r, 1)
    told(begin, "read", r)

    begin = time.monotonic_ns()
    p = select.poll()
    p.register(r, select.POLLIN)
    p.poll(40)
    told(begin, "poll|ppoll", r, 40)

    begin = time.monotonic_ns()
    e = select.epoll()
    e.register(r, select.EPOLLIN)
    e.poll(0.04)
    told(begin, "epoll_wait|epoll_pwait", e.fileno(), 40)

    begin = time.monotonic_ns()
    select.select([r], [], [], 0.04)
    told(begin, "select|pselect6", "-", 40)

    a, b = socket.socketpair()
    begin = time.monotonic_ns()
    later(lambda: a.send(b"x"))
    b.recv(1)
    told(begin, "recvfrom", b.fileno())

    with tempfile.NamedTemporaryFile() as f, open(f.name) as other:
        fcntl.flock(f, fcntl.LOCK_EX)
        begin = time.monotonic_ns()
        later(lambda: fcntl.flock(f, fcntl.LOCK_UN))
        fcntl.flock(other, fcntl.LOCK_EX)
        told(begin, "flock", other.fileno())


def processes():
    pid = os.fork()
    if pid == 0:
        time.sleep(0.03)
        os._exit(0)
    begin = time.monotonic_ns()
    os.waitpid(pid, 0)
    told(begin, "wait4", pid)


def timers():
    begin = time.monotonic_ns()
    time.sleep(0.04)
    told(begin, "clock_nanosleep|select|pselect6", "-", 40)


def locks():
    lock = threading.Lock()
    lock.acquire()
    begin = time.monotonic_ns()
    lock.acquire(timeout=0.04)
    told(begin, "futex", "-", 40, LOCK, 0)

    begin = time.monotonic_ns()
    later(lock.release)
    lock.acquire()
    told(begin, "futex", "-", "-", LOCK, 0)

    rlock = threading.RLock()
    ready = threading.Event()
    holder = []

    def hold():
        with rlock:
            holder.append(me())
            ready.set()
            time.sleep(0.04)
    threading.Thread(target=hold).start()
    ready.wait()
    begin = time.monotonic_ns()
    with rlock:
        told(begin, "futex", "-", "-", LOCK, holder[0] if LOCK == "pymutex" else 0)


class timespec(ctypes.Structure):
    _fields_ = [("sec", ctypes.c_long), ("nsec", ctypes.c_long)]


def libc_locks():
    mutex = ctypes.create_string_buffer(64)
    ready = threading.Event()
    holder = []

    def hold():
        libc.pthread_mutex_lock(mutex)
        holder.append(me())
        ready.set()
        time.sleep(0.04)
        libc.pthread_mutex_unlock(mutex)
    threading.Thread(target=hold).start()
    ready.wait()
    begin = time.monotonic_ns()
    libc.pthread_mutex_lock(mutex)
    told(begin, "futex", ctypes.addressof(mutex), "-", "mutex", holder[0])

    condition = ctypes.create_string_buffer(64)
    end = time.time() + 0.04
    until = timespec(int(end), int(end % 1 * 1e9))
    begin = time.monotonic_ns()
    libc.pthread_cond_timedwait(condition, mutex, ctypes.byref(until))
    told(begin, "futex", "-", 40, "cond")


def gil():
    """A thread inside one C function has the GIL, until the function ends."""
    numbers = list(range(1000000))
    window = []

    def hold():
        time.sleep(0.02)
        begin = time.monotonic_ns()
        for _ in range(3):
            sum(numbers * 3)
        window.append((me(), begin, time.monotonic_ns()))
    holder = threading.Thread(target=hold)
    holder.start()
    while holder.is_alive():
        time.sleep(0.001)
    tid, begin, end = window[0]
    print(me(), begin, end, "futex", "-", 5, "gil", tid, flush=True)


descriptors()
processes()
timers()
locks()
libc_locks()
gil()
