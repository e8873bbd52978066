#!/usr/bin/env python3
"""Times heapprof web beside heapprof top on the same profile, in turns.

usage: web.py HEAPPROF PROFILE [ROUNDS]

    gen_profile.py 1000000 50000 30 r1m.pb.gz; web.py target/release/heapprof r1m.pb.gz 7

Each round runs top once and starts a server once. The first view is timed from the start of the
command to the last byte of the report. Then come new filters, and nodes named (other) that are
opened, at several depths. What is printed are medians, with the least and the largest.
"""

import json
import os
import statistics
import struct
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zlib

from wire import read_varint

FILTERS = ("method_1", "method_2", "method_3", "mod1", "Type2")


class Server:
    """A server that is asked."""

    def __init__(self, heapprof, profile):
        self.began = time.monotonic()
        command = [heapprof, "web", "--no-open", profile]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.base, self.token = self.process.stdout.readline().strip().split("/?token=")

    def ask(self, where, **parameters):
        query = urllib.parse.urlencode({"token": self.token, **parameters})
        began = time.monotonic()
        body = urllib.request.urlopen(f"{self.base}/api/v1/{where}?{query}").read()
        return time.monotonic() - began, body

    def end(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
        self.process.terminate()
        self.process.wait()
        return int(peak) / 1024


def others(body):
    """The paths of all nodes named (other), the shortest first."""
    data = zlib.decompress(body)
    end = 4 + struct.unpack("<I", data[:4])[0]
    head, data = json.loads(data[4:end]), data[end:]
    places = {column[0]: column[1:4] for column in head["columns"]}

    def numbers(name):
        at, count, kind = places[name]
        out = []
        for _ in range(count):
            value, at = read_varint(data, at)
            if kind == "d":
                value = (value >> 1) ^ -(value & 1)
                value += out[-1] if out else 0
            out.append(value)
        return out

    up, frame, function = numbers("node.up"), numbers("node.frame"), numbers("frame.func")
    names = [head["func"]["name"][function[of]] for of in frame]
    found = []
    for at, name in enumerate(names):
        if name != "(other)":
            continue
        path, above = [], at - up[at]
        while above >= 0:
            path.insert(0, names[above])
            above -= up[above]
        found.append(path)
    return sorted(found, key=len)


def main():
    heapprof, profile = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    times = {name: [] for name in ("top", "first view", "new filter", "opened")}
    peaks = []
    for _ in range(rounds):
        began = time.monotonic()
        command = [heapprof, "top", "-n", "40", profile]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        times["top"].append(time.monotonic() - began)
        server = Server(heapprof, profile)
        _, report = server.ask("report")
        times["first view"].append(time.monotonic() - server.began)
        for pattern in FILTERS:
            times["new filter"].append(server.ask("report", focus=pattern)[0])
        server.ask("report")
        paths = others(report)
        for path in paths[:3] + paths[:: max(1, len(paths) // 7)]:
            times["opened"].append(server.ask("subtree", path=json.dumps(path))[0])
        peaks.append(server.end())
    top = statistics.median(times["top"])
    name = os.path.basename(profile)
    print(f"{name}, {rounds} rounds; memory of the server {max(peaks):.0f} MiB")
    # A small profile has no nodes to open.
    for name, each in filter(lambda item: item[1], times.items()):
        middle = statistics.median(each)
        print(
            f"{name:12} {middle * 1000:7.0f} ms  ({min(each) * 1000:.0f} to {max(each) * 1000:.0f})"
            f"  {middle / top:5.2f} times top"
        )


main()
