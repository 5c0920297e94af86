# SPDX-License-Identifier: Apache-2.0
"""Switches between two threads, or echoes by TCP, in equal units.

usage: switches.py LIBRARY {ping|echo} ROUNDS WORK FILE

FILE gets when each unit ended and the CPU time both threads took for it, in the
form of calibrate/workloads/units.py.
"""
import ctypes
import mmap
import os
import struct
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
HEADER, ENTRY, ENTRIES = 16, struct.Struct("=QQQ"), 1 << 16
with open(sys.argv[5], "r+b") as f:
    memory = mmap.mmap(f.fileno(), HEADER + ENTRIES * ENTRY.size)
print("ready", flush=True)
count = 0
while True:
    before = time.process_time_ns()
    unit()
    spent = time.process_time_ns() - before
    ENTRY.pack_into(memory, HEADER + count % ENTRIES * ENTRY.size, time.monotonic_ns(), spent, 0)
    count += 1
    struct.pack_into("=Q", memory, 0, count)
