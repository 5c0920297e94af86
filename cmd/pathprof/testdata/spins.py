# SPDX-License-Identifier: Apache-2.0
"""Loops that wait busily, and others that look a little like it.

usage: spins.py MILLISECONDS NAME… --on-line

Prints "ready", waits for a line on standard input. Each loop runs until it has used so much CPU time, however busy the machine is. Prints
when, as JSON.
"""

import json
import os
import select
import sys
import threading
import time


def now():
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


def until(milliseconds, step):
    """Do 500 steps, again and again."""
    end = time.thread_time() + milliseconds / 1000
    while time.thread_time() < end:
        step(500)


def spin_yield(n):
    for _ in range(n):
        os.sched_yield()


def spin_poll(n, r=os.pipe()[0], p=select.poll()):
    p.register(r, select.POLLIN)
    for _ in range(n):
        p.poll(0)


def spin_select(n, r=os.pipe()[0]):
    for _ in range(n):
        select.select([r], [], [], 0)


HELD = threading.Lock()
HELD.acquire()


def spin_lock(n):
    for _ in range(n):
        if HELD.acquire(False):
            break


def spin_clock(n):
    for _ in range(n):
        if time.monotonic() < 0:
            break


def work(n, x=1):
    for i in range(40 * n):
        x = (x * 31 + i) % 1000003


def work_timed(n, x=1):
    for _ in range(n):
        begin = time.perf_counter()
        for i in range(20):
            x = (x * 31 + i) % 1000003
        x += int(time.perf_counter() - begin)


def work_locked(n, free=threading.Lock(), x=0):
    for _ in range(10 * n):
        with free:
            x += 1


def work_talk(n, ends=os.pipe(), p=select.poll()):
    p.register(ends[0], select.POLLIN)
    for _ in range(n):
        os.write(ends[1], b"x" * 100)
        p.poll(100)
        os.read(ends[0], 100).decode().upper().split("X")


def main():
    loops = []
    print("ready", flush=True)
    sys.stdin.readline()
    for name in sys.argv[2:-1]:
        begin = now()
        until(int(sys.argv[1]), globals()[name])
        loops.append({"name": name, "begin_ns": begin, "end_ns": now()})
        time.sleep(0.01)
    print(json.dumps({"pid": os.getpid(), "loops": loops}), flush=True)


main()
