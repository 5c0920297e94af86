# SPDX-License-Identifier: Apache-2.0
"""Runs chains of functions, in the way that the first argument names.

A function that is called by another of its chain has the chain's letter and the
number after the caller's. Runs on 3.6 to 3.15.
"""
import asyncio
import multiprocessing
import os
import socket
import sys
import threading
import time


def w3():
    x = 0
    for i in range(300):
        x = (x * 31 + i) % 1000003
    return x


def w2():
    return w3()


def w1():
    return w2()


def w0():
    return w1()


def v2():
    return sum(i * i for i in range(100))


def v1():
    return v2()


def v0():
    return v1()


def x2():
    return sorted(range(200), key=lambda i: -i)


def x1():
    return x2()


def x0():
    return x1()


until = None


def more():
    """Tells for some CPU time that there is more to do."""
    global until
    now = time.process_time()
    if until is None:
        until = now + 0.1
    return now < until


def work():
    while more():
        w0()
        v0()


def begin():
    """Says that everything is there, and waits to be watched."""
    print("ready", flush=True)
    sys.stdin.readline()


def done():
    """Says that a process has run its chains, and does nothing more."""
    os.write(1, b"done\n")
    time.sleep(600)


def plain():
    begin()
    work()
    done()


def fork():
    begin()
    processes(multiprocessing.get_context("fork"))


def spawn():
    begin()
    processes(multiprocessing.get_context("spawn"))


def processes(context):
    for _ in range(2):
        context.Process(target=worker, daemon=True).start()
    time.sleep(600)


def worker():
    work()
    done()


def prefork():
    """A server whose workers wait for connections, and its client."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(8)
    for _ in range(2):
        if os.fork() == 0:
            serve(listener)
    begin()
    for _ in range(150):
        with socket.create_connection(listener.getsockname()) as c:
            c.sendall(b"x")
            c.recv(1)
    done()


def serve(listener):
    while True:
        c, _ = listener.accept()
        with c:
            handle(c)


def handle(c):
    c.recv(1)
    for _ in range(20):
        w0()
        v0()
    c.sendall(b"y")


def execs():
    begin()
    while more():
        w0()
    os.execv(sys.argv[2], [sys.argv[2], __file__, "executed"])


def executed():
    while more():
        x0()
    done()


def generators():
    begin()
    while more():
        for _ in g0():
            v0()
    done()


def g0():
    yield from g1()


def g1():
    yield from g2()


def g2():
    for _ in range(50):
        w0()
        yield


def coroutines():
    begin()
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    loop.run_until_complete(everything())
    done()


async def everything():
    await asyncio.gather(t0(), t0(), u0())


async def t0():
    while more():
        await t1()


async def t1():
    await t2()


async def t2():
    w0()
    await asyncio.sleep(0)
    v0()


async def u0():
    while more():
        async for _ in u1():
            v0()


async def u1():
    for _ in range(20):
        await u2()
        yield


async def u2():
    w0()
    await asyncio.sleep(0)


def greenlets():
    import greenlet

    group = [greenlet.greenlet(a0), greenlet.greenlet(b0)]
    group.append(greenlet.getcurrent())
    begin()
    while more():
        v0()
        group[0].switch(group)
    done()


def a0(group):
    a1(group)


def a1(group):
    while True:
        for _ in range(5):
            w0()
        group[1].switch(group)


def b0(group):
    b1(group)


def b1(group):
    b2(group)


def b2(group):
    while True:
        for _ in range(5):
            w0()
        group[2].switch()


SUB = """
def s2():
    x = 0
    for i in range(300):
        x = (x * 31 + i) % 1000003
def s1():
    s2()
def s0():
    for i in range(200):
        s1()
"""


def interpreters():
    """Threads that run sub-interpreters of theirs, and one that made one only."""
    try:
        import _interpreters as sub

        kinds, run = [{"config": "legacy"}, {"config": "isolated"}], sub.exec
    except ImportError:
        import _xxsubinterpreters as sub

        kinds, run = [{}], sub.run_string
        if sys.version_info >= (3, 12):
            kinds.append({"isolated": False})
    started, going = threading.Semaphore(0), threading.Event()
    threads = [
        threading.Thread(target=f, args=(sub.create, k, run, started, going), daemon=True)
        for f in (uses, makes)
        for k in kinds
    ]
    for t in threads:
        t.start()
        started.acquire()
    begin()
    going.set()
    for _ in threads:
        started.acquire()
    done()


def uses(create, kind, run, started, going):
    other = create(**kind)
    run(other, SUB)
    started.release()
    going.wait()
    while more():
        run(other, "s0()")
        for _ in range(100):
            w0()
    started.release()
    time.sleep(600)


def makes(create, kind, run, started, going):
    run(create(**kind), "pass")
    started.release()
    going.wait()
    work()
    started.release()
    time.sleep(600)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
