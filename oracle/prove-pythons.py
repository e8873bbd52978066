#!/usr/bin/env python3
"""Compares what heapprof records of the pythons of other Debian releases with what they say.

usage: oracle/prove-pythons.py HEAPPROF FOLDER [--rounds N] [SUITE...]    (needs root)

FOLDER is what oracle/fetch-pythons.sh made. The rules are those of tests/collector/python.rs: each
allocation of tests/python/constructs.py and reused.py must have the stack that sys._getframe gave,
and each block of objects.py must be in the log once, however Python's allocators are set up. 580
rounds (6 by default) are more than 200,000 stacks. A release whose libc is too old for heapprof has
its python run with this system's libc.
"""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "python"
WORK = "tmp/heapprof"
SETUPS = [{}] + [
    {name: value}
    for name, value in [
        ("PYTHONMALLOC", "malloc"),
        ("PYTHONMALLOC", "debug"),
        ("PYTHONMALLOC", "malloc_debug"),
        ("PYTHONDEVMODE", "1"),
        ("PYTHONTRACEMALLOC", "1"),
    ]
]


class Wrong(Exception):
    """A root whose python's memory is not recorded as it is."""


class Root:
    """A release's python, and how it is run."""

    def __init__(self, folder, heapprof):
        self.folder = folder.resolve()
        self.work = self.folder / WORK
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        shutil.copy(heapprof, self.work / "heapprof")
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, self.work)
        self.environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
        enter = 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"'
        self.enter = ["unshare", "--mount", "sh", "-c", enter, str(self.folder)]
        self.base, self.prefix = "/" + WORK, "/usr/bin/"
        tried = self.run([f"{self.base}/heapprof", "--version"])
        self.is_inside = "version `GLIBC_" not in tried.stderr
        if not self.is_inside:
            self.outside()
        asked = self.run(
            [self.prefix + "python3", "-c", "import sys; print(sys.version.split()[0])"]
        )
        self.version = asked.stdout.strip()

    def outside(self):
        """Sets up that python runs with this system's libc, and its other libraries."""
        self.enter, self.base, self.prefix = [], str(self.work), f"{self.folder}/usr/bin/"
        libraries = self.work / "lib"
        libraries.mkdir()
        # What a release with a newer libc has as well is taken from there.
        own = "libc|libm|libdl|libpthread|librt|libutil|libgcc_s"
        for place in self.folder.glob("usr/lib/*-linux-gnu/*.so.*"):
            if not re.match(f"({own})[.-]", place.name) and not place.name.startswith("ld-"):
                (libraries / place.name).symlink_to(place)
        self.environment["PYTHONHOME"] = f"{self.folder}/usr"
        self.environment["LD_LIBRARY_PATH"] = str(libraries)

    def run(self, command, environment=None):
        return subprocess.run(
            [*self.enter, *command],
            env=self.environment | (environment or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def recorded(self, script, arguments=(), options=(), environment=None):
        """Records a script, which leaves `expected` and `p.log` in the folder for work."""
        for name in ("expected", "p.log"):
            (self.work / name).unlink(missing_ok=True)
        base = self.base
        command = [f"{base}/heapprof", "record", "--no-symbolize", "-o", f"{base}/p.pb.gz"]
        command += [*options, "--log", f"{base}/p.log", "--", self.prefix + "python3"]
        command += ["-W", "ignore", f"{base}/{script}", f"{base}/expected", *arguments]
        done = self.run(command, environment)
        if done.returncode != 0 or "native frames only" in done.stderr:
            raise Wrong(f"{script} {environment}: code {done.returncode}: {done.stderr}")
        return done

    def lines(self, name):
        with open(self.work / name) as file:
            for line in file:
                yield line.rstrip("\n")


def stacks(root, script, arguments):
    """Compares stacks. Returns how many there were."""
    root.recorded(script, arguments)
    # A forked child counts on from where its parent was, so a size may be there twice.
    wanted = collections.defaultdict(set)
    for line in root.lines("expected"):
        size, frames = line.split("\t", 1)
        wanted[size].add(frames)
    known, count = {}, 0
    for line in root.lines("p.log"):
        if line.startswith("stack "):
            number, _, frames = line[6:].partition("\t")
            known[number] = frames
        elif line.startswith("+ "):
            words = line.split(" ")
            expected = wanted.get(words[4])
            if expected is None:
                continue
            found = known[words[5]]
            if found not in expected:
                raise Wrong(f"{script}: {line}\nfound {found}\nof {expected}")
            count += 1
    return count


def objects(root, setup):
    """Compares blocks of Python's allocators. Returns how many there were."""
    root.recorded("objects.py", options=["--python-objects=yes"], environment=setup)
    is_marked, live, seen = False, {}, collections.Counter()
    for line in root.lines("p.log"):
        if not is_marked:
            is_marked = " 1234567 " in line
            continue
        words = line.split(" ")
        if words[0] not in ("+", "-"):
            continue
        address, size = int(words[3], 16), int(words[4])
        seen[words[0], address, size] += 1
        if words[0] == "-":
            live.pop(address, None)
        elif live.setdefault(address, line) is not line:
            raise Wrong(f"{setup}: {line}: is there twice, {live[address]}")
    count = 0
    for line in root.lines("expected"):
        sign, address, size = line.split(" ")
        address, size = int(address), int(size)
        # Debug hooks add 24 bytes once or twice, 16 of them before the block. A request for nothing
        # is one of a byte there.
        forms = [(address, size), (address, max(size, 1))]
        forms += [(address - 16, size + 24), (address - 32, size + 48)]
        found = next((form for form in forms if seen[sign, *form] > 0), None)
        if found is None:
            raise Wrong(f"{setup}: {line} is not in the log")
        seen[sign, *found] -= 1
        count += 1
    info = root.run([f"{root.base}/heapprof", "info", f"{root.base}/p.pb.gz"])
    if info.returncode != 0 or "came again" in info.stdout:
        raise Wrong(f"{setup}: {info.stdout}{info.stderr}")
    return count


def proved(root, rounds):
    """Runs all scripts with a root's python, and says what was compared."""
    is_long = rounds >= 580
    wanted = [
        ("constructs.py", [str(rounds)], 200_000 if is_long else 300 * rounds),
        ("reused.py", ["20000" if is_long else "1000"], 40_000 if is_long else 2000),
    ]
    for script, arguments, least in wanted:
        count = stacks(root, script, arguments)
        print(f"  {script}: {count} stacks", flush=True)
        if count < least:
            raise Wrong(f"{script}: only {count} stacks")
    for setup in SETUPS:
        count = objects(root, setup)
        print(f"  objects.py {setup or 'plain'}: {count} blocks", flush=True)
        if count <= 1000:
            raise Wrong(f"{setup}: only {count} blocks")


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[2])
    parser.add_argument("heapprof", type=pathlib.Path)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("suites", nargs="*")
    parser.add_argument("--rounds", type=int, default=6)
    asked = parser.parse_args()
    suites = asked.suites or sorted(
        path.parents[2].name for path in asked.folder.glob("*/usr/bin/python3")
    )
    failed = [] if suites else ["no roots"]
    for suite in suites:
        root = Root(asked.folder / suite, asked.heapprof)
        where = "" if root.is_inside else ", with this system's libc"
        print(f"{suite}: Python {root.version}{where}", flush=True)
        try:
            proved(root, asked.rounds)
        except Wrong as wrong:
            print(f"  WRONG: {wrong}"[:5000], flush=True)
            failed.append(suite)
        else:
            shutil.rmtree(root.work)
    if failed:
        sys.exit(f"wrong: {', '.join(failed)}")


if __name__ == "__main__":
    os.umask(0o022)
    main()
