# SPDX-License-Identifier: Apache-2.0
"""Reads pages of a mapped file from its device, each told in one line:

    tid begin_ns end_ns address
"""
import ctypes
import mmap
import os
import sys
import threading
import time

PAGES, STEP = 40, 16
size = PAGES * STEP * mmap.PAGESIZE
with open(sys.argv[1], "wb") as f:
    f.write(os.urandom(size))
    f.flush()
    os.fsync(f.fileno())
    os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
with open(sys.argv[1], "r+b") as f:
    memory = mmap.mmap(f.fileno(), size, flags=mmap.MAP_PRIVATE)
memory.madvise(mmap.MADV_RANDOM)  # no reading ahead
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
print("ready", flush=True)
sys.stdin.readline()
for page in range(0, PAGES * STEP, STEP):
    begin = time.monotonic_ns()
    memory[page * mmap.PAGESIZE]
    print(threading.get_native_id(), begin, time.monotonic_ns(), base + page * mmap.PAGESIZE, flush=True)
