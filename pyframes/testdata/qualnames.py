# SPDX-License-Identifier: Apache-2.0
"""Writes the qualified name of every code object, as the compiler gave it.

    qualnames.py EVERY

One JSON line a source file, [path, [[name, first line, qualified name], ...]],
for every EVERY-th module of the standard library (1: all). Before 3.11 the qualified name is no part of
the code object: it is the constant that MAKE_FUNCTION takes, and for a class
what its body stores as __qualname__.
"""
import dis
import json
import os
import sys
import sysconfig
import warnings

warnings.simplefilter("ignore")
LOAD_CONST, STORE_NAME = dis.opmap["LOAD_CONST"], dis.opmap["STORE_NAME"]


def instructions(code):
    arg = 0
    for i in range(0, len(code.co_code), 2):
        op = code.co_code[i]
        arg = arg << 8 | code.co_code[i + 1]
        if op != dis.EXTENDED_ARG:
            yield op, arg
            arg = 0


def walk(code, found):
    last = None
    for op, arg in instructions(code):
        if op == LOAD_CONST:
            const = code.co_consts[arg]
            if hasattr(last, "co_code") and isinstance(const, str):
                found.append([last.co_name, last.co_firstlineno, class_name(last) or const])
                walk(last, found)
            last = const
        else:
            last = None


def class_name(code):
    """The name a class body stores, None for other code."""
    last = None
    for op, arg in instructions(code):
        if op == STORE_NAME and code.co_names[arg] == "__qualname__":
            return last
        last = code.co_consts[arg] if op == LOAD_CONST else None
    return None


def modules():
    for folder, folders, names in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = sorted(f for f in folders if f not in ("site-packages", "__pycache__"))
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def main():
    for path in list(modules())[:: int(sys.argv[1])]:
        with open(path, "rb") as f:
            source = f.read()
        try:
            code = compile(source, path, "exec")
        except (SyntaxError, ValueError):
            continue  # the standard library has tests for bad sources
        found = []
        walk(code, found)
        print(json.dumps([path, found]))


main()
