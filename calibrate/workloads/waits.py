# SPDX-License-Identifier: Apache-2.0
"""Waits of every common kind, each timed by the program itself.

usage: waits.py ROUNDS [--on-line]
       waits.py --consumer
       waits.py --child MILLISECONDS

In each round a thread waits

    sleep         in time.sleep
    lock          for a lock whose holder computes meanwhile
    lock-sleep    for a lock whose holder sleeps meanwhile
    join          for a thread that computes, then ends
    child         for a child process that computes, then exits
    pipe          for the answer of a consumer process that computes (this one in
                  the producer thread, the others in the main thread)

Lengths differ from round to round, with a fixed seed, and are far above the few
microseconds that lie between a clock reading and the wait it belongs to. Where
another thread is waited for, the waiting begins only after that one has started:
it says so in a variable that is polled with sleeps, which are no waits of
the list.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON: {"pid", "tid", "begin_ns", "end_ns", "waits": [{"kind",
"tid", "begin_ns", "end_ns", "waker_pid", "waker_tid", "function", "busy_ns"}]}. busy_ns
is how long the thread itself ran, or stood in the queue for a CPU, meanwhile. function
is the Python function that works meanwhile (or sleeps, for lock-sleep); "" where
only a timer is waited for. Times are CLOCK_MONOTONIC.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time


def compute(milliseconds):
    """Compute for that much CPU time."""
    end = time.thread_time_ns() + int(milliseconds * 1e6)
    x = 0
    while time.thread_time_ns() < end:
        for i in range(500):
            x = (x * 31 + i) % 1000003
    return x


class Waits:
    """The list of timed waits."""

    def __init__(self):
        self.done = []

    def begin(self):
        self.busy = busy_ns()
        self.since = time.monotonic_ns()

    def end(self, kind, waker_pid, waker_tid, function):
        end = time.monotonic_ns()
        self.done.append({
            "kind": kind, "tid": threading.get_native_id(), "begin_ns": self.since, "end_ns": end,
            "waker_pid": waker_pid, "waker_tid": waker_tid, "function": function,
            "busy_ns": busy_ns() - self.busy,
        })


def busy_ns():
    """How long this thread has run or stood in the queue for a CPU."""
    with open("/proc/thread-self/schedstat", "rb") as f:
        ran, queued, _ = f.read().split()
    return int(ran) + int(queued)


class Holder(threading.Thread):
    """Holds a lock for a while, computing or sleeping."""

    def __init__(self, lock, milliseconds, sleeps):
        super().__init__()
        self.lock = lock
        self.milliseconds = milliseconds
        self.sleeps = sleeps
        self.holding = False
        self.quit = threading.Event()
        self.start()

    def run(self):
        if self.sleeps:
            self.hold_and_sleep()
        else:
            self.hold_and_compute()
        # Stay until told: the end of a thread is a wake-up of its own.
        self.quit.wait()

    def hold_and_compute(self):
        with self.lock:
            self.holding = True
            compute(self.milliseconds)

    def hold_and_sleep(self):
        with self.lock:
            self.holding = True
            time.sleep(self.milliseconds / 1000)


class Joined(threading.Thread):
    """Computes, then ends."""

    def __init__(self, milliseconds):
        super().__init__()
        self.milliseconds = milliseconds
        self.working = False
        self.start()

    def run(self):
        self.working = True
        self.joined_work()

    def joined_work(self):
        compute(self.milliseconds)


def poll(thread, name):
    while not getattr(thread, name):
        time.sleep(0.0002)


def wait_sleep(waits, milliseconds):
    waits.begin()
    time.sleep(milliseconds / 1000)
    waits.end("sleep", 0, 0, "")


def wait_lock(waits, milliseconds, sleeps):
    lock = threading.Lock()
    holder = Holder(lock, milliseconds, sleeps)
    poll(holder, "holding")
    waits.begin()
    lock.acquire()
    waits.end("lock-sleep" if sleeps else "lock", os.getpid(), holder.native_id,
              "Holder.hold_and_sleep" if sleeps else "Holder.hold_and_compute")
    lock.release()
    holder.quit.set()
    holder.join()


def wait_join(waits, milliseconds):
    thread = Joined(milliseconds)
    poll(thread, "working")
    waits.begin()
    thread.join()
    waits.end("join", os.getpid(), thread.native_id, "Joined.joined_work")


def wait_child(waits, milliseconds):
    child = subprocess.Popen([sys.executable, "-S", "-E", os.path.abspath(__file__), "--child", str(milliseconds)])
    waits.begin()
    child.wait()
    waits.end("child", child.pid, child.pid, "child_work")


def child_work(milliseconds):
    compute(milliseconds)


class Producer(threading.Thread):
    """Sends work to a consumer process and waits for each answer."""

    def __init__(self, waits):
        super().__init__()
        self.waits = waits
        self.consumer = subprocess.Popen([sys.executable, "-S", "-E", os.path.abspath(__file__), "--consumer"],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.work = []
        # One item before the counted ones: the consumer is up when it is answered.
        self.ask(1)
        self.waits.done.clear()

    def run(self):
        for milliseconds in self.work:
            compute(3)
            self.ask(milliseconds)

    def ask(self, milliseconds):
        os.write(self.consumer.stdin.fileno(), b"%d\n" % milliseconds)
        self.waits.begin()
        os.read(self.consumer.stdout.fileno(), 100)
        self.waits.end("pipe", self.consumer.pid, self.consumer.pid, "consume")

    def close(self):
        self.join()
        self.consumer.stdin.close()
        self.consumer.stdout.close()
        self.consumer.wait()


def consumer():
    """The consumer process: one answer for each line."""
    while True:
        line = os.read(0, 100)
        if not line:
            return
        consume(int(line))


def consume(milliseconds):
    compute(milliseconds)
    os.write(1, b"done\n")


def main():
    rounds = int(sys.argv[1])
    rng = random.Random(20240229)
    producer_waits, waits = Waits(), Waits()
    producer = Producer(producer_waits)
    producer.work = [rng.randrange(25, 60) for _ in range(rounds)]
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin = time.monotonic_ns()
    for _ in range(rounds):
        wait_sleep(waits, rng.randrange(25, 60))
        compute(3)
        wait_lock(waits, rng.randrange(25, 60), False)
        compute(3)
        wait_lock(waits, rng.randrange(25, 60), True)
        compute(3)
        wait_join(waits, rng.randrange(25, 60))
        compute(3)
        wait_child(waits, rng.randrange(80, 120))
        compute(3)
    # The producer comes last and alone: beside it the main thread would
    # compete with it for the interpreter.
    producer.start()
    producer.close()
    print(json.dumps({
        "pid": os.getpid(), "tid": threading.get_native_id(), "begin_ns": begin, "end_ns": time.monotonic_ns(),
        "waits": waits.done + producer_waits.done,
    }), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--consumer":
        consumer()
    elif sys.argv[1] == "--child":
        child_work(int(sys.argv[2]))
    else:
        main()
