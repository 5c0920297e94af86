# SPDX-License-Identifier: Apache-2.0
"""A small order service: one request after another, each with four parts.

This is the program `pathprof demo` looks at. A request

1. computes: it prices an order (Python code, and zlib for the receipt);
2. takes a lock that a background thread holds while it saves its index;
3. runs a child process that renders a label, and waits for it;
4. sleeps, because the warehouse it reports to allows so many calls a second.

A sampling profiler sees part 1 only. In the active path all four have their
time, and parts 2 and 3 show what the other thread and the child were doing.

usage: handler.py SECONDS PIDFILE
       handler.py --render ORDER
"""

import os
import subprocess
import sys
import threading
import time
import zlib

ITEMS = 400
CALL_INTERVAL = 0.010  # seconds the warehouse wants between two calls


class Stock:
    """What is on the shelves, with an index that goes stale."""

    def __init__(self):
        self.lock = threading.Lock()
        self.index = {}
        self.saved = b""

    def refresh_forever(self):
        """The background thread: index, save, rest."""
        name_thread("stock-refresh")
        while True:
            # The mistake this demo is about: the lock is held while the index is
            # saved, not only while it is put in place.
            with self.lock:
                self.index = self.build_index()
                self.save_index()
            time.sleep(0.030)

    def build_index(self):
        index = {}
        for item in range(10000):
            index[item * 7919 % 65537] = item
        return index

    def save_index(self):
        # zlib releases the interpreter lock, so requests could go on meanwhile:
        # if they did not need the other lock.
        self.saved = zlib.compress(repr(self.index).encode() * 12, 6)

    def reserve(self, item):
        """Called by the request: waits while a refresh is under way."""
        with self.lock:
            return self.index.get(item, 0)


class Handler:
    """Serves requests, one after another."""

    def __init__(self, stock):
        self.stock = stock

    def handle(self, order):
        total = self.price(order)
        self.stock.reserve(order % ITEMS)
        label = self.render_label(order)
        self.report(order, total, label)

    def price(self, order):
        total = 0
        lines = []
        for item in range(ITEMS):
            amount = self.discount(order, item)
            total += amount
            lines.append("item %d: %d" % (item, amount))
        return total + len(zlib.compress("\n".join(lines).encode() * 20, 9))

    def discount(self, order, item):
        rest = order * 31 + item
        for _ in range(200):
            rest = rest * 1103515245 % 2147483648 + 12345
        return rest % 100

    def render_label(self, order):
        # -S -E: the child starts in a fraction of the usual time.
        command = [sys.executable, "-S", "-E", os.path.abspath(__file__), "--render", str(order)]
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=True).returncode

    def report(self, order, total, label):
        time.sleep(CALL_INTERVAL)


def render(order):
    """The child: draws a label, letter by letter."""
    name_thread("label")
    rows = []
    for row in range(400):
        rows.append("".join(chr(65 + (order + row * column) % 26) for column in range(400)))
    return "\n".join(rows)


def name_thread(name):
    """Give the calling thread a name that can be seen from outside, as in top -H.

    CPython does so itself from 3.14; before, all threads are called python3.
    """
    try:
        with open("/proc/self/task/%d/comm" % threading.get_native_id(), "w") as comm:
            comm.write(name)
    except OSError:
        pass  # a name is a comfort, not a need


def serve(seconds, pidfile):
    stock = Stock()
    threading.Thread(target=stock.refresh_forever, daemon=True).start()
    handler = Handler(stock)
    with open(pidfile + ".new", "w") as file:
        file.write("%d\n" % os.getpid())
    os.rename(pidfile + ".new", pidfile)  # complete as soon as it can be seen
    end = time.monotonic() + seconds
    order = 0
    while time.monotonic() < end:
        order += 1
        handler.handle(order)


if __name__ == "__main__":
    if sys.argv[1] == "--render":
        render(int(sys.argv[2]))
    else:
        serve(float(sys.argv[1]), sys.argv[2])
