# SPDX-License-Identifier: Apache-2.0
"""Switches between two threads, or echoes by TCP, in equal units.

usage: switches.py LIBRARY {ping|echo} ROUNDS WORK

Prints, for each unit, when it ended and the CPU time both threads took for it.
"""
import ctypes
import os
import sys
import threading
import time

library = ctypes.CDLL(sys.argv[1])
rounds, work = ctypes.c_long(int(sys.argv[3])), ctypes.c_long(int(sys.argv[4]))
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
if sys.argv[2] == "ping":
    threading.Thread(target=library.pongs, args=(work,), daemon=True).start()
    def unit():
        library.pings(rounds, work)
else:
    assert library.connect_both() == 0
    threading.Thread(target=library.echoes, daemon=True).start()
    def unit():
        library.calls(rounds)
print("ready", flush=True)
while True:
    before = time.process_time_ns()
    unit()
    print(time.monotonic_ns(), time.process_time_ns() - before, flush=True)
