# SPDX-License-Identifier: Apache-2.0
"""Two hundred threads that mostly wait.

usage: threads200.py SECONDS [--on-line]

Each thread works a little, then waits: a third of them for a timer, a third for
a condition that the main thread signals, and a third for a queue the timer
threads fill.

Prints "ready" when all threads run, goes on (with --on-line: when a line comes on
standard input), and prints one line of JSON.
"""

import json
import os
import queue
import sys
import threading
import time

COUNT = 200


class Crowd:
    """The threads and what they share."""

    def __init__(self):
        self.stop = False
        self.started = threading.Barrier(COUNT + 1)
        self.condition = threading.Condition()
        self.queue = queue.Queue()
        self.rounds = [0] * COUNT
        self.tids = [0] * COUNT

    def body(self, number):
        self.tids[number] = threading.get_native_id()
        self.started.wait()
        wait = (self.wait_timer, self.wait_condition, self.wait_queue)[number % 3]
        while not self.stop:
            small_work()
            wait(number)
            self.rounds[number] += 1

    def wait_timer(self, number):
        time.sleep(0.05 + number / 10000)
        self.queue.put(number)

    def wait_condition(self, number):
        with self.condition:
            self.condition.wait(0.5)

    def wait_queue(self, number):
        try:
            self.queue.get(timeout=0.5)
        except queue.Empty:
            pass


def small_work():
    x = 0
    for i in range(1000):
        x = (x * 31 + i) % 1000003
    return x


def main():
    seconds = float(sys.argv[1])
    crowd = Crowd()
    threads = [threading.Thread(target=crowd.body, args=(n,)) for n in range(COUNT)]
    for thread in threads:
        thread.start()
    crowd.started.wait()
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin = time.monotonic_ns()
    end = begin + int(seconds * 1e9)
    while time.monotonic_ns() < end:
        time.sleep(0.02)
        with crowd.condition:
            crowd.condition.notify(5)
    crowd.stop = True
    for thread in threads:
        thread.join()
    print(json.dumps({
        "pid": os.getpid(), "tid": threading.get_native_id(), "begin_ns": begin, "end_ns": time.monotonic_ns(),
        "threads": COUNT, "tids": crowd.tids, "rounds": sum(crowd.rounds),
    }), flush=True)


if __name__ == "__main__":
    main()
