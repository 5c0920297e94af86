# SPDX-License-Identifier: Apache-2.0
"""Long C calls that release the GIL: hashlib and zlib on a large buffer.

usage: hashlib_gil.py SECONDS [--on-line]

One thread hashes, one compresses, and the main thread waits for both: while they
are in C, no Python thread is the interpreter's current one, and their Python
frames are still what a profiler must show. Each function's CPU time is
measured and reported as the truth.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import hashlib
import json
import os
import sys
import threading
import time
import zlib

# Above 2047 bytes hashlib releases the GIL (HASHLIB_GIL_MINSIZE).
BUFFER = os.urandom(1 << 20) * 8


class Worker(threading.Thread):
    """Calls one function for some seconds and measures it."""

    def __init__(self, function, seconds):
        super().__init__()
        self.function = function
        self.seconds = seconds
        self.truth = {}

    def run(self):
        begin, cpu = time.monotonic_ns(), 0
        end = begin + int(self.seconds * 1e9)
        calls = 0
        while time.monotonic_ns() < end:
            before = time.thread_time_ns()
            self.function()
            cpu += time.thread_time_ns() - before
            calls += 1
        self.truth = {
            "tid": threading.get_native_id(), "begin_ns": begin, "end_ns": time.monotonic_ns(),
            "calls": calls, "cpu_ns": cpu,
        }


def hash_buffer():
    return hashlib.sha256(BUFFER).digest()


def compress_buffer():
    return zlib.compress(BUFFER, 1)


def main():
    seconds = float(sys.argv[1])
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    workers = [Worker(hash_buffer, seconds), Worker(compress_buffer, seconds)]
    begin = time.monotonic_ns()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(json.dumps({
        "pid": os.getpid(), "tid": threading.get_native_id(), "begin_ns": begin, "end_ns": time.monotonic_ns(),
        "functions": {worker.function.__name__: worker.truth for worker in workers},
    }), flush=True)


if __name__ == "__main__":
    main()
