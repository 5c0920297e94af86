# SPDX-License-Identifier: Apache-2.0
"""Shapes of code on which decoders of line tables go wrong. Compiled, not run."""
import contextlib


def deco(*args):
    return lambda f: f


@deco(
    1,
    2,
)
@deco()
def decorated(
    a,
    b=[
        x
        for x in range(3)
        if x
    ],
):
    return (
        a
        + b[
            0
        ]
    )


def cleanup(path):
    try:
        with open(path) as f, contextlib.suppress(
            OSError,
        ):
            return f.read()
    except (ValueError, KeyError) as e:
        raise RuntimeError(
            "x"
        ) from e
    else:
        pass
    finally:
        for i in range(10):
            if i:
                continue
            break
        else:
            print(
                i
            )


def generator(n):
    while True:
        got = yield (
            n
        )
        if got:
            yield from (
                x for x in
                got
            )


async def waits(items):
    async with items as a:
        async for x in a:
            await x
    return [
        y
        async for y in items
        if await y
    ]


class Nested:
    """A class."""

    @property
    def value(self): return {k: v for k, v in self.d.items()}

    class Inner:
        x = lambda self: (
            lambda: self
        )()



























































































































































def far_away(): pass




































































































































































































































def backwards(f):
    f(1,
      f(2,
        f(3)), f(
            4))(5
                ); g = f; return g
