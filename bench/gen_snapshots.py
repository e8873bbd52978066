#!/usr/bin/env python3
"""Writes a series of large heap profiles of one program: snapshots that share most of their stacks.

usage: gen_snapshots.py COUNT OUTDIR [SAMPLES FUNCTIONS DEPTH SHARED]   (20 out 100000 20000 30 0.9)

SHARED of each snapshot's stacks are the same in all of them; the others are its own. Values differ
everywhere. Written as outdir/snap00.pb.gz and so on, the same bytes for the same arguments.
"""

import gzip, os, random, sys

count, out = int(sys.argv[1]), sys.argv[2]
more = sys.argv[3:]
samples, functions, depth = (
    int(more[i]) if len(more) > i else d for i, d in enumerate((100000, 20000, 30))
)
shared = float(more[3]) if len(more) > 3 else 0.9
random.seed(11)


def varint(n):
    n &= (1 << 64) - 1
    o = bytearray()
    while n > 127:
        o.append(n & 127 | 128)
        n >>= 7
    o.append(n)
    return bytes(o)


def num(field, n):
    return varint(field << 3) + varint(n)


def blob(field, b):
    return varint(field << 3 | 2) + varint(len(b)) + b


strings, index = [""], {"": 0}


def s(text):
    if text not in index:
        index[text] = len(strings)
        strings.append(text)
    return index[text]


head = b"".join(
    blob(1, num(1, s(a)) + num(2, s(b)))
    for a, b in (
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    )
)
locations = functions * 3
tail = bytearray(
    blob(
        3, num(1, 1) + num(2, 0x400000) + num(3, 0x4000000) + num(5, s("/usr/bin/app")) + num(7, 1)
    )
)
for i in range(locations):
    tail += blob(
        4,
        num(1, i + 1)
        + num(2, 1)
        + num(3, 0x400000 + i * 16)
        + blob(4, num(1, random.randrange(functions) + 1) + num(2, random.randint(1, 3000))),
    )
for i in range(functions):
    name = s(f"ns{i % 200}::mod{i % 3001}::Type{i % 997}::method_{i}")
    tail += blob(
        5,
        num(1, i + 1)
        + num(2, name)
        + num(3, name)
        + num(4, s(f"/src/pkg{i % 500}/file{i % 5000}.cc")),
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
    return blob(1, b"".join(map(varint, ids)))


key, unit = s("bytes"), s("bytes")
strings_part = b"".join(blob(6, x.encode()) for x in strings)
common = [stack() for _ in range(int(samples * shared))]
os.makedirs(out, exist_ok=True)
for snapshot in range(count):
    body = bytearray(head)
    for ids in common + [stack() for _ in range(samples - len(common))]:
        objects = random.randint(1, 5000)
        size = random.choice((16, 24, 32, 48, 64, 128, 256, 1024, 4096, 65536))
        live = random.choice((0, 0, objects // 3, objects))
        values = b"".join(map(varint, (objects, objects * size, live, live * size)))
        body += blob(2, ids + blob(2, values) + blob(3, num(1, key) + num(3, size) + num(4, unit)))
    body += (
        tail
        + strings_part
        + num(9, 1760000000000000000 + snapshot * 60_000_000_000)
        + num(12, 524288)
        + num(14, s("inuse_space"))
    )
    with gzip.GzipFile(
        os.path.join(out, f"snap{snapshot:02}.pb.gz"), "wb", compresslevel=1, mtime=0
    ) as f:
        f.write(bytes(body))
