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

PAGES, STEP = 12, 32  # far apart: a folio may be large
size = PAGES * STEP * mmap.PAGESIZE


with open(sys.argv[1], "wb") as f:
    f.write(os.urandom(size))
with open(sys.argv[1], "r+b") as f:
    memory = mmap.mmap(f.fileno(), size, flags=mmap.MAP_PRIVATE)
    memory.madvise(mmap.MADV_RANDOM)  # no reading ahead
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    resident = (ctypes.c_ubyte * (PAGES * STEP))()
    # Pages stay in memory for a while: on their way to the disk, or in a list that
    # another CPU has.
    for _ in range(100):
        os.fsync(f.fileno())
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        ctypes.CDLL(None).mincore(ctypes.c_void_p(base), ctypes.c_size_t(size), resident)
        pages = [p for p in range(0, PAGES * STEP, STEP) if not resident[p] & 1]
        if pages:
            break
        time.sleep(0.02)
print("ready", flush=True)
sys.stdin.readline()
for page in pages:
    begin = time.monotonic_ns()
    memory[page * mmap.PAGESIZE]
    print(threading.get_native_id(), begin, time.monotonic_ns(), base + page * mmap.PAGESIZE, flush=True)
