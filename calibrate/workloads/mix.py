# SPDX-License-Identifier: Apache-2.0
"""Two chains of short calls in turn: stacks that never existed give themselves away.

usage: mix.py SECONDS [--on-line]

a0 calls a1 and so on down to a9, which does next to nothing; then b0 to b9. A stack
with both letters, or with a gap in the numbers, was never there: whoever read it
read two moments.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import json
import sys
import threading
import time

DEPTH = 10


def chains():
    """The functions, each a code object of its own; returns the first of both."""
    text = "".join(
        f"def {letter}{n}(x):\n    return {letter}{n + 1}(x)\n" for letter in "ab" for n in range(DEPTH - 1)
    ) + "".join(f"def {letter}{DEPTH - 1}(x):\n    return x + 1\n" for letter in "ab")
    scope = {}
    exec(compile(text, "mix_chains.py", "exec"), scope)
    return scope["a0"], scope["b0"]


def main():
    seconds = float(sys.argv[1])
    a, b = chains()
    clock = time.monotonic_ns
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin = clock()
    end, rounds = begin + int(seconds * 1e9), 0
    while clock() < end:
        for _ in range(100):
            a(0)
            b(0)
        rounds += 100
    print(json.dumps({
        "begin_ns": begin, "end_ns": clock(), "tid": threading.get_native_id(), "rounds": rounds,
    }), flush=True)


if __name__ == "__main__":
    main()
