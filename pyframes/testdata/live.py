# SPDX-License-Identifier: Apache-2.0
"""Threads that wait in many ways, and what CPython itself says of their frames.

Each line read is answered with a line of JSON: for each thread its number, and
its frames, innermost first: name, file, first line, position, line, and what
the name tells of the entry: entered (from C), called (from Python), null.
"""
import asyncio
import functools
import gc
import json
import os
import queue
import re
import select
import socket
import subprocess
import sys
import threading
import time
import types

never = threading.Lock()
never.acquire()
silent, _mouth = os.pipe()
threads = {}  # ident: native id


def thread(function):
    """Runs function in a thread of its own, for ever."""
    def run():
        threads[threading.get_ident()] = threading.get_native_id()
        function()
    threading.Thread(target=run, daemon=True).start()
    return function


@thread
def sleeps():
    time.sleep(
        10000
    )


class Outer:
    class Inner:
        def method(self):
            with never:
                pass

        @functools.lru_cache()
        def decorated(self):
            return self.method()

        @property
        def attribute(self):
            return self.decorated()

        def __getattr__(self, name):
            return self.attribute


thread(lambda: Outer.Inner().missing)


@thread
def latin_äöü():
    def griechisch_λόγος():
        def chinesisch_漢字():
            def weit_𠀀𠀁():
                never.acquire()
            weit_𠀀𠀁()
        chinesisch_漢字()
    griechisch_λόγος()


def numbers(n):
    for i in range(n):
        yield i
        never.acquire()


def delegates(n):
    yield from numbers(n)


@thread
def generators():
    for a in (
        b for b in delegates(3)
    ):
        [c for c in [a]]


def called_again(n):
    return called_again(n - 1) if n else never.acquire()


@thread
def recursion():
    called_again(300)


@thread
def callbacks():
    def entered_key(x):
        return called_helper(x)

    def called_helper(x):
        return list(map(entered_function, [x]))

    def entered_function(x):
        never.acquire()
        return x
    sorted([1, 2], key=entered_key)


@thread
def comprehensions():
    return {
        k: [
            [never.acquire() for x in "ab"]
            for y in "cd"
        ]
        for k in "ef"
    }


@thread
def substitutes():
    re.sub("a", lambda m: never.acquire(), "aaa")


@thread
def executes():
    exec(compile("import time\n\ndef text():\n    time.sleep(10000)\n\ntext()", "<text>", "exec"), {})


@thread
def executes_relative():
    exec(compile("\n\nimport time\ntime.sleep(10000)", "some/relative.py", "exec"), {})


@thread
def class_body():
    class Body:
        class Nested:
            never.acquire()


@thread
def finally_block():
    try:
        raise ValueError
    except ValueError:
        try:
            pass
        finally:
            for _ in range(2):
                os.read(
                    silent,
                    1)


@thread
def event_loop():
    async def inner():
        never.acquire()

    async def outer():
        async def manager():
            await inner()
        await asyncio.gather(manager())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(outer())


@thread
def idle_loop():
    asyncio.new_event_loop().run_forever()


thread(queue.Queue().get)
thread(threading.Event().wait)
thread(lambda: select.select([silent], [], []))
pair = socket.socketpair()
thread(lambda: pair[0].recv(1))
thread(lambda: subprocess.run(["sleep", "10000"]))


def long_lines():
    pass


# Steps of lines and positions beyond what one entry of a table holds.
exec(compile("def long_lines(x):\n" + "\n" * 1000 + "    y = [\n" + "        x,\n" * 500
             + "        x.acquire(" + "\n" * 300 + "        )\n    ]\n", "<long>", "exec"))
thread(lambda: long_lines(never))


def qualified(frame, functions):
    code = frame.f_code
    if hasattr(code, "co_qualname"):
        return code.co_qualname
    if "__qualname__" in frame.f_locals and "__module__" in frame.f_locals:
        return frame.f_locals["__qualname__"]
    return functions.get(code, code.co_name)


def describe(frame, functions):
    while frame:
        code = frame.f_code
        path = code.co_filename
        if path[0] != "<":
            path = os.path.join(os.getcwd(), path)
        name = qualified(frame, functions)
        entry = {"entered": True, "called": False}.get(code.co_name.split("_")[0])
        yield [name, path, code.co_firstlineno, frame.f_lasti, frame.f_lineno, entry]
        frame = frame.f_back


def report():
    functions = {}
    for o in gc.get_objects():
        if isinstance(o, types.FunctionType):
            functions[o.__code__] = o.__qualname__
        elif isinstance(o, types.GeneratorType):  # its function may be gone
            functions[o.gi_code] = o.__qualname__
    frames = sys._current_frames()
    return [[number, list(describe(frames[ident], functions))]
            for ident, number in threads.items() if ident in frames]


def answers():
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(report()), flush=True)


def main():
    threads[threading.get_ident()] = threading.get_native_id()
    threading.Thread(target=answers, daemon=True).start()
    never.acquire()


main()
