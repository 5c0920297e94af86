# SPDX-License-Identifier: Apache-2.0
"""Threads that block at known places, and what the interpreter says of them.

Prints "ready" and a JSON line: for each thread its native id and its frames,
innermost first, as [name, qualified name or null, file, line]. Then it waits
for the end of its input. Each line a thread blocks in says "blocks".
"""
import _thread
import gc
import json
import linecache
import os
import sys
import threading
import time

never = threading.Lock()
never.acquire()


class Réseau:
    """A method, and names of one, two and four bytes a character."""

    def méthode(self, n):
        return self.récursion(n)

    def récursion(self, n):
        if n:
            return self.récursion(
                n - 1
            )
        return self.函数()

    def 函数(self):
        return self.𐐀()

    def 𐐀(self):
        time.sleep(1000)  # blocks

    class Inner:
        def __init__(self):
            self.wait()

        def wait(self):
            never.acquire()  # blocks


def generator():
    for i in range(3):
        yield i
    never.acquire()  # blocks


def comprehension():
    return [
        x
        for x in generator()
        if x >= 0
    ]


def callback():
    def key(x):
        def local():
            never.acquire()  # blocks
        return local()
    return sorted([1, 2], key=key)


def construct():
    return Réseau.Inner()


def warm():
    """The same calls, often enough for 3.11 and newer to specialise them."""
    class Quick:
        def __init__(self):
            self.x = 1
    for i in range(200):
        Quick()
        list(zip(range(3), (y for y in range(3))))


def plain_c():
    lambda_ = lambda: _thread.allocate_lock().acquire() and never.acquire()  # blocks
    return lambda_()


def by_source():
    code = compile("def made():\n  never.acquire()  # blocks\nmade()", "<made>", "exec")
    linecache.cache["<made>"] = (1, None, ["def made():\n", "  never.acquire()  # blocks\n", "made()\n"], "<made>")
    exec(code, {"never": never})


def qualname(code):
    if hasattr(code, "co_qualname"):
        return code.co_qualname
    for f in gc.get_referrers(code):
        if getattr(f, "__code__", None) is code:
            return f.__qualname__
    return None


def frames(frame):
    found = []
    while frame:
        code = frame.f_code
        found.append([code.co_name, qualname(code), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def is_blocked(thread, frame):
    if "# blocks" not in linecache.getline(frame.f_code.co_filename, frame.f_lineno):
        return False
    with open("/proc/self/task/%d/stat" % thread.native_id) as f:
        return f.read().rpartition(")")[2].split()[0] == "S"


def main():
    warm()
    works = [lambda: Réseau().méthode(4), comprehension, callback, construct, plain_c, by_source]
    threads = [threading.Thread(target=w, daemon=True) for w in works]
    for t in threads:
        t.start()
    while True:
        time.sleep(0.01)
        current = sys._current_frames()
        if all(t.native_id and is_blocked(t, current[t.ident]) for t in threads):
            break
    report = [[t.native_id, frames(current[t.ident])] for t in threads]
    mine = frames(sys._getframe())
    del current
    with open(__file__, encoding="utf-8") as f:
        mine[0][3] = [i for i, line in enumerate(f, 1) if "main" "-blocks" in line][0]
    report.append([os.getpid(), mine])
    print("ready\n" + json.dumps(report), flush=True)
    os.read(0, 1)  # main-blocks


main()
