# SPDX-License-Identifier: Apache-2.0
"""Threads that say in which function they are about to block, and for how long it
took: on standard output, when they have blocked often enough.
"""
import ctypes
import json
import os
import queue
import random
import select
import socket
import subprocess
import sys
import threading
import time

# 3.6 has no monotonic_ns; a double tells nanoseconds for some months.
now = getattr(time, "monotonic_ns", None) or (lambda: int(time.monotonic() * 1e9))
# 3.7 and older do not tell; 186 is gettid on x86-64.
number = getattr(threading, "get_native_id", lambda: ctypes.CDLL(None).syscall(186))
wishes = queue.Queue()


def feed():
    """Lets those go on who asked for it, a while later."""
    while True:
        wish = wishes.get()
        time.sleep(0.003)
        wish()


class Blocker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.event = threading.Event()
        self.items = queue.Queue()
        self.near, self.far = socket.socketpair()
        self.reader, self.writer = os.pipe()
        self.lock.acquire()
        self.log = []

    def in_sleep(self):
        time.sleep(0.003)

    def in_lock(self):
        wishes.put(self.lock.release)
        self.lock.acquire()

    def in_timed_lock(self):
        self.lock.acquire(timeout=0.003)

    def in_event(self):
        self.event.clear()
        wishes.put(self.event.set)
        self.event.wait(5)

    def in_queue(self):
        wishes.put(lambda: self.items.put(1))
        self.items.get()

    def in_recv(self):
        wishes.put(lambda: self.far.send(b"x"))
        self.near.recv(1)

    def in_poll(self):
        p = select.poll()
        p.register(self.near, select.POLLIN)
        p.poll(3)

    def in_select(self):
        select.select([self.near], [], [], 0.003)

    def in_pipe(self):
        wishes.put(lambda: os.write(self.writer, b"x"))
        os.read(self.reader, 1)

    def in_child(self):
        subprocess.call(["sleep", "0.003"])

    def in_join(self):
        t = threading.Thread(target=time.sleep, args=(0.003,))
        t.start()
        t.join()

    def run(self, ways):
        for _ in range(60):
            way = self.random.choice(ways)
            begin = now()
            way(self)
            self.log.append((begin, now(), way.__name__))


def main():
    ways = [v for k, v in sorted(vars(Blocker).items()) if k.startswith("in_")]
    blockers = [Blocker(seed) for seed in range(3)]
    threading.Thread(target=feed, daemon=True).start()
    logs = {}

    def start(blocker):
        logs[number()] = blocker.log
        blocker.run(ways)

    threads = [threading.Thread(target=start, args=(b,)) for b in blockers]
    print("ready", flush=True)
    sys.stdin.readline()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    print(json.dumps(logs), flush=True)
    sys.stdin.readline()


main()
