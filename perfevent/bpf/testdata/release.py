# SPDX-License-Identifier: Apache-2.0
"""A thread waits 50 times for a lock that one function releases."""

import sys
import threading
import time

lock = threading.Lock()
lock.acquire()
print("ready", flush=True)
sys.stdin.readline()


def take():
    for _ in range(50):
        lock.acquire()


def release():
    lock.release()


waiter = threading.Thread(target=take)
waiter.start()
print(waiter.native_id, flush=True)
for _ in range(50):
    time.sleep(0.004)
    while not lock.locked():  # a busy machine keeps the waiter from taking it
        time.sleep(0.001)
    release()
waiter.join()
print("done", flush=True)
sys.stdin.readline()
