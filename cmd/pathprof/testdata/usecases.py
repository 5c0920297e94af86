# SPDX-License-Identifier: Apache-2.0
"""The theses' cases, which know what they waited for.

usage: usecases.py barrier UNIT_MS | convoy HOLD_MS | osync FILE BLOCKS | serve CPU_MS SECONDS   --on-line

Prints "ready", waits for a line on standard input, prints what was so as JSON. Times are
CLOCK_MONOTONIC ns. To work is to compute until so much wall time is over.
"""

import json
import multiprocessing
import os
import sys
import threading
import time


def now():
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


def work(milliseconds):
    end = now() + int(milliseconds * 1e6)
    x = 0
    while now() < end:
        for i in range(500):
            x = (x * 31 + i) % 1000003


def start():
    print("ready", flush=True)
    sys.stdin.readline()


def barrier(unit):
    """wk-imbalance: four processes, A is the parent; the longest work moves on."""
    b = multiprocessing.Barrier(4)
    ends = [os.pipe() for _ in range(4)]

    def cycle(i):
        mine = []
        b.wait()
        begin = now()
        for stage in range(4):
            work((((i + stage) % 4) + 1) * int(unit))
            arrive = now()
            b.wait()
            mine.append([arrive, now()])
        os.write(ends[i][1], json.dumps([os.getpid(), begin, mine]).encode())

    children = []
    start()
    for i in (1, 2, 3):
        pid = os.fork()
        if pid == 0:
            cycle(i)
            os._exit(0)
        children.append(pid)
    cycle(0)
    for pid in children:
        os.waitpid(pid, 0)
    return {"tasks": [json.loads(os.read(r, 10000).decode()) for r, _ in ends]}


class Holder(threading.Thread):
    """Takes the lock, holds it, gives it back."""

    def __init__(self, lock, hold, name):
        super().__init__(name=name)
        self.lock, self.hold = lock, hold
        self.asks = False

    def run(self):
        self.tid = threading.get_native_id()
        self.begin = now()
        self.asks = True
        with self.lock:
            self.got = now()
            self.hold()
            self.end = now()


def convoy(milliseconds):
    """UC2: C has the lock, A and then B queue for it."""
    lock, n = threading.Lock(), int(milliseconds)
    threads = []

    def hold_c():
        while len(threads) < 3 or not threads[2].asks:
            work(1)
        work(n)

    def hold_a():
        work(n)

    def hold_b():
        work(n / 4)

    start()
    for name, hold in (("C", hold_c), ("A", hold_a), ("B", hold_b)):
        t = Holder(lock, hold, name)
        t.start()
        while not t.asks:
            time.sleep(0.001)
        time.sleep(0.02)
        threads.append(t)
    for t in threads:
        t.join()
    return {t.name: {"tid": t.tid, "begin_ns": t.begin, "got_ns": t.got, "end_ns": t.end} for t in threads}


def osync(path, blocks):
    """wk-ioburst: writes that return when they are on the disk."""
    start()
    begin = now()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_SYNC)
    for _ in range(int(blocks)):
        os.write(fd, bytes(65536))
    os.close(fd)
    return {"tid": os.getpid(), "begin_ns": begin, "end_ns": now()}


def serve(milliseconds, seconds):
    """UC1: requests that need so much CPU time, with a pause in between."""
    start()
    out, last = [], now() + int(float(seconds) * 1e9)
    while now() < last:
        begin, end = now(), time.process_time() + float(milliseconds) / 1000
        while time.process_time() < end:
            sum(range(1000))
        out.append([begin, now()])
        time.sleep(0.003)
    return {"tid": os.getpid(), "requests": out}


def main():
    result = globals()[sys.argv[1]](*sys.argv[2:-1])
    print(json.dumps(result), flush=True)


main()
