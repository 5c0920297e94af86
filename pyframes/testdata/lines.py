# SPDX-License-Identifier: Apache-2.0
"""Writes the line table of code objects and what CPython itself reads in it.

    lines.py EVERY [FILE...]

compiles each FILE and every EVERY-th module of the standard library (1: all).
For each code object: first line, size and bytes of the table, size of the
bytecode, number of ranges, and (start, end, line) of each; line 0 is none. All
numbers are 32 bits, little-endian.
"""
import ctypes
import os
import struct
import sys
import sysconfig
import warnings

warnings.simplefilter("ignore")
addr2line = ctypes.pythonapi.PyCode_Addr2Line
addr2line.argtypes = [ctypes.py_object, ctypes.c_int]
addr2line.restype = ctypes.c_int


def ranges(code):
    if sys.version_info >= (3, 10):
        return [(start, end, line or 0) for start, end, line in code.co_lines()]
    found = []
    for at in range(0, len(code.co_code), 2):
        line = addr2line(code, at)
        if found and found[-1][2] == line:
            found[-1][1] = at + 2
        else:
            found.append([at, at + 2, line])
    return found


def write(code, out):
    table = code.co_linetable if sys.version_info >= (3, 10) else code.co_lnotab
    found = ranges(code)
    out.write(struct.pack("<iI", code.co_firstlineno, len(table)) + table)
    out.write(struct.pack("<II", len(code.co_code), len(found)))
    for r in found:
        out.write(struct.pack("<iii", *r))
    for const in code.co_consts:
        if hasattr(const, "co_code"):
            write(const, out)


def modules():
    for folder, folders, names in os.walk(sysconfig.get_path("stdlib")):
        folders[:] = sorted(f for f in folders if f not in ("site-packages", "__pycache__"))
        for name in sorted(names):
            if name.endswith(".py"):
                yield os.path.join(folder, name)


def main():
    files = sys.argv[2:] + list(modules())[:: int(sys.argv[1])]
    for path in files:
        with open(path, "rb") as f:
            source = f.read()
        try:
            code = compile(source, path, "exec")
        except (SyntaxError, ValueError):
            continue  # the standard library has tests for bad sources
        write(code, sys.stdout.buffer)


main()
