# SPDX-License-Identifier: Apache-2.0
"""Equal units of work at a depth that others choose, with a log they can read.

usage: units.py FILE SECONDS

FILE is made by who starts this program and mapped by both, so that neither a
pipe nor a wake-up disturbs the work. In native byte order:

    u64 count    entries written so far (by this program)
    u64 depth    how many frames to go down before the work (by the other one),
                 and flags: TRAMPOLINE, CALLS
    then a ring of ENTRIES times (u64 end_ns, u64 cpu_ns, u64 depth)

end_ns is CLOCK_MONOTONIC, cpu_ns the CPU time of the unit: interrupts and what
runs in them fall on the interrupted thread's clock, so that is where a
profiler's cost shows.
"""

import mmap
import struct
import sys
import time

ENTRIES = 1 << 16
HEADER = 16
ENTRY = struct.Struct("=QQQ")
WORK = 4000
NUMBER = 16  # about as long
TRAMPOLINE = 1 << 32  # every Python function through the one for perf (3.12 and newer)
CALLS = 1 << 33  # a unit of calls instead of a loop


def unit(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def deep(depth, work, n):
    return work(n) if depth == 0 else deep(depth - 1, work, n)


def trampoline(on):
    if on:
        sys.activate_stack_trampoline("perf")
    else:
        sys.deactivate_stack_trampoline()


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    with open(path, "r+b") as f:
        memory = mmap.mmap(f.fileno(), HEADER + ENTRIES * ENTRY.size)
    header = struct.Struct("=Q")
    clock, cpu = time.monotonic_ns, time.thread_time_ns
    count = flags = 0
    end = clock() + int(seconds * 1e9)
    print("ready", flush=True)
    while clock() < end:
        (depth,) = header.unpack_from(memory, 8)
        if (depth ^ flags) & TRAMPOLINE:
            trampoline(depth & TRAMPOLINE)
        flags = depth & (TRAMPOLINE | CALLS)
        work, n = (fib, NUMBER) if flags & CALLS else (unit, WORK)
        before = cpu()
        deep(depth & 0xFFFFFFFF, work, n)
        spent = cpu() - before
        ENTRY.pack_into(memory, HEADER + count % ENTRIES * ENTRY.size, clock(), spent, depth)
        count += 1
        header.pack_into(memory, 0, count)


if __name__ == "__main__":
    main()
