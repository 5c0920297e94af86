# SPDX-License-Identifier: Apache-2.0
"""Ten functions with known shares of the CPU time: 50 20 15 5 5 1 1 1 1 1 %.

usage: profile10.py SECONDS [--on-line] [--cprofile] [--cpu] [--log FILE]

The work is the same loop in each of f0 … f9. A sampler that fires at a fixed
period could lock to rounds of constant length, so the unit of work and the order
of the functions vary from round to round, with a fixed seed. Shares of loops are
only nominal: caches and small integers favour some. So each function's CPU time
is measured (time.thread_time_ns around each call) and reported as the truth.
What lies between the readings is round_of(), pick() and the clock; it is
reported too ("other_ns"), and so is what one pair of readings costs by itself
("clock_ns", within each function's time once a round). "slices" are the sums at
points of CLOCK_MONOTONIC, a quarter of a second apart, and the rounds so far.

With --log, FILE gets three native 64-bit numbers for each call of the ten: the
function's number, and the times (CLOCK_MONOTONIC) before and after.

With --cpu SECONDS are of CPU time, within four times as long by the clock.

With --cprofile the deterministic profiler of the standard library runs, too, and
"cprofile" is the own time it reports for each function.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import array
import json
import random
import sys
import threading
import time

SHARES = [50, 20, 15, 5, 5, 1, 1, 1, 1, 1]


# The ten are written out: each must be a function of its own, and the loop must
# run in the function itself so that the samples fall on it.
def f0(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f1(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f2(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f3(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f4(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f5(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f6(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f7(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f8(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def f9(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


FUNCTIONS = [f0, f1, f2, f3, f4, f5, f6, f7, f8, f9]


def pick(rng):
    """The order and the unit of one round."""
    order = list(range(len(FUNCTIONS)))
    rng.shuffle(order)
    # Some 10 to 30 us for 1 %: long against the clock's own 0.2 us, and a round
    # is 1 to 3 ms.
    return order, rng.randrange(200, 500)


def round_of(order, unit, spent):
    clock = time.thread_time_ns
    for i in order:
        f = FUNCTIONS[i]
        begin = clock()
        f(SHARES[i] * unit)
        spent[i] += clock() - begin


def logged_round_of(order, unit, spent, note):
    clock = time.monotonic_ns
    for i in order:
        f = FUNCTIONS[i]
        begin = clock()
        f(SHARES[i] * unit)
        end = clock()
        spent[i] += end - begin
        note((i, begin, end))


def cost_of_clock():
    """What two readings in a row differ by: the median."""
    clock = time.thread_time_ns
    pairs = []
    for _ in range(1001):
        begin = clock()
        pairs.append(clock() - begin)
    return sorted(pairs)[500]


def own_times(profiler):
    """Nanoseconds cProfile found for each function itself."""
    names = {f.__code__: f.__name__ for f in FUNCTIONS}
    return {names[e.code]: int(e.inlinetime * 1e9) for e in profiler.getstats() if e.code in names}


def main():
    seconds = float(sys.argv[1])
    rng = random.Random(20240229)
    spent = [0] * len(FUNCTIONS)
    clock_ns = cost_of_clock()
    log = array.array("q") if "--log" in sys.argv else None
    profiler = None
    if "--cprofile" in sys.argv:
        import cProfile
        # Its own clock is the wall's, which runs while others have the CPU.
        profiler = cProfile.Profile(time.thread_time_ns, 1e-9)
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin, begin_cpu = time.monotonic_ns(), time.thread_time_ns()
    end = begin + int(seconds * 1e9)
    end_cpu = None
    if "--cpu" in sys.argv:
        end, end_cpu = begin + int(4 * seconds * 1e9), begin_cpu + int(seconds * 1e9)
    rounds = 0
    slices, cut = [], begin
    if profiler:
        profiler.enable()
    while True:
        now = time.monotonic_ns()
        if now >= cut:
            slices.append([now] + spent + [rounds])
            cut = now + 250_000_000
        if now >= end or end_cpu and time.thread_time_ns() >= end_cpu:
            slices.append([now] + spent + [rounds])
            break
        order, unit = pick(rng)
        if log is None:
            round_of(order, unit, spent)
        else:
            logged_round_of(order, unit, spent, log.extend)
        rounds += 1
    if profiler:
        profiler.disable()
    cpu = time.thread_time_ns() - begin_cpu
    if log is not None:
        with open(sys.argv[sys.argv.index("--log") + 1], "wb") as f:
            log.tofile(f)
    print(json.dumps({
        "begin_ns": begin, "end_ns": time.monotonic_ns(), "tid": threading.get_native_id(),
        "rounds": rounds, "cpu_ns": cpu, "other_ns": cpu - sum(spent), "clock_ns": clock_ns, "slices": slices,
        "functions": {f.__name__: ns for f, ns in zip(FUNCTIONS, spent)},
        "cprofile": own_times(profiler) if profiler else {},
    }), flush=True)


if __name__ == "__main__":
    main()
