#!/usr/bin/env python3
"""Makes a profile larger as real programs are: COUNT copies of it in one, whose functions have
names of their own.

usage: copies.py HEAPPROF IN.pb.gz COUNT OUT.pb.gz
"""

import gzip
import os
import subprocess
import sys
import tempfile


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def encoded(n):
    out = bytearray()
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def renamed(data, mark):
    """The profile with `mark` behind each text that looks like a name of a function."""
    out, at = bytearray(), 0
    while at < len(data):
        begin = at
        key, at = varint(data, at)
        if key & 7 == 0:
            _, at = varint(data, at)
            out += data[begin:at]
            continue
        assert key & 7 == 2, "profiles have no other fields"
        size, at = varint(data, at)
        body = data[at : at + size]
        at += size
        if key >> 3 == 6 and b"." in body and not body.endswith((b".go", b".s", b".c")):
            body += mark
        out += encoded(key) + encoded(len(body)) + body
    return bytes(out)


heapprof, source, count, target = sys.argv[1:]
data = gzip.open(source).read()
with tempfile.TemporaryDirectory() as folder:
    names = []
    for i in range(int(count)):
        names.append(os.path.join(folder, f"{i}.pb.gz"))
        mark = b"" if i == 0 else b"_%d" % i
        with open(names[-1], "wb") as file:
            file.write(gzip.compress(renamed(data, mark), 6, mtime=0))
    subprocess.run([heapprof, "merge", "-o", target, *names], check=True)
