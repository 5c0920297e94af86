# SPDX-License-Identifier: Apache-2.0
"""Computes at a chosen depth of Python and native frames.

usage: depth.py LIBRARY; then, line by line on its input: PYTHON NATIVE MILLISECONDS
"""
import ctypes
import sys
import time

native = ctypes.CDLL(sys.argv[1]).descend
native.argtypes = [ctypes.c_int, ctypes.c_long]


def leaf(frames, seconds):
    sys.stdout.write("there\n")
    sys.stdout.flush()
    if frames > 0:
        native(frames, int(seconds * 1e9))
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for i in range(1000):
            pass


def descend(python, frames, seconds):
    if python > 0:
        descend(python - 1, frames, seconds)
    else:
        leaf(frames, seconds)


sys.setrecursionlimit(2000)
print("ready", flush=True)
for line in sys.stdin:
    python, frames, millis = map(int, line.split())
    descend(python, frames, millis / 1000)
    print("done", flush=True)
