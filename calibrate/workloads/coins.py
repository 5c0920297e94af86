# SPDX-License-Identifier: Apache-2.0
"""Functions with known shares, a 50 %, b 5 %, c 1 %, d 44 %, chosen by chance.

usage: coins.py MODE

MODE is "alike": calls of some 100 us follow each other, each chosen independently
of the others; or "differ": requests of some 10 ms, between which it sleeps for half
a millisecond, and each of which prefers other functions than the next, so that the
shares hold over many requests only.

A call is shorter than the sampling period of the tests, so samples never see the
same call twice: they are independent of each other but for the request.

Prints "ready" and one line of JSON, the shares that the choice leads to and the number
of the thread, and then runs until it is killed. The functions do the same work, but need not
cost the same (caches, specialized code), and the choice has a cost of its own: both are
measured beforehand, over many calls at a time, so that no clock is read later.
"""

import json
import random
import statistics
import sys
import threading
import time

SHARES = {"a": 0.50, "b": 0.05, "c": 0.01, "d": 0.44}
LOOPS = 1000
CALLS = 100  # of a request
ALIKE = 0.03  # correlation within a request


# Each must be a function of its own, and the loop must run in the function itself
# so that the samples fall on it.
def a(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def b(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def c(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


def d(n):
    x = 0
    for i in range(n):
        x = (x * 31 + i) % 1000003
    return x


FUNCTIONS = [a, b, c, d]


def nothing(n):
    return n


def request(functions, weights, n):
    for f in random.choices(functions, weights, k=CALLS):
        f(n)


def cost(functions, weights, n):
    """CPU time of a request, ns."""
    begin = time.thread_time_ns()
    request(functions, weights, n)
    return time.thread_time_ns() - begin


def weights_of(alike):
    """The shares of one request: Dirichlet's, with the right means."""
    return [random.gammavariate(share * (1 / alike - 1), 1) for share in SHARES.values()]


def between():
    """What mode "differ" does between two requests, and its CPU time, ns."""
    begin = time.thread_time_ns()
    weights = weights_of(ALIKE)
    time.sleep(0.0005)
    return weights, time.thread_time_ns() - begin


def truth(mode, rounds):
    costs = {f: [] for f in [*FUNCTIONS, nothing]}
    for _ in range(rounds):  # in turn: the machine's speed changes
        for f, list_of in costs.items():
            list_of.append(cost([f], [1], LOOPS))
    median = {f.__name__: statistics.median(list_of) for f, list_of in costs.items()}
    other = median["nothing"]
    pause = statistics.median(between()[1] for _ in range(rounds)) if mode == "differ" else 0
    spent = {name: share * (median[name] - other) for name, share in SHARES.items()}
    whole = sum(spent.values()) + other + pause
    return {name: ns / whole for name, ns in spent.items()}


def main():
    mode = sys.argv[1]
    random.seed(20240229)
    truth(mode, 3)  # the interpreter specializes code that has run a while
    shares = truth(mode, 60)
    print("ready", flush=True)
    print(json.dumps({"tid": threading.get_native_id(), "shares": shares}), flush=True)
    random.seed()
    while mode == "alike":
        request(FUNCTIONS, list(SHARES.values()), LOOPS)
    while True:
        request(FUNCTIONS, between()[0], LOOPS)


main()
