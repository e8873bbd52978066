#!/usr/bin/env python3
"""Writes a large heap profile of no real program: SAMPLES stacks over a random call tree of
FUNCTIONS functions.

usage: gen_profile.py SAMPLES FUNCTIONS DEPTH OUT.pb.gz [SEED]

    gen_profile.py   10000  3000 25 s10k.pb.gz
    gen_profile.py  100000 20000 30 r100k.pb.gz
    gen_profile.py 1000000 50000 30 r1m.pb.gz

DEPTH is the mean length of a stack. Nearly all stacks are distinct, which is the hard case. The
same arguments give the same bytes.
"""

import gzip
import random
import sys

from wire import TYPES, Strings, message, number, packed

SIZES = (16, 24, 32, 48, 64, 128, 256, 1024, 4096, 65536)


class CallTree:
    """Nodes are made as stacks need them; the deeper, the more often a new one."""

    def __init__(self, depth, locations):
        self.depth, self.locations = depth, locations
        self.parent, self.location, self.level = [-1], [1], [0]
        self.below = {}

    def child(self, node):
        known = self.below.setdefault(node, [])
        if known and random.random() < (0.995 if self.level[node] < self.depth * 0.7 else 0.9):
            return random.choice(known)
        self.parent.append(node)
        self.location.append(random.randrange(self.locations) + 1)
        self.level.append(self.level[node] + 1)
        known.append(len(self.parent) - 1)
        return known[-1]

    def stack(self):
        """The locations of a random stack, leaf first."""
        node = 0
        length = int(random.gauss(self.depth, self.depth / 5))
        for _ in range(max(3, min(length, self.depth * 2))):
            node = self.child(node)
        stack = []
        while node != -1:
            stack.append(self.location[node])
            node = self.parent[node]
        return stack


def value_type(strings, name, unit):
    return number(1, strings(name)) + number(2, strings(unit))


def profile(samples, functions, depth):
    strings = Strings()
    for text in ("space", "bytes", "inuse_space", "count"):
        strings(text)
    out = bytearray()
    for name, unit in TYPES:
        out += message(1, value_type(strings, name, unit))
    locations = functions * 3
    names = [
        f"ns{random.randint(0, 200)}::mod{random.randint(0, 3000)}::Type{i % 997}"
        f"<u{random.choice(('8', '16', '32'))}>::method_{i}"
        for i in range(functions)
    ]
    function_of = [random.randrange(functions) for _ in range(locations)]
    tree = CallTree(depth, locations)
    for _ in range(samples):
        stack = tree.stack()
        objects, size = random.randint(1, 5000), random.choice(SIZES)
        live = random.choice((0, 0, objects // 3, objects))
        values = (objects, objects * size, live, live * size)
        label = number(1, strings("bytes")) + number(3, size) + number(4, strings("bytes"))
        out += message(
            2,
            packed(1, stack)
            + packed(2, values)
            + message(3, label),
        )
    out += message(
        3,
        number(1, 1)
        + number(2, 0x400000)
        + number(3, 0x4000000)
        + number(5, strings("/usr/bin/app"))
        + number(6, strings("deadbeef"))
        + number(7, 1)
        + number(8, 1)
        + number(9, 1),
    )
    for i, function in enumerate(function_of):
        line = number(1, function + 1) + number(2, random.randint(1, 3000))
        out += message(
            4, number(1, i + 1) + number(2, 1) + number(3, 0x400000 + i * 16) + message(4, line)
        )
    for i, name in enumerate(names):
        out += message(
            5,
            number(1, i + 1)
            + number(2, strings(name))
            + number(3, strings(name))
            + number(4, strings(f"/build/src/pkg{i % 500}/file{i % 5000}.cc")),
        )
    for text in strings.index:
        out += message(6, text.encode())
    out += number(9, 1760000000000000000) + message(11, value_type(strings, "space", "bytes"))
    out += number(12, 524288) + number(14, strings("inuse_space"))
    return bytes(out), len(tree.parent)


def main():
    samples, functions, depth = map(int, sys.argv[1:4])
    random.seed(int(sys.argv[5]) if len(sys.argv) > 5 else 7)
    encoded, nodes = profile(samples, functions, depth)
    with gzip.GzipFile(sys.argv[4], "wb", compresslevel=1, mtime=0) as file:
        file.write(encoded)
    print(
        f"{samples} samples, {nodes} nodes of the call tree, {len(encoded) / 1e6:.1f} MB before"
        " packing"
    )


main()
