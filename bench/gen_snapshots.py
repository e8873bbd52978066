#!/usr/bin/env python3
"""Writes a series of large heap profiles of one program: snapshots that share most of their stacks.

usage: gen_snapshots.py COUNT OUTDIR [SAMPLES FUNCTIONS DEPTH SHARED]   (20 out 100000 20000 30 0.9)

SHARED of each snapshot's stacks are the same in all of them; the others are its own. Values differ
everywhere. Written as outdir/snap00.pb.gz and so on, the same bytes for the same arguments.
"""

import gzip, os, random, sys

from wire import TYPES, Strings, message, number, packed

count, out = int(sys.argv[1]), sys.argv[2]
more = sys.argv[3:]
samples, functions, depth = (
    int(more[i]) if len(more) > i else d for i, d in enumerate((100000, 20000, 30))
)
shared = float(more[3]) if len(more) > 3 else 0.9
random.seed(11)
s = Strings()
head = b"".join(message(1, number(1, s(a)) + number(2, s(b))) for a, b in TYPES)
locations = functions * 3
tail = bytearray(
    message(
        3,
        number(1, 1)
        + number(2, 0x400000)
        + number(3, 0x4000000)
        + number(5, s("/usr/bin/app"))
        + number(7, 1),
    )
)
for i in range(locations):
    line = number(1, random.randrange(functions) + 1) + number(2, random.randint(1, 3000))
    tail += message(
        4, number(1, i + 1) + number(2, 1) + number(3, 0x400000 + i * 16) + message(4, line)
    )
for i in range(functions):
    name = s(f"ns{i % 200}::mod{i % 3001}::Type{i % 997}::method_{i}")
    tail += message(
        5,
        number(1, i + 1)
        + number(2, name)
        + number(3, name)
        + number(4, s(f"/src/pkg{i % 500}/file{i % 5000}.cc")),
    )

# One call tree with skewed branching; stacks are paths in it.
parent, place, level, below = [-1], [1], [0], {}


def child(n):
    c = below.setdefault(n, [])
    if c and random.random() < (0.995 if level[n] < depth * 0.7 else 0.9):
        return random.choice(c)
    parent.append(n)
    place.append(random.randrange(locations) + 1)
    level.append(level[n] + 1)
    c.append(len(parent) - 1)
    return c[-1]


def stack():
    n = 0
    for _ in range(max(3, min(int(random.gauss(depth, depth / 5)), depth * 2))):
        n = child(n)
    ids = []
    while n != -1:
        ids.append(place[n])
        n = parent[n]
    return packed(1, ids)


key, unit = s("bytes"), s("bytes")
strings_part = b"".join(message(6, x.encode()) for x in s.index)
common = [stack() for _ in range(int(samples * shared))]
os.makedirs(out, exist_ok=True)
for snapshot in range(count):
    body = bytearray(head)
    for ids in common + [stack() for _ in range(samples - len(common))]:
        objects = random.randint(1, 5000)
        size = random.choice((16, 24, 32, 48, 64, 128, 256, 1024, 4096, 65536))
        live = random.choice((0, 0, objects // 3, objects))
        values = (objects, objects * size, live, live * size)
        label = number(1, key) + number(3, size) + number(4, unit)
        body += message(2, ids + packed(2, values) + message(3, label))
    body += (
        tail
        + strings_part
        + number(9, 1760000000000000000 + snapshot * 60_000_000_000)
        + number(12, 524288)
        + number(14, s("inuse_space"))
    )
    with gzip.GzipFile(
        os.path.join(out, f"snap{snapshot:02}.pb.gz"), "wb", compresslevel=1, mtime=0
    ) as f:
        f.write(bytes(body))
