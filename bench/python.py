#!/usr/bin/env python3
"""What recording costs Python programs: CPU of the whole process, beside memray and tracemalloc.

usage: python.py --heapprof PATH [--python PYTHON] [--rounds 15] [--names] [--tools a,b]
                 [--workloads a,b]

PYTHON needs memray and numpy; what it lacks is left out. In each round every tool runs each of
bench/python/*.py once, in an order that is drawn anew. The table has medians of ratios to the bare
program of the same round. Its last row compares the two tools that record small objects. Names are
looked up only with --names, after the program has ended.
"""

import argparse
import os
import pathlib
import random
import resource
import statistics
import subprocess
import tempfile

WORKLOADS = ["parse", "texts", "requests", "arrays"]
FOLDER = pathlib.Path(__file__).resolve().parent / "python"


def tools(heapprof, python, names):
    """name: what stands in front of the script"""
    record = [heapprof, "record", "--quiet", "-o", "p.pb.gz"] + ([] if names else ["--no-symbolize"])
    memray = [python, "-m", "memray", "run", "-q", "-o", "m.bin"]
    return {
        "bare": [python],
        "sampled": [*record, "--", python],
        "exact": [*record, "--exact", "--", python],
        "exact-objects": [*record, "--exact", "--python-objects=yes", "--", python],
        "memray": memray,
        "memray-aggregate": [*memray, "--aggregate"],
        "memray-native": [*memray, "--native"],
        "memray-allocators": [*memray, "--trace-python-allocators"],
        "tracemalloc": [python, "-X", "tracemalloc=25"],
    }


def cpu(command, folder):
    """The CPU seconds of a command and its children, which must go well."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for file in pathlib.Path(folder).iterdir():
        file.unlink()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--heapprof", required=True, type=os.path.abspath)
    parser.add_argument("--python", default="python3")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--names", action="store_true")
    parser.add_argument("--tools")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    asked = parser.parse_args()
    commands = tools(asked.heapprof, asked.python, asked.names)
    if asked.tools:
        commands = {name: commands[name] for name in ["bare", *asked.tools.split(",")]}

    def lacks(module):
        found = subprocess.run([asked.python, "-c", f"import {module}"], capture_output=True)
        return found.returncode != 0

    workloads = [w for w in asked.workloads.split(",") if w != "arrays" or not lacks("numpy")]
    if lacks("memray"):
        commands = {name: c for name, c in commands.items() if not name.startswith("memray")}
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(asked.rounds):
            for workload in workloads:
                for name in random.sample(list(commands), len(commands)):
                    command = [*commands[name], str(FOLDER / f"{workload}.py")]
                    seconds.setdefault((name, workload), []).append(cpu(command, folder))
    print("| |", " | ".join(workloads), "|")
    print("| :--- |", " | ".join("---:" for _ in workloads), "|")

    def row(title, name, to):
        ratios = []
        for workload in workloads:
            pairs = zip(seconds[name, workload], seconds[to, workload])
            ratios.append("%.3f" % statistics.median(a / b for a, b in pairs))
        print(f"| {title} |", " | ".join(ratios), "|")

    for name in commands:
        row(name, name, "bare")
    both = ["exact-objects", "memray-allocators"]
    if all(name in commands for name in both):
        row(" / ".join(both), *both)
    bare = [statistics.median(seconds["bare", workload]) for workload in workloads]
    print("bare takes", ", ".join("%.2f s" % b for b in bare))


if __name__ == "__main__":
    main()
