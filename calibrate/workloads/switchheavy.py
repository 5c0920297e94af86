# SPDX-License-Identifier: Apache-2.0
"""As many switches as possible: two threads hand a byte to and fro by pipes.

usage: switchheavy.py SECONDS [--on-line]

Each round trip blocks both threads once; they are the worst case for a recorder
that works at every switch. The number of round trips is the target's speed.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import json
import os
import sys
import threading
import time


def echo(receive, send):
    """The other thread: answers every byte until the pipe closes."""
    while True:
        byte = os.read(receive, 1)
        if not byte:
            return
        os.write(send, byte)


def ping(send, receive, end):
    rounds = 0
    while time.monotonic_ns() < end:
        for _ in range(100):
            os.write(send, b"x")
            os.read(receive, 1)
        rounds += 100
    return rounds


def main():
    seconds = float(sys.argv[1])
    there_read, there_write = os.pipe()
    back_read, back_write = os.pipe()
    thread = threading.Thread(target=echo, args=(there_read, back_write))
    thread.start()
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin, begin_cpu = time.monotonic_ns(), time.process_time_ns()
    rounds = ping(there_write, back_read, begin + int(seconds * 1e9))
    end, cpu = time.monotonic_ns(), time.process_time_ns() - begin_cpu
    os.close(there_write)
    thread.join()
    print(json.dumps({
        "pid": os.getpid(), "tid": threading.get_native_id(), "begin_ns": begin, "end_ns": end,
        "rounds": rounds, "cpu_ns": cpu, "us_per_round": (end - begin) / 1000 / rounds,
    }), flush=True)


if __name__ == "__main__":
    main()
