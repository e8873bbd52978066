#!/usr/bin/env python3
"""Holds heapprof, heaptrack and tcmalloc's HEAPPROFILE against a program that counts its own
allocations (known.cpp).

usage: side_by_side.py [--heapprof PATH]
needs: g++; heaptrack and zstd, libgoogle-perftools4 (Debian packages); a tool that is not installed
is left out.

For each function of the program: objects and bytes allocated below it, and still in use at the end.
A tool's cell is = where all four equal the program's own count. Exit code 1 where heapprof differs,
or a peer does and EXPLAINED does not say why.
"""

import argparse, collections, json, os, re, shutil, subprocess, sys, tempfile

TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4"
EXPLAINED = {  # (tool, function): why the figures differ
    (
        "heaptrack",
        "old_memalign",
    ): "it hooks no memalign; the frees of such blocks are unknown to it",
    ("heaptrack", "old_pvalloc"): "it hooks no pvalloc",
    ("heaptrack", "deep_root"): "it keeps the 64 frames next to the leaf",
    (
        "tcmalloc",
        "page_posix_memalign",
    ): "it counts the size rounded up to a multiple of the alignment",
    ("tcmalloc", "old_valloc"): "likewise: to whole pages",
    ("tcmalloc", "old_pvalloc"): "likewise: to whole pages",
    ("tcmalloc", "deep_root"): "it keeps the 32 frames next to the leaf",
}
FIELDS = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")

ap = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ap.add_argument("--heapprof")
a = ap.parse_args()
here = os.path.dirname(os.path.abspath(__file__))
out = tempfile.TemporaryDirectory(prefix="side-by-side-")
known = os.path.join(out.name, "known")


def run(*cmd, **env):
    return subprocess.run(
        cmd,
        env=dict(os.environ, **env),
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ).stdout


def truth():
    return {
        name: tuple(map(int, numbers)) for name, *numbers in map(str.split, run(known).splitlines())
    }


def add(sums, functions, values):
    """One stack's values, once to each of its functions however often it recurs."""
    for name in set(functions) | {""}:
        sums[name] = tuple(x + y for x, y in zip(sums[name], values))


def heapprof():
    profile = os.path.join(out.name, "known.pb.gz")
    run(a.heapprof, "record", "--exact", "-o", profile, "--", known)
    rows = json.loads(
        run(a.heapprof, "top", "--all-code", "--wide", "--sort", "cum", "-n", "0", "-f", "json", profile)
    )["rows"]
    sums = collections.defaultdict(lambda: (0,) * 4)
    for row in rows:
        sums[row["function"]] = tuple(row["values"][f]["cum"] for f in FIELDS)
    totals = {
        t["sample_type"]["type"]: t["total"]
        for t in json.loads(run(a.heapprof, "info", "-f", "json", profile))["sample_types"]
    }
    sums[""] = tuple(totals[f] for f in FIELDS)
    return sums


def heaptrack():
    """Its data file read directly: heaptrack_print tells calls per stack, but no bytes allocated."""
    base = os.path.join(out.name, "heaptrack")
    run("heaptrack", "-o", base, known)
    strings, frames, stacks, blocks = [], [], [], []  # a block: [stack, size, allocated, in use]
    for line in run("zstd", "-dc", base + ".zst").splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "s":
            strings.append(rest.partition(" ")[2])
            continue
        if kind not in ("i", "t", "a", "+", "-"):
            continue
        n = [int(word, 16) for word in rest.split()]
        if (
            kind == "i"
        ):  # address, module, then name, file and line of the frame and of each inlined into it
            frames.append([strings[s - 1] for s in n[2::3] if s])
        elif kind == "t":  # frame, the stack it was called from
            stacks.append((stacks[n[1] - 1] if n[1] else frozenset()) | set(frames[n[0] - 1]))
        elif kind == "a":
            blocks.append([n[1], n[0], 0, 0])
        elif kind == "+":
            blocks[n[0]][2] += 1
            blocks[n[0]][3] += 1
        else:
            blocks[n[0]][3] -= 1
    sums = collections.defaultdict(lambda: (0,) * 4)
    for stack, size, allocated, live in blocks:
        add(
            sums,
            stacks[stack - 1] if stack else (),
            (allocated, allocated * size, live, live * size),
        )
    return sums


def tcmalloc():
    """Its text form: in use, [allocated] @ stack; addresses in the program are looked up in its
    symbol table."""
    prefix = os.path.join(out.name, "tcmalloc")
    run(known, LD_PRELOAD=TCMALLOC, HEAPPROFILE=prefix)
    text = open(prefix + ".0001.heap").read()
    base = min(
        int(m, 16) for m in re.findall(r"^([0-9a-f]+)-.* " + re.escape(known) + "$", text, re.M)
    )
    symbols = [
        (int(start, 16), int(start, 16) + int(size, 16), name)
        for start, size, kind, name in (
            line.split()
            for line in run("nm", "-S", "--defined-only", known).splitlines()
            if len(line.split()) == 4
        )
        if kind in "tT"
    ]
    sums = collections.defaultdict(lambda: (0,) * 4)
    for objects, space, all_objects, all_space, stack in re.findall(
        r"^ *(\d+): +(\d+) \[ *(\d+): +(\d+)\] @ (0x.*)$", text, re.M
    ):
        addresses = [int(x, 16) - 1 - base for x in stack.split()]
        names = {name for at in addresses for start, end, name in symbols if start <= at < end}
        add(sums, names, tuple(map(int, (all_objects, all_space, objects, space))))
    return sums


def cell(values):
    return "{:,} / {:,}; {:,} / {:,}".format(*values)


subprocess.run(
    ["g++", "-std=c++17", "-O2", "-g", "-o", known, os.path.join(here, "known.cpp"), "-pthread"],
    check=True,
)
own = truth()
tools = {
    "heapprof": a.heapprof and heapprof(),
    "heaptrack": shutil.which("heaptrack") and shutil.which("zstd") and heaptrack(),
    "tcmalloc": os.path.exists(TCMALLOC) and tcmalloc(),
}
tools = {name: sums for name, sums in tools.items() if sums}
print("Objects / bytes allocated; objects / bytes in use at the end.\n")
print("| function | the program's own count |" + "".join(f" {tool} |" for tool in tools))
print("| :--- | :--- |" + " :--- |" * len(tools))
wrong, reasons = False, []
for function, values in own.items():
    cells = []
    for tool, sums in tools.items():
        cells.append("=" if sums[function] == values else cell(sums[function]))
        if sums[function] != values:
            why = EXPLAINED.get((tool, function))
            wrong |= why is None
            reasons.append(f"* {tool}, {function}: {why or 'NOT EXPLAINED'}")
    print(f"| {function} | {cell(values)} | " + " | ".join(cells) + " |")
flat = [name for name in own if name != "deep_root"]  # whose blocks are deep_leaf's
rest = [
    cell(all_ - sum(sums[name][i] for name in flat) for i, all_ in enumerate(sums[""]))
    for sums in tools.values()
]
print("| all other stacks | not counted | " + " | ".join(rest) + " |")
print("", *reasons, sep="\n")
sys.exit(wrong)
