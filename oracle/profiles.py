"""Profiles of odd shapes, which compare.py and sessions.py give to pprof and to heapprof."""

import gzip


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while True:
        low, n = n & 127, n >> 7
        out.append(low | (128 if n else 0))
        if not n:
            return bytes(out)


def num(field, n):
    return varint(field << 3) + varint(n) if n else b""


def blob(field, data):
    return varint(field << 3 | 2) + varint(len(data)) + data


def random_profile(path, rng):
    """A small profile with the shapes that readers get wrong."""
    strings, index = [""], {"": 0}

    def s(text):
        if text not in index:
            index[text] = len(strings)
            strings.append(text)
        return index[text]

    def value_type(a, b):
        return num(1, s(a)) + num(2, s(b))

    types = rng.choice(
        [
            [("inuse_objects", "count"), ("inuse_space", "bytes")],
            [
                ("alloc_objects", "count"),
                ("alloc_space", "bytes"),
                ("inuse_objects", "count"),
                ("inuse_space", "bytes"),
            ],
            [("objects", "count"), ("space", "bytes")],
            [("inuse_space", "kilobytes")],
        ]
    )
    out = bytearray()
    for a, b in types:
        out += blob(1, value_type(a, b))
    nf, nl = rng.randint(3, 25), rng.randint(4, 50)
    names = [
        rng.choice(
            [
                "main.run",
                "ns::put<int, std::less<int>>(int)",
                "(anonymous namespace)::walk",
                "runtime.mallocgc",
                "pkg/v2.(*T).parse",
                "operator new(unsigned long)",
                "core::ptr::drop_in_place<T>",
                "f",
                "main",
            ]
        )
        + str(i % 9)
        for i in range(nf)
    ]
    negative = rng.random() < 0.3
    for _ in range(rng.randint(1, 60)):
        depth = rng.choice([0, 1, 2, 3, 5, 8, 13, 30])
        stack = [rng.randint(1, nl) for _ in range(depth)]
        if depth > 3 and rng.random() < 0.4:
            stack += stack[:3]
        values = [
            rng.choice([0, 1, 7, 512, 4096, 1 << 20, 3 << 30, 999])
            * (-1 if negative and rng.random() < 0.5 else 1)
            for _ in types
        ]
        body = blob(1, b"".join(map(varint, stack))) if stack else b""
        body += blob(2, b"".join(map(varint, values)))
        if rng.random() < 0.5:
            body += blob(
                3,
                num(1, s("bytes")) + num(3, rng.choice([16, 64, 4096, 65536])) + num(4, s("bytes")),
            )
        if rng.random() < 0.3:
            body += blob(3, num(1, s("thread")) + num(2, s(rng.choice(["io", "main", "worker-1"]))))
        out += blob(2, body)
    maps = rng.randint(0, 2)
    for m in range(1, maps + 1):
        has = rng.random() < 0.8
        out += blob(
            3,
            num(1, m)
            + num(2, m << 20)
            + num(3, (m << 20) + 0x80000)
            + num(5, s(f"/usr/bin/app{m}"))
            + num(6, s(f"id{m}"))
            + num(7, has)
            + num(8, has)
            + num(9, has),
        )
    for loc in range(1, nl + 1):
        body = (
            num(1, loc)
            + (num(2, rng.randint(1, maps)) if maps and rng.random() < 0.9 else b"")
            + num(3, (1 << 20) + loc * 16)
        )
        for _ in range(rng.choice([0, 1, 1, 1, 1, 2, 3])):
            body += blob(4, num(1, rng.randint(1, nf)) + num(2, rng.randint(0, 400)))
        out += blob(4, body)
    for f in range(nf):
        out += blob(
            5,
            num(1, f + 1)
            + num(2, s(names[f]))
            + num(3, s(names[f]))
            + num(4, s(f"/src/dir{f % 3}/file{f % 7}.cc"))
            + num(5, f % 5),
        )
    tail = num(9, 1760000000000000000) + blob(11, value_type("space", "bytes")) + num(12, 524288)
    if rng.random() < 0.3:
        tail += num(14, s(types[0][0]))
    if rng.random() < 0.3:
        tail += num(7, s(r"runtime\..*|operator new.*"))
    if rng.random() < 0.3:
        tail += num(13, s("a comment"))
    for text in strings:
        out += blob(6, text.encode())
    with gzip.GzipFile(path, "wb", mtime=0) as f:
        f.write(bytes(out + tail))


def odd_profile(path):
    """A profile whose sample types have the names of commands and options, and whose labels have
    more than one unit."""
    types = ["top", "lines", "focus", "o", "", "quit", "a=b", "two words"]
    strings = ["", *types[:4], *types[5:], "main", "size", "bytes", "kilobytes", "count"]
    at = strings.index
    out = b"".join(blob(1, num(1, at(t)) + num(2, at("count"))) for t in types)
    for i, unit in enumerate(["bytes", "kilobytes", "count"]):
        label = num(1, at("size")) + num(3, 64 << i) + num(4, at(unit))
        values = b"".join(varint(0 if t == "two words" else 100 + i) for t in types)
        out += blob(2, blob(1, varint(1)) + blob(2, values) + blob(3, label))
    out += blob(4, num(1, 1) + blob(4, num(1, 1) + num(2, 7)))
    out += blob(5, num(1, 1) + num(2, at("main")) + num(4, at("main")))
    out += b"".join(blob(6, text.encode()) for text in strings)
    with gzip.GzipFile(path, "wb", mtime=0) as f:
        f.write(out)
