# SPDX-License-Identifier: Apache-2.0
"""One small program for each kind of wait, which says what it waited for.

usage: waitkit.py --list
       waitkit.py CASE… [--rounds N] [--seconds S] [--in-turn] [--on-line] [--quiet]

Each CASE waits N times (3), or for S seconds, and times its waits. With several
cases each runs in a process of its own, all at once, or in turn in one. "all" stands
for every case. Prints "ready", runs (with
--on-line: when a line comes on standard input), and prints one line of JSON (but for
--quiet):

    {"waits": [{"case", "pid", "tid", "begin_ns", "end_ns", "causes", "calls",
                "waker_pid", "waker_tid", "function"}]}

causes are the kinds of cause that are right, calls the system calls that the wait may
be in; function is what the waker ran meanwhile. Times are CLOCK_MONOTONIC. A wait
begins when the one who will end it has said that it is at work.
"""

import asyncio
import fcntl
import json
import multiprocessing
import os
import queue
import random
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CASES = {}
FUTEX = ("futex",)
SLEEP = ("clock_nanosleep", "nanosleep", "select", "pselect6")


def case(causes, calls=()):
    """Make a case of a function that waits once; its argument is a Clock."""
    def keep(f):
        CASES[f.__name__.replace("_", "-")] = (f, causes, calls, f.__doc__)
        return f
    return keep


def compute(milliseconds):
    """Compute for that much wall time."""
    end = time.monotonic_ns() + int(milliseconds * 1e6)
    x = 0
    while time.monotonic_ns() < end:
        for i in range(500):
            x = (x * 31 + i) % 1000003
    return x


class Clock:
    """Times the waits of one case."""

    def __init__(self, name, rng):
        self.name, self.rng, self.waits = name, rng, []
        self.waker_pid, self.waker_tid, self.function = 0, 0, ""

    def length(self):
        return self.rng.randrange(25, 60)

    def by(self, tid, function, pid=None):
        self.waker_pid, self.waker_tid, self.function = pid or os.getpid(), tid, function

    def __enter__(self):
        self.begin = time.monotonic_ns()

    def __exit__(self, *_):
        end = time.monotonic_ns()
        _, causes, calls, _ = CASES[self.name]
        self.waits.append({
            "case": self.name, "pid": os.getpid(), "tid": threading.get_native_id(), "begin_ns": self.begin, "end_ns": end,
            "causes": causes, "calls": calls, "waker_pid": self.waker_pid, "waker_tid": self.waker_tid, "function": self.function,
        })


class Worker(threading.Thread):
    """Computes with what it was given in its hand, then gives it back."""

    def __init__(self, clock, take, give, work=compute):
        super().__init__()
        self.take, self.give, self.work, self.length = take, give, work, clock.length()
        self.at_work, self.quit = False, threading.Event()
        self.start()
        while not self.at_work:
            time.sleep(0.0002)
        clock.by(self.native_id, "Worker.labour")

    def run(self):
        self.take()
        self.at_work = True
        self.labour()
        self.give()
        # Stay until told: the end of a thread is a wake-up of its own.
        self.quit.wait()

    def labour(self):
        self.work(self.length)

    def end(self):
        self.quit.set()
        self.join()


def nothing():
    pass


def rest(milliseconds):
    time.sleep(milliseconds / 1000)


# Timers


@case(["timer"], SLEEP)
def sleep(clock):
    """time.sleep"""
    with clock:
        time.sleep(clock.length() / 1000)


@case(["timer"], ("select", "pselect6"))
def select_timeout(clock):
    """select that times out"""
    r, w = os.pipe()
    with clock:
        select.select([r], [], [], clock.length() / 1000)
    os.close(r), os.close(w)


@case(["timer"], ("poll", "ppoll"))
def poll_timeout(clock):
    """poll that times out"""
    r, w = os.pipe()
    p = select.poll()
    p.register(r)
    with clock:
        p.poll(clock.length())
    os.close(r), os.close(w)


@case(["timer"], FUTEX)
def lock_timeout(clock):
    """a lock nobody gives back in time (the theses' deadlock)"""
    lock = threading.Lock()
    lock.acquire()
    with clock:
        lock.acquire(timeout=clock.length() / 1000)


@case(["timer"], ("rt_sigtimedwait", "pause"))
def signal_wait(clock):
    """sigtimedwait that times out"""
    with clock:
        signal.sigtimedwait([signal.SIGUSR1], clock.length() / 1000)


# Locks


@case(["task"], FUTEX)
def lock(clock):
    """a lock whose holder computes (the theses' lockfight)"""
    k = threading.Lock()
    worker = Worker(clock, k.acquire, k.release)
    with clock:
        k.acquire()
    worker.end()


@case(["task"], FUTEX)
def lock_sleep(clock):
    """a lock whose holder sleeps"""
    k = threading.Lock()
    worker = Worker(clock, k.acquire, k.release, rest)
    with clock:
        k.acquire()
    worker.end()


@case(["task"], FUTEX)
def rlock(clock):
    """an RLock whose holder computes"""
    k = threading.RLock()
    worker = Worker(clock, k.acquire, k.release)
    with clock:
        k.acquire()
    worker.end()


@case(["task"], FUTEX)
def event(clock):
    """an Event that a computing thread sets"""
    e = threading.Event()
    worker = Worker(clock, nothing, e.set)
    with clock:
        e.wait()
    worker.end()


@case(["task"], FUTEX)
def condition(clock):
    """a Condition that a computing thread notifies"""
    c = threading.Condition()

    def tell():
        with c:
            c.notify()

    with c:
        worker = Worker(clock, nothing, tell)
        with clock:
            c.wait()
    worker.end()


@case(["task"], FUTEX)
def semaphore(clock):
    """a Semaphore that a computing thread releases"""
    s = threading.Semaphore(0)
    worker = Worker(clock, nothing, s.release)
    with clock:
        s.acquire()
    worker.end()


@case(["task"], FUTEX)
def imbalance(clock):
    """a Barrier with uneven work (the theses' imbalance)"""
    b = threading.Barrier(2)
    worker = Worker(clock, nothing, b.wait)
    with clock:
        b.wait()
    worker.end()


@case(["task"], FUTEX)
def pipeline(clock):
    """a Queue whose producer computes (the theses' pipeline)"""
    q = queue.Queue()
    worker = Worker(clock, nothing, lambda: q.put(1))
    with clock:
        q.get()
    worker.end()


@case(["task"], FUTEX)
def join(clock):
    """Thread.join on a thread that computes"""
    worker = Worker(clock, nothing, nothing)
    worker.quit.set()
    with clock:
        worker.join()


@case(["task"], FUTEX)
def mp_lock(clock):
    """a lock of multiprocessing, held by another process that computes"""
    k = multiprocessing.Lock()
    r, w = os.pipe()
    length = clock.length()
    child = fork(lambda: (k.acquire(), os.write(w, b"x"), child_work(length), k.release(), time.sleep(0.01)))
    os.read(r, 1)
    clock.by(child, "child_work", child)
    with clock:
        k.acquire()
    os.waitpid(child, 0)
    os.close(r), os.close(w)


# Processes, pipes and files


def child_work(milliseconds):
    compute(milliseconds)


def fork(work):
    """Run work in a child; returns its process number."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def answering(clock, work):
    """Fork a child that says when it is at work."""
    r, w = os.pipe()
    child = fork(lambda: (os.write(w, b"x"), work()))
    os.read(r, 1)
    os.close(r), os.close(w)
    clock.by(child, "child_work", child)
    return child


@case(["task"], ("wait4",))
def child(clock):
    """waitpid on a child that computes"""
    length = clock.length()
    pid = answering(clock, lambda: child_work(length))
    with clock:
        os.waitpid(pid, 0)


@case(["task"], ("waitid",))
def child_waitid(clock):
    """waitid on a child that computes"""
    length = clock.length()
    pid = answering(clock, lambda: child_work(length))
    with clock:
        os.waitid(os.P_PID, pid, os.WEXITED)


@case(["task"], ("read",))
def reparent(clock):
    """a grandchild whose parent is gone writes to a pipe (the theses' reparent)"""
    r, w = os.pipe()
    length = clock.length()

    def grandchild():
        os.write(w, b"%d\n" % os.getpid())
        child_work(length)
        os.write(w, b"x")
        time.sleep(0.01)

    os.waitpid(fork(lambda: fork(grandchild)), 0)
    pid = int(b"".join(iter(lambda: os.read(r, 1), b"\n")))
    clock.by(pid, "child_work", pid)
    with clock:
        os.read(r, 1)
    os.close(r), os.close(w)


@case(["task"], ("read",))
def pipe_read(clock):
    """read of an empty pipe"""
    r, w = os.pipe()
    length = clock.length()
    pid = answering(clock, lambda: (child_work(length), os.write(w, b"x"), time.sleep(0.01)))
    with clock:
        os.read(r, 1)
    os.waitpid(pid, 0)
    os.close(r), os.close(w)


@case(["task"], ("write",))
def pipe_write(clock):
    """write to a full pipe"""
    r, w = os.pipe()
    os.set_blocking(w, False)
    try:
        while True:
            os.write(w, bytes(4096))
    except BlockingIOError:
        os.set_blocking(w, True)
    length = clock.length()
    pid = answering(clock, lambda: (child_work(length), os.read(r, 65536), time.sleep(0.01)))
    with clock:
        os.write(w, bytes(4096))
    os.waitpid(pid, 0)
    os.close(r), os.close(w)


@case(["task"], ("flock",))
def file_lock(clock):
    """flock of a file that a computing process has locked"""
    path = tempfile.mktemp()
    length = clock.length()
    f = open(path, "w")

    def hold():
        mine = open(path, "w")
        fcntl.flock(mine, fcntl.LOCK_EX)
        os.write(w, b"x")
        child_work(length)
        fcntl.flock(mine, fcntl.LOCK_UN)
        time.sleep(0.01)

    r, w = os.pipe()
    pid = fork(hold)
    os.read(r, 1)
    clock.by(pid, "child_work", pid)
    with clock:
        fcntl.flock(f, fcntl.LOCK_EX)
    os.waitpid(pid, 0)
    f.close(), os.close(r), os.close(w), os.unlink(path)


@case(["disk", "task", "interrupt", "softirq"], ("fsync",))
def ioburst(clock):
    """fsync of a written file (the theses' ioburst)"""
    with tempfile.NamedTemporaryFile(dir="/var/tmp") as f:
        f.write(os.urandom(4 << 20))
        f.flush()
        with clock:
            os.fsync(f.fileno())


# Sockets and polls


@case(["task"], ("recvfrom",))
def unix_socket(clock):
    """recv from a Unix socket"""
    a, b = socket.socketpair()
    length = clock.length()
    pid = answering(clock, lambda: (child_work(length), b.send(b"x"), time.sleep(0.01)))
    with clock:
        a.recv(1)
    os.waitpid(pid, 0)
    a.close(), b.close()


@case(["network"], ("recvfrom",))
def rpc(clock):
    """recv from a TCP server on this host, which computes (the theses' rpc)"""
    listener = socket.create_server(("127.0.0.1", 0))
    length = clock.length()

    def serve():
        s, _ = listener.accept()
        s.recv(1)
        child_work(length)
        s.send(b"x")
        time.sleep(0.01)

    pid = answering(clock, serve)
    s = socket.create_connection(listener.getsockname())
    s.send(b"x")
    with clock:
        s.recv(1)
    os.waitpid(pid, 0)
    s.close(), listener.close()


@case(["network"], ("recvfrom",))
def tcp_ball(clock):
    """a ball of 32 bytes between two processes over TCP, 200 times"""
    listener = socket.create_server(("127.0.0.1", 0))

    def partner():
        s, _ = listener.accept()
        while s.recv(32):
            child_work(0.2)
            s.send(bytes(32))

    pid = answering(clock, partner)
    s = socket.create_connection(listener.getsockname())
    with clock:
        for _ in range(200):
            s.send(bytes(32))
            s.recv(32)
    s.close(), listener.close()
    os.waitpid(pid, 0)


@case(["network", "softirq"], ("accept", "accept4"))
def accept(clock):
    """accept of a connection that comes later"""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(None)
    length = clock.length()
    pid = answering(clock, lambda: (child_work(length), socket.create_connection(listener.getsockname()), time.sleep(0.01)))
    with clock:
        s, _ = listener.accept()
    os.waitpid(pid, 0)
    s.close(), listener.close()


@case(["task"], ("poll", "ppoll"))
def poll_pipe(clock):
    """poll on a pipe"""
    r, w = os.pipe()
    length = clock.length()
    pid = answering(clock, lambda: (child_work(length), os.write(w, b"x"), time.sleep(0.01)))
    p = select.poll()
    p.register(r, select.POLLIN)
    with clock:
        p.poll()
    os.waitpid(pid, 0)
    os.close(r), os.close(w)


@case(["task"], ("epoll_wait", "epoll_pwait", "epoll_pwait2"))
def idle_loop(clock):
    """an event loop that polls every 5 ms until a pipe has something"""
    r, w = os.pipe()
    length = clock.length()
    loop = selectors.EpollSelector()
    loop.register(r, selectors.EVENT_READ)
    pid = answering(clock, lambda: (child_work(length), os.write(w, b"x"), time.sleep(0.01)))
    with clock:
        while not loop.select(0.005):
            pass
    os.waitpid(pid, 0)
    loop.close(), os.close(r), os.close(w)


@case(["timer"], ("epoll_wait", "epoll_pwait", "epoll_pwait2"))
def asyncio_sleep(clock):
    """asyncio.sleep"""
    async def main():
        with clock:
            await asyncio.sleep(clock.length() / 1000)
    asyncio.run(main())


@case(["timer"], SLEEP)
def asyncio_blocked(clock):
    """a coroutine that blocks the event loop with time.sleep"""
    async def slow():
        with clock:
            time.sleep(clock.length() / 1000)

    async def main():
        await asyncio.gather(asyncio.sleep(0.001), slow())
    asyncio.run(main())


# The interpreter and the CPU


@case(["gil"], FUTEX)
def gil(clock):
    """the GIL, which a thread has in one long call of C"""
    numbers = list(range(400_000))
    random.Random(1).shuffle(numbers)
    with clock:  # the worker says that it is at work, sleeps are over, and so is the GIL
        worker = Worker(clock, nothing, nothing, lambda _: sorted(numbers))
    worker.end()


@case(["gil"], FUTEX)
def gil_echo(clock):
    """the GIL after each message, beside a thread that computes"""
    a, b = os.pipe()
    worker = Worker(clock, nothing, nothing, lambda n: compute(2 * n))
    with clock:
        for _ in range(5):
            os.write(b, b"x")
            time.sleep(0.0003)  # long enough for the other to take it
            os.read(a, 1)
    worker.end()
    os.close(a), os.close(b)


@case(["gil", "running"], FUTEX)
def gil_pair(clock):
    """the GIL between two threads that compute"""
    worker = Worker(clock, nothing, nothing, lambda n: compute(4 * n))
    with clock:
        compute(3 * worker.length)
    worker.end()


@case(["running"], ())
def spin(clock):
    """busy waiting with sched_yield"""
    worker = Worker(clock, nothing, nothing, rest)
    end = time.monotonic() + clock.length() / 1000
    with clock:
        while time.monotonic() < end:
            os.sched_yield()
    worker.end()


@case(["running"], ())
def cpm(clock):
    """computing, no wait at all (the theses' cpm)"""
    with clock:
        compute(clock.length())


@case(["timer"], SLEEP)
def pulse(clock):
    """ten short sleeps (the theses' pulse)"""
    with clock:
        for _ in range(10):
            time.sleep(0.004)


@case(["task"], ("read",))
def schedfreq(clock):
    """a ball between two processes, 200 times (the theses' schedfreq)"""
    r1, w1 = os.pipe()
    r2, w2 = os.pipe()

    def partner():
        for _ in range(200):
            os.read(r1, 1)
            child_work(0.2)
            os.write(w2, b"x")

    pid = answering(clock, partner)
    with clock:
        for _ in range(200):
            os.write(w1, b"x")
            os.read(r2, 1)
    os.waitpid(pid, 0)
    for fd in (r1, w1, r2, w2):
        os.close(fd)


def run(name, rounds, seconds):
    """Run a case so often, or so long; returns its waits."""
    clock = Clock(name, random.Random(name))
    end = time.monotonic() + seconds
    while len(clock.waits) < rounds or time.monotonic() < end:
        CASES[name][0](clock)
        compute(3)
    return clock.waits


def together(names, rounds, seconds):
    """Run each case in a process of its own."""
    parts = []
    for name in names:
        parts.append(subprocess.Popen([sys.executable, "-S", "-E", os.path.abspath(__file__), name, "--rounds", str(rounds),
                                       "--seconds", str(seconds)], stdout=subprocess.PIPE))
    waits = []
    for part in parts:
        out, _ = part.communicate()
        waits += json.loads(out.decode().splitlines()[-1])["waits"]
    return waits


def option(name, default):
    if name in sys.argv:
        i = sys.argv.index(name)
        value = float(sys.argv[i + 1])
        del sys.argv[i:i + 2]
        return value
    return default


def main():
    if sys.argv[1:] == ["--list"]:
        for name, (_, causes, _, about) in sorted(CASES.items()):
            print("%-16s %s" % (name, about))
        return
    rounds, seconds = int(option("--rounds", 3)), option("--seconds", 0)
    names = [a for a in sys.argv[1:] if a not in ("--on-line", "--in-turn", "--quiet")]
    if names == ["all"]:
        names = list(CASES)
    for name in names:
        if name not in CASES:
            sys.exit("no case " + name + "; --list shows them")
    if not names:
        sys.exit(__doc__)
    if "--quiet" in sys.argv:
        sys.stdout = open(os.devnull, "w")
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    if len(names) == 1 or "--in-turn" in sys.argv:
        waits = [w for name in names for w in run(name, rounds, seconds)]
    else:
        waits = together(names, rounds, seconds)
    print(json.dumps({"waits": waits}), flush=True)


if __name__ == "__main__":
    main()
