# SPDX-License-Identifier: Apache-2.0
"""Lines that log when they ran.

usage: skid.py SECONDS FILE [--on-line]

steps() has LINES lines; each notes the time and then computes for a microsecond
or so in a function written in C. FILE gets the times as native 64-bit numbers,
round after round; the first of a round belongs to the line FIRST of the JSON.

Prints "ready", runs (with --on-line: when a line comes on standard input), and
prints one line of JSON.
"""

import array
import json
import sys
import threading
import time

LINES = 40
SOURCE = "def steps(note, now, work, on):\n" + "    note(now()); work(on)\n" * LINES


def main():
    seconds, path = float(sys.argv[1]), sys.argv[2]
    scope = {}
    exec(compile(SOURCE, "steps.py", "exec"), scope)
    steps, now, on = scope["steps"], time.monotonic_ns, list(range(150))
    log = array.array("q")
    print("ready", flush=True)
    if "--on-line" in sys.argv:
        sys.stdin.readline()
    begin = now()
    while now() < begin + seconds * 1e9:
        steps(log.append, now, sum, on)
    end = now()
    log.append(end)
    with open(path, "wb") as f:
        log.tofile(f)
    print(json.dumps({
        "begin_ns": begin, "end_ns": end, "tid": threading.get_native_id(),
        "first": 2, "lines": LINES, "function": "steps",
    }), flush=True)


if __name__ == "__main__":
    main()
