#!/usr/bin/env python3
"""What a profiler adds to the memory of the program and to the start of each process, which CPU
ratios do not show.

usage: footprint.py [--heapprof PATH] [--runs 5] [--starts 100] [--live 1000,200000,1000000]
needs: g++; heaptrack, libjemalloc2, libgoogle-perftools4 (Debian packages); a tool that is not
installed is left out.

Memory: the largest resident set of fastpath.cpp itself (not of record, nor of heaptrack's second
process), which keeps so many blocks of 16 to 256 bytes, the writing of the profile included;
medians, and what a live block costs over the bare run (where they are many; with few it is the
fixed part that shows).
Start: CPU and wall time from start to end of a program that does nothing, in milliseconds, and the
whole of `record` (or of heaptrack's script) around one such program; interleaved, medians,
differences within a round. The process that measures (meter.c) runs below the tool, so nothing is
polled.
"""

import argparse, os, shutil, statistics, subprocess, sys, tempfile

LIB = "/usr/lib/x86_64-linux-gnu/"
HEAPTRACK = "/usr/lib/heaptrack/libheaptrack_preload.so"
ap = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ap.add_argument("--heapprof")
ap.add_argument("--runs", type=int, default=5)
ap.add_argument("--starts", type=int, default=100)
ap.add_argument("--live", default="1000,200000,1000000")
a = ap.parse_args()
scratch = tempfile.TemporaryDirectory(prefix="footprint-")
out = scratch.name
here = os.path.dirname(os.path.abspath(__file__))
fastpath, nothing, meter = (os.path.join(out, name) for name in ("fastpath", "nothing", "meter"))
subprocess.run(["gcc", "-O2", "-o", meter, os.path.join(here, "meter.c")], check=True)
subprocess.run(
    ["g++", "-O2", "-g", "-o", fastpath, os.path.join(here, "fastpath.cpp"), "-pthread"], check=True
)
subprocess.run(
    ["gcc", "-O2", "-xc", "-", "-o", nothing],
    input="int main() { return 0; }",
    text=True,
    check=True,
)


def preloaded(lib, **env):
    return ([], dict(env, LD_PRELOAD=lib), []) if os.path.exists(lib) else None


def record(*options):
    wrap = [a.heapprof, "record", *options, "--no-symbolize", "-o", out + "/profiles", "--"]
    return (wrap, {}, wrap) if a.heapprof else None


# name: what wraps the meter, what the program's environment gets, what wraps a single program
TOOLS = {
    "bare": ([], {}, []),
    "jemalloc": preloaded(LIB + "libjemalloc.so.2"),
    "jemalloc-sampled-512K": preloaded(
        LIB + "libjemalloc.so.2",
        MALLOC_CONF=f"prof:true,prof_final:true,prof_prefix:{out}/jemalloc",
    ),
    "tcmalloc-HEAPPROFILE": preloaded(LIB + "libtcmalloc.so.4", HEAPPROFILE=out + "/tcmalloc"),
    "heaptrack": (
        (
            [],
            dict(LD_PRELOAD=HEAPTRACK, DUMP_HEAPTRACK_OUTPUT=out + "/heaptrack"),
            ["heaptrack", "-r", "-o", out + "/script"],
        )
        if os.path.exists(HEAPTRACK) and shutil.which("heaptrack")
        else None
    ),
    "heapprof-sampled": record(),
    "heapprof-exact": record("--exact"),
}


def measured(tool, times, command):
    """Milliseconds of wall time and of CPU, and MB, of one process."""
    wrap, env, _ = TOOLS[tool]
    figures = os.path.join(out, "figures")
    subprocess.run(
        [*wrap, meter, figures, str(times), *(f"{k}={v}" for k, v in env.items()), *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    rows = [tuple(map(float, line.split())) for line in open(figures)]
    wall, cpu, kilobytes = (statistics.median(column) for column in zip(*rows))
    return wall * 1e3, cpu * 1e3, kilobytes / 1024


print("| tool | live blocks | MB resident | over bare | bytes a live block |")
print("| :--- | ---: | ---: | ---: | ---: |")
for live in map(int, a.live.split(",")):
    bare = None
    for tool in filter(TOOLS.get, TOOLS):
        mb = measured(tool, a.runs, [fastpath, str(3 * live), "1", "kept", str(live)])[2]
        bare = bare or mb
        print(
            f"| {tool} | {live:,} | {mb:.1f} | {mb - bare:+.1f} |"
            f" {f'{(mb - bare) * 2**20 / live:.0f}' if live >= 100_000 else '–'} |",
            flush=True,
        )
print(
    "\n| tool | CPU ms a process | over bare | wall ms | over bare | CPU ms of the command around"
    " it | wall ms |"
)
print("| :--- | ---: | ---: | ---: | ---: | ---: | ---: |")
used = [tool for tool in TOOLS if TOOLS[tool]]
alone, around = {tool: [] for tool in used}, {tool: [] for tool in used if TOOLS[tool][2]}
for _ in range(a.runs):
    for tool in used:
        alone[tool].append(measured(tool, max(a.starts // a.runs, 1), [nothing]))
    for tool in around:
        around[tool].append(measured("bare", 3, [*TOOLS[tool][2], nothing]))
for tool in used:
    middle = lambda rows, i: f"{statistics.median(r[i] for r in rows):.2f}" if rows else "–"
    over = lambda i: (
        f"{statistics.median(r[i] - b[i] for r, b in zip(alone[tool], alone['bare'])):+.2f}"
    )
    print(
        f"| {tool} | {middle(alone[tool], 1)} | {over(1)} | {middle(alone[tool], 0)} | {over(0)} |"
        f" {middle(around.get(tool), 1)} | {middle(around.get(tool), 0)} |"
    )
