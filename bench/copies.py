#!/usr/bin/env python3
"""Makes a profile larger as real programs are: COUNT copies of it in one, whose functions have
names of their own and whose values differ.

usage: copies.py HEAPPROF IN.pb.gz COUNT OUT.pb.gz
"""

import gzip
import os
import random
import subprocess
import sys
import tempfile

from wire import message, read_varint, varint


def fields(data):
    """The fields of a message: the number, the bytes of a field that has some, and all of it."""
    at = 0
    while at < len(data):
        begin = at
        key, at = read_varint(data, at)
        if key & 7 == 0:
            _, at = read_varint(data, at)
            yield key >> 3, None, data[begin:at]
            continue
        assert key & 7 == 2, "profiles have no other fields"
        size, at = read_varint(data, at)
        yield key >> 3, data[at : at + size], data[begin : at + size]
        at += size


def scaled(sample):
    """The sample with each value between once and twice as large."""
    out = bytearray()
    for number, body, whole in fields(sample):
        if number != 2:
            out += whole
            continue
        factor, values, at = random.randrange(100, 200), bytearray(), 0
        while at < len(body):
            value, at = read_varint(body, at)
            values += varint(value * factor // 100)
        out += message(2, values)
    return bytes(out)


def changed(data, mark):
    """The profile with `mark` behind each text that looks like a function, and other values."""
    out = bytearray()
    for number, body, whole in fields(data):
        if number == 2:
            whole = message(2, scaled(body))
        elif number == 6 and b"." in body and not body.endswith((b".go", b".s", b".c")):
            whole = message(6, body + mark)
        out += whole
    return bytes(out)


heapprof, source, count, target = sys.argv[1:]
random.seed(7)
data = gzip.open(source).read()
with tempfile.TemporaryDirectory() as folder:
    names = []
    for i in range(int(count)):
        names.append(os.path.join(folder, f"{i}.pb.gz"))
        copy = changed(data, b"_%d" % i) if i else data
        with open(names[-1], "wb") as file:
            file.write(gzip.compress(copy, 6, mtime=0))
    subprocess.run([heapprof, "merge", "-o", target, *names], check=True)
