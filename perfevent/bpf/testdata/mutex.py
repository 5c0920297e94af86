# SPDX-License-Identifier: Apache-2.0
"""Waits for a C mutex that another thread holds, told by the numbers that the
process itself knows: waiter holder begin_ns end_ns
"""
import ctypes
import sys
import threading
import time

libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(64)
taken = threading.Event()
print("ready", flush=True)
sys.stdin.readline()


def hold():
    time.sleep(0.01)
    libc.pthread_mutex_lock(mutex)
    taken.set()
    time.sleep(0.04)
    libc.pthread_mutex_unlock(mutex)
    time.sleep(1000)


holder = threading.Thread(target=hold, daemon=True)
holder.start()
taken.wait()
begin = time.monotonic_ns()
libc.pthread_mutex_lock(mutex)
print(threading.get_native_id(), holder.native_id, begin, time.monotonic_ns(), flush=True)
sys.stdin.readline()
