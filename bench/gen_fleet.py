#!/usr/bin/env python3
"""Writes the heap profiles of a simulated fleet: services on many hosts, each of which takes a
snapshot every few minutes. The stacks are those of real Go programs.

usage: gen_fleet.py OUTDIR [--hosts 80] [--snapshots 60] [--services 4] [--seed 1] [--minutes 10]
                    [--start 2026-11-20T00:00:00Z]

A service takes its stacks from one of the heap profiles in sample-profiles/valid. If there are
more services than profiles, the others take the same stacks, and their functions' names begin with
the service's. The snapshots of a service have most stacks in common; about 5 % are stacks that
only some processes have, from some snapshot on. Values differ by noise of 5 %. This is planted:

    svc0  leak.hold leaks 1 % of the heap from snapshot to snapshot, on all hosts.
    svc1  cache.fill fills a cache, which stays bounded.
    svc2  queue.push fills a queue, which is emptied again and again.
    svc3  All hosts start a new process every 15 snapshots.

Other services have nothing planted. Files are OUTDIR/h000.0000.pb.gz and so on: the host, and the
number of the snapshot. The same arguments give the same bytes.
"""

import argparse
import datetime
import gzip
import math
import random
from collections import Counter
from pathlib import Path

from wire import TYPES, Strings, message, number, packed, read_varint

PROFILES = Path(__file__).resolve().parent.parent / "sample-profiles" / "valid"
# A service's heap has so many bytes, and Go's samples are so many bytes apart.
HEAP, PERIOD = 400 << 20, 524288
# A service has so many stacks that all its snapshots share, and so many others. A process gets
# some of the others in the course of time, so on average it has half of those.
SHARED, OTHERS, GETS = 570, 150, 60
NOISE = 0.05
SECOND = 1_000_000_000


def leaked(age):
    return 0.01 * age


def cached(age):
    return 0.3 * (1 - math.exp(-age / 6))


def queued(age):
    return 0.25 * (age / 7.3 % 1)


# These services have such a function, which holds a part of the heap. An age is in snapshots.
PLANTED = {0: ("leak.hold", leaked), 1: ("cache.fill", cached), 2: ("queue.push", queued)}
# It is called from three stacks. They hold these parts, as objects of so many bytes.
PARTS, OBJECT = (0.5, 0.3, 0.2), 1024
# This service's processes end after so many snapshots, and new ones fill their heap step by step.
DEPLOYED, DEPLOY = 3, 15


def warmed(age):
    return 1 - 0.8 * math.exp(-age / 3)


def fields(data):
    """The fields of a message: the number and the value of each."""
    at = 0
    while at < len(data):
        key, at = read_varint(data, at)
        if key & 7 == 0:
            value, at = read_varint(data, at)
        else:
            assert key & 7 == 2, "profiles have no other fields"
            size, at = read_varint(data, at)
            value = data[at : at + size]
            at += size
        yield key >> 3, value


def numbers(value):
    """The numbers of a repeated field, which may be packed."""
    if isinstance(value, int):
        return [value]
    found, at = [], 0
    while at < len(value):
        one, at = read_varint(value, at)
        found.append(one)
    return found


class Source:
    """A real profile. Its mappings, locations and functions are found by their ids."""

    def __init__(self, data):
        parts = {field: [] for field in range(1, 16)}
        for field, value in fields(data):
            parts[field].append(value)
        text = [one.decode() for one in parts[6]]
        types = [dict(fields(one)) for one in parts[1]]
        self.types = tuple((text[one[1]], text[one[2]]) for one in types)
        self.mappings, self.locations, self.functions = {}, {}, {}
        for one in parts[3]:
            one = dict(fields(one))
            self.mappings[one[1]] = one | {i: text[one.get(i, 0)] for i in (5, 6)}
        for one in parts[4]:
            one = list(fields(one))
            lines = [dict(fields(value)) for field, value in one if field == 4]
            lines = [(line[1], line.get(2, 0)) for line in lines]
            self.locations[dict(one)[1]] = dict(one)[2], dict(one)[3], lines
        for one in parts[5]:
            one = dict(fields(one))
            names = tuple(text[one.get(i, 0)] for i in (2, 3, 4))
            self.functions[one[1]] = *names, one.get(5, 0)
        self.samples = parts[2]

    def values(self):
        """By the stack and the size of its objects: how many were allocated and are in use."""
        allocated, used = Counter(), Counter()
        for one in self.samples:
            stack, values, size = [], [], 0
            for field, value in fields(one):
                if field == 1:
                    stack += numbers(value)
                elif field == 2:
                    values += numbers(value)
                else:
                    # Go has one label, whose key is bytes.
                    size = dict(fields(value))[3]
            allocated[tuple(stack), size] += values[0]
            used[tuple(stack), size] += values[2]
        return allocated, used


class Stack:
    """What a stack holds and frees on a host of average size, in objects.

    It holds `live` objects times what `level` gives for an age, and frees `churn` objects from
    snapshot to snapshot.
    """

    def __init__(self, frames, size, live, churn, level):
        self.frames, self.size, self.live, self.churn, self.level = frames, size, live, churn, level


class Service:
    def __init__(self, at, sources, seed):
        self.name = f"svc{at}"
        source = sources[at % len(sources)]
        self.mappings, self.locations = dict(source.mappings), dict(source.locations)
        self.functions = dict(source.functions)
        if at >= len(sources):
            # This is another program, so its build id is another one as well.
            for i, (name, system, *rest) in source.functions.items():
                self.functions[i] = f"{self.name}.{name}", f"{self.name}.{system}", *rest
            for i, mapping in source.mappings.items():
                self.mappings[i] = mapping | {6: mapping[6] and f"{at:02x}{mapping[6][2:]}"}
        self.deploy = DEPLOY if at == DEPLOYED else None
        level = warmed if self.deploy else lambda age: 1
        allocated, used = source.values()
        # The more bytes a stack has allocated, the likelier it comes early in this order.
        rng = random.Random(f"{seed} {self.name}")
        bytes_of = {key: n * key[1] for key, n in allocated.items() if n * key[1]}
        place = {key: math.log(rng.random()) / n for key, n in bytes_of.items()}
        keys = sorted(place, key=place.get, reverse=True)[: SHARED + OTHERS]
        scale = HEAP / sum(used[key] * key[1] for key in keys[:SHARED])
        stacks = []
        for key in keys:
            live, freed = used[key] * scale, (allocated[key] - used[key]) * scale
            stacks.append(Stack(*key, live, freed, level))
        self.shared, self.others = stacks[:SHARED], stacks[SHARED:]
        if at in PLANTED:
            self.shared += self.planted(at, keys)

    def planted(self, at, keys):
        """The stacks of the planted function: functions of the program's own call it."""
        name, level = PLANTED[at]
        function, location = max(self.functions) + 1, max(self.locations) + 1
        package = name.split(".")[0]
        self.functions[function] = name, name, f"/src/{package}/{package}.go", 20
        # Its code is at the end of the program's, where no other service has any.
        mapping = min(self.mappings)
        address = self.mappings[mapping][3] - 256 * (at + 1)
        self.locations[location] = mapping, address, [(function, 27)]
        callers = dict.fromkeys(self.below_main(frames) for frames, _ in keys)
        callers.pop((), None)
        # A leak keeps all that it allocates. A cache and a queue allocate for what they free, too.
        churn = 0 if level == leaked else 0.02
        for part, frames in zip(PARTS, callers):
            objects = HEAP * part / OBJECT
            yield Stack((location, *frames), OBJECT, objects, objects * churn, level)

    def below_main(self, frames):
        """The stack from its last function of package main on, leaf first."""
        for at, frame in enumerate(frames):
            lines = self.locations[frame][2]
            if any(self.functions[function][0].startswith("main.") for function, _ in lines):
                return frames[at:]
        return ()

    def identity(self, stack):
        """What no other stack of the fleet has."""
        places = (self.locations[frame][:2] for frame in stack.frames)
        return tuple((self.mappings[mapping][6], address) for mapping, address in places)


class Process:
    """A process of a service: what it has told so far, and what its profiles are made of.

    Ids count up in the order in which a process comes upon things. So two processes have different
    ids for the same thing, and a process keeps its ids.
    """

    def __init__(self, service, host, pid, start, interval, snapshots, size, rng):
        self.service, self.size, self.rng = service, size, rng
        self.start, self.interval = start, interval
        self.taken, self.age, self.samples = 0, 0, []
        # Each stack is there from some snapshot on. The last one to come is the first here.
        others = rng.sample(service.others, min(GETS, len(service.others)))
        self.coming = [(rng.randrange(snapshots), stack) for stack in others]
        self.coming.sort(key=lambda one: one[0], reverse=True)
        self.coming += [(0, one) for one in rng.sample(service.shared, len(service.shared))]
        self.strings = s = Strings()
        self.locations, self.functions = {}, {}
        self.location_bytes, self.function_bytes = bytearray(), bytearray()
        self.head = b"".join(message(1, number(1, s(a)) + number(2, s(b))) for a, b in TYPES)
        self.label = number(1, s("bytes"))
        for mapping in service.mappings.values():
            texts = number(5, s(mapping[5])) + number(6, s(mapping[6]))
            plain = [number(i, n) for i, n in mapping.items() if i not in (5, 6)]
            self.head += message(3, b"".join(plain) + texts)
        comments = (
            "collector: heapprof 0.2.0",
            f"program: {service.name}",
            f"pid: {pid}",
            f"host: {host}",
            "dump: interval",
        )
        self.tail = (
            message(11, number(1, s("space")) + number(2, s("bytes")))
            + number(12, PERIOD)
            + packed(13, map(s, comments))
            + number(14, s("inuse_space"))
        )

    def function(self, i):
        known = self.functions
        if i not in known:
            known[i] = len(known) + 1
            *names, line = self.service.functions[i]
            names = (number(field, self.strings(name)) for field, name in enumerate(names, 2))
            body = number(1, known[i]) + b"".join(names) + number(5, line)
            self.function_bytes += message(5, body)
        return known[i]

    def location(self, i):
        known = self.locations
        if i not in known:
            known[i] = len(known) + 1
            mapping, address, lines = self.service.locations[i]
            body = number(1, known[i]) + number(2, mapping) + number(3, address)
            for function, line in lines:
                body += message(4, number(1, self.function(function)) + number(2, line))
            self.location_bytes += message(4, body)
        return known[i]

    def snapshot(self, time):
        """The process's next profile, and how many samples it has."""
        while self.coming and self.coming[-1][0] <= self.taken:
            stack = self.coming.pop()[1]
            ids = packed(1, map(self.location, stack.frames))
            label = message(3, self.label + number(3, stack.size))
            self.samples.append([stack, ids, label, 0, 0])
        self.taken += 1
        before, self.age = self.age, (time - self.start) / self.interval
        noise, chance = self.rng.gauss, self.rng.random
        body, count = bytearray(self.head), 0
        for one in self.samples:
            stack, ids, label, allocated, held = one
            level = stack.level(self.age)
            if stack.level == leaked:
                # What has leaked once stays, so the noise is in what comes to it.
                level -= leaked(before)
                live = held + round(stack.live * self.size * level * noise(1, NOISE))
            else:
                live = round(stack.live * self.size * level * noise(1, NOISE))
            freed = stack.churn * self.size * (self.age - before) * noise(1, NOISE)
            allocated += max(live - held, 0) + int(freed + chance())
            one[3:] = allocated, live
            if allocated:
                size = stack.size
                values = packed(2, (allocated, allocated * size, live, live * size))
                body += message(2, ids + values + label)
                count += 1
        body += self.location_bytes + self.function_bytes
        body += b"".join(message(6, text.encode()) for text in self.strings.index)
        body += number(9, time) + number(10, time - self.start) + self.tail
        return bytes(body), count


def moment(text):
    """Nanoseconds since 1970. A time without a zone is in UTC."""
    time = datetime.datetime.fromisoformat(text)
    return int(time.replace(tzinfo=time.tzinfo or datetime.timezone.utc).timestamp()) * SECOND


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("out", metavar="OUTDIR", type=Path)
    ap.add_argument("--hosts", type=int, default=80)
    ap.add_argument("--snapshots", type=int, default=60)
    ap.add_argument("--services", type=int, default=4)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--minutes", type=float, default=10)
    ap.add_argument("--start", type=moment, default="2026-11-20T00:00:00Z")
    a = ap.parse_args()
    interval = round(a.minutes * 60 * SECOND)
    paths = sorted(PROFILES.glob("go.*.pb.gz"))
    sources = [Source(gzip.decompress(path.read_bytes())) for path in paths]
    sources = [source for source in sources if source.types == TYPES]
    services = [Service(at, sources, a.seed) for at in range(a.services)]
    a.out.mkdir(parents=True, exist_ok=True)
    samples, stacks, functions = 0, set(), set()
    for at in range(a.hosts):
        host, service = f"h{at:03}", services[at % a.services]
        rng = random.Random(f"{a.seed} {host}")
        size = rng.uniform(0.9, 1.1)
        pids = rng.sample(range(1000, 1 << 22), a.snapshots)
        lasts = service.deploy or a.snapshots
        for i in range(a.snapshots):
            # A snapshot comes some seconds late; a process begins less than a snapshot earlier.
            time = a.start + i * interval + rng.randrange(min(8 * SECOND, interval // 4))
            if i % lasts == 0:
                start = time - rng.randrange(interval // 10, interval * 6 // 10)
                process = Process(service, host, pids[i], start, interval, lasts, size, rng)
            body, count = process.snapshot(time)
            samples += count
            name = f"{host}.{i:04}.pb.gz"
            (a.out / name).write_bytes(gzip.compress(body, compresslevel=1, mtime=0))
            if (i + 1) % lasts == 0 or i + 1 == a.snapshots:
                stacks.update(service.identity(one[0]) for one in process.samples)
                functions.update(service.functions[key] for key in process.functions)
    files = a.hosts * a.snapshots
    print(f"{files} files, {samples} samples, {len(stacks)} stacks, {len(functions)} functions")


if __name__ == "__main__":
    main()
