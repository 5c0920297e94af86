# SPDX-License-Identifier: Apache-2.0
"""A program in step with the clock: in each round of PERIOD_NS it computes in
marked() for SHARE of it and in rest() for what is left.

usage: periodic.py SECONDS PERIOD_NS SHARE [--on-line]

A sampler with the same period always hits the same place of a round. The rounds
follow CLOCK_MONOTONIC, so interrupts do not shift them. The CPU
time of both functions is measured.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import json
import sys
import threading
import time


def marked(until, clock=time.monotonic_ns):
    while clock() < until:
        pass


def rest(until, clock=time.monotonic_ns):
    while clock() < until:
        pass


def main():
    seconds, period, share = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    part = int(period * share)
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    clock, cpu = time.monotonic_ns, time.thread_time_ns
    begin = clock()
    spent = [0, 0]
    at = begin
    while at < begin + seconds * 1e9:
        a = cpu()
        marked(at + part)
        b = cpu()
        rest(at + period)
        c = cpu()
        spent[0] += b - a
        spent[1] += c - b
        at += period
        if clock() > at + period:
            at = clock()  # it was off the CPU: no rounds are made up for
    print(json.dumps({
        "begin_ns": begin, "end_ns": clock(), "tid": threading.get_native_id(),
        "functions": {"marked": spent[0], "rest": spent[1]},
    }), flush=True)


if __name__ == "__main__":
    main()
