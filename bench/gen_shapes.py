#!/usr/bin/env python3
"""Writes heap profiles of no real program in which one thing is many: label sets, threads, or the
frames of a stack.

usage: gen_shapes.py SHAPE COUNT OUT.pb.gz

    gen_shapes.py label-sets 10000 l10k.pb.gz    # each sample has labels that no other has
    gen_shapes.py threads     5000 t5k.pb.gz     # each thread has a name and a number of its own
    gen_shapes.py deep        2000 d2k.pb.gz     # 200 stacks of so many frames
    gen_shapes.py recursive   2000 c2k.pb.gz     # the same, of 20 functions that call each other
    gen_shapes.py functions  20000 f20k.pb.gz    # so many functions, each in a file of its own

A command whose time grows with the square of COUNT shows when COUNT is four times as large. The
same arguments give the same bytes.
"""

import gzip
import sys

from wire import TYPES, Strings, message, number, packed

STACKS = 200
DEPTH = 20


def labels(strings, *pairs):
    encoded = b""
    for key, value in pairs:
        one = number(1, strings(key))
        if isinstance(value, str):
            one += number(2, strings(value))
        else:
            one += number(3, value) + number(4, strings("nanoseconds" if key == "age" else ""))
        encoded += message(3, one)
    return encoded


def samples(shape, count, strings):
    """The stack of each sample, its leaf first, as numbers of functions, and its labels."""
    if shape == "label-sets":
        for i in range(count):
            stack = [i % STACKS * 7 + n for n in range(DEPTH)]
            pairs = ("request", f"r{i}"), ("number", i), ("age", i * 1000)
            yield stack, labels(strings, *pairs)
    elif shape == "threads":
        for i in range(2 * count):
            stack = [i % STACKS * 7 + n for n in range(DEPTH)]
            thread = i // 2
            yield stack, labels(strings, ("thread", f"worker-{thread}"), ("tid", 1000 + thread))
    elif shape == "deep":
        for i in range(STACKS):
            yield [n + i for n in range(count)], b""
    elif shape == "recursive":
        for i in range(STACKS):
            yield [(n * (1 + i % 3) + i) % DEPTH for n in range(count)], b""
    elif shape == "functions":
        for i in range(count):
            yield [i, *(i // 2 ** (n + 1) for n in range(DEPTH))], b""
    else:
        sys.exit(f"{shape}: is no shape; see the first lines of this script")


def profile(shape, count):
    strings = Strings()
    out = bytearray()
    for name, unit in TYPES:
        out += message(1, number(1, strings(name)) + number(2, strings(unit)))
    functions = 0
    for i, (stack, labels_of) in enumerate(samples(shape, count, strings)):
        functions = max(functions, max(stack) + 1)
        objects = 1 + i % 7
        values = (2 * objects, 128 * objects, objects, 64 * objects)
        out += message(2, packed(1, [n + 1 for n in stack]) + packed(2, values) + labels_of)
    mapping = number(1, 1) + number(2, 0x400000) + number(3, 0x4000000)
    mapping += number(5, strings("/usr/bin/app")) + number(6, strings("deadbeef"))
    out += message(3, mapping + number(7, 1) + number(8, 1) + number(9, 1))
    for i in range(functions):
        line = message(4, number(1, i + 1) + number(2, i % 300 + 1))
        out += message(4, number(1, i + 1) + number(2, 1) + number(3, 0x400000 + i * 16) + line)
        name = strings(f"mod{i % 300}::method_{i}")
        files = functions if shape == "functions" else 50
        file = strings(f"/build/src/pkg1/file{i % files}.cc")
        out += message(5, number(1, i + 1) + number(2, name) + number(3, name) + number(4, file))
    kind = number(1, strings("space")) + number(2, strings("bytes"))
    default = strings("inuse_space")
    for text in strings.index:
        out += message(6, text.encode())
    out += number(9, 1760000000000000000) + message(11, kind)
    return bytes(out + number(12, 1) + number(14, default))


def main():
    shape, count, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    with gzip.GzipFile(path, "wb", compresslevel=1, mtime=0) as file:
        file.write(profile(shape, count))


main()
