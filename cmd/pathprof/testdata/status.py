# SPDX-License-Identifier: Apache-2.0
"""Threads that run one after another, each in a state that is known."""
import ctypes
import gc
import hashlib
import importlib
import json
import sys
import threading
import time
import zlib

# 3.7 and older do not tell; 186 is gettid on x86-64.
number = getattr(threading, "get_native_id", lambda: ctypes.CDLL(None).syscall(186))


def spend(what):
    end = time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) + 0.15
    while time.clock_gettime(time.CLOCK_THREAD_CPUTIME_ID) < end:
        what()


def compute():
    x = 0
    for i in range(2000):
        x = (x * 31 + i) % 1000003


def digest():
    hashlib.sha256(block).digest()


def compress():
    zlib.compress(block, 1)


def collect():
    gc.collect()


def imports():
    sys.modules.pop("colorsys", None)
    importlib.import_module("colorsys")


block = b"0123456789abcdef" * (1 << 17)
heap = []
tids = {}


def thread(name, what):
    def run():
        tids[name] = number()
        spend(what)
        ended.release()
        time.sleep(600)

    threading.Thread(target=run, daemon=True).start()


ended = threading.Semaphore(0)
print("ready", flush=True)
sys.stdin.readline()
gc.disable()
for name, what in ("gil", compute), ("released", digest), ("released ", compress), ("importing", imports):
    thread(name, what)
    ended.acquire()
heap = [[] for _ in range(300000)]
thread("collecting", collect)
ended.acquire()
# Two that take the GIL from each other, mostly before a wait has begun.
sys.setswitchinterval(1e-6)
for name in "waiting", "waiting ":
    thread(name, compute)
for _ in range(2):
    ended.acquire()
print(json.dumps(tids), flush=True)
sys.stdin.readline()
