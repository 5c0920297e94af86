# SPDX-License-Identifier: Apache-2.0
"""An event loop whose tasks keep it from each other, and who had it when.

usage: loop.py ROUNDS --on-line
"""

import asyncio
import json
import os
import sys
import time

TURNS = {}


def now():
    return int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)


def work(milliseconds):
    end = now() + int(milliseconds * 1e6)
    x = 0
    while now() < end:
        for i in range(500):
            x = (x * 31 + i) % 1000003


class Turn:
    """Notes how long the loop was kept."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.begin = now()

    def __exit__(self, *_):
        TURNS.setdefault(self.name, []).append([self.begin, now()])


class Shop:
    async def sleeper(self):
        """Blocks the loop: it should await instead."""
        with Turn("Shop.sleeper"):
            time.sleep(0.06)
        await asyncio.sleep(0)

    async def cruncher(self):
        await self.part()

    async def part(self):
        with Turn("Shop.cruncher"):
            work(40)
        await asyncio.sleep(0.001)


def callback():
    with Turn("callback"):
        work(20)


async def ticker(stop):
    while not stop.is_set():
        await asyncio.sleep(0.002)


async def main(rounds):
    shop, stop = Shop(), asyncio.Event()
    tick = asyncio.ensure_future(ticker(stop))
    for _ in range(rounds):
        asyncio.get_event_loop().call_soon(callback)
        await asyncio.gather(shop.sleeper(), shop.cruncher())
        await asyncio.sleep(0.03)
    stop.set()
    await tick


print("ready", flush=True)
sys.stdin.readline()
asyncio.run(main(int(sys.argv[1])))
print(json.dumps({"tid": os.getpid(), "turns": TURNS}), flush=True)
