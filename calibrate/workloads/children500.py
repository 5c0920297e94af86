# SPDX-License-Identifier: Apache-2.0
"""Many short-lived child processes, one after another and in small groups.

usage: children500.py [COUNT] [--on-line]

Every tenth child is a Python program of its own; the others end at once after
fork, so that most are gone before anybody can look at them. COUNT is 500 unless
given.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import json
import os
import sys
import time

GROUP = 5  # children alive at the same time


def forked():
    """A child without exec; it computes a little, so that it is seen at all."""
    pid = os.fork()
    if pid == 0:
        brief_work()
        os._exit(0)
    return pid


def brief_work():
    x = 0
    for i in range(20000):
        x = (x * 31 + i) % 1000003
    return x


def spawned():
    """A child that runs another program."""
    return os.posix_spawn(sys.executable, [sys.executable, "-S", "-E", "-c", "sum(range(100000))"], os.environ)


def reap(pid):
    _, status = os.waitpid(pid, 0)
    return status


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 500
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin = time.monotonic_ns()
    pids, statuses = [], []
    for first in range(0, count, GROUP):
        group = [spawned() if n % 10 == 0 else forked() for n in range(first, min(first + GROUP, count))]
        statuses += [reap(pid) for pid in group]
        pids += group
    print(json.dumps({
        "pid": os.getpid(), "begin_ns": begin, "end_ns": time.monotonic_ns(),
        "children": len(pids), "bad_statuses": sum(status != 0 for status in statuses),
        "pids": pids,
    }), flush=True)


if __name__ == "__main__":
    main()
