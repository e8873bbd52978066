#!/usr/bin/env python3
"""Walks of large heaps: how long the program is held beside a memcpy of as many bytes, how long the
walk takes, and its memory. usage: bench/heapwalk.py HEAPPROF [ROUNDS=5]"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# Blocks of 100 bytes take 112; so many bytes of blocks, without the table that leads to them.
HEAPS = [116_000_000, 348_000_000, 1_160_000_000]


def walk(heapprof, pid, folder):
    """Seconds of the hold and of the walk, MiB that the walk had, blocks, and bytes copied."""
    began = time.monotonic()
    with open(folder / "out", "w+") as out:
        child = subprocess.Popen([heapprof, "heapwalk", f"pid:{pid}", "-f", "json"], stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        took = time.monotonic() - began
        if status:
            raise SystemExit(f"heapwalk: status {status}")
        out.seek(0)
        found = json.load(out)
    held, copied, unit = re.search(r"for ([\d.]+) ms while ([\d.]+)(\wiB)",
                                   found["notes"][0]).groups()
    blocks = sum(one["blocks"] for one in found["states"])
    mebibytes = float(copied) * {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}[unit]
    return float(held) / 1000, took, usage.ru_maxrss / 1024, blocks, mebibytes


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    heapprof = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "program"
        subprocess.run(["gcc", "-O2", "-o", program, HERE / "heapwalk.c"], check=True)
        print("    blocks  copied MiB  held ms  memcpy ms  ratio  walk s  memory MiB")
        for size in HEAPS:
            child = subprocess.Popen([program, str(size), "100"], stdout=subprocess.PIPE, text=True)
            try:
                # The program says how long its own memcpy of `size` bytes took.
                memcpy = float(child.stdout.readline()) / size
                rows = sorted(walk(heapprof, child.pid, folder) for _ in range(rounds))
            finally:
                child.kill()
                child.wait()
            held, took, memory, blocks, copied = rows[len(rows) // 2]
            same = memcpy * copied * 1024 * 1024
            print(f"{blocks:10} {copied:11.1f} {held * 1000:8.1f} {same * 1000:10.1f}"
                  f" {held / same:6.2f} {took:7.2f} {memory:11.0f}")


if __name__ == "__main__":
    main()
