#!/usr/bin/env python3
"""Does a profiler's cost per malloc/free pair stay the same with more threads than cores?
fastpath.cpp (or another program that takes PAIRS THREADS) with 1 to 32 threads under each tool.

usage: scaling.py [--heapprof PATH] [--runs 5] [--threads 1,2,4,8,16,32] [--kinds
tight,kept,crossed] [--tools a,b,...] [--pairs N] [--source FILE --kinds 'ARG ARG,...']      (FILE
takes PAIRS THREADS and a kind's words)
needs: g++; libjemalloc2, libgoogle-perftools4, heaptrack (Debian packages); a tool that is not
installed is left out.

Every tool and number of threads runs in turn, in an order shuffled anew each round; CPU is user +
system of all that is started, wall time stands beside it because waiting for a lock costs no CPU.
Extra is against the bare run of the same round, medians over the rounds; to 2 threads is the whole
cost of a pair there over that at 2 threads.
"""

import argparse, os, random, resource, shutil, statistics, subprocess, sys, tempfile, time

LIB = "/usr/lib/x86_64-linux-gnu/"
ap = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ap.add_argument("--heapprof")
ap.add_argument("--runs", type=int, default=5)
ap.add_argument("--pairs", type=int, default=5_000_000)
ap.add_argument("--threads", default="1,2,4,8,16,32")
ap.add_argument("--kinds", default="tight,kept,crossed")
ap.add_argument("--tools", default="")
ap.add_argument(
    "--source", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "fastpath.cpp")
)
a = ap.parse_args()
scratch = tempfile.TemporaryDirectory(prefix="scaling-")
out, program = scratch.name, os.path.join(scratch.name, "program")
subprocess.run(["g++", "-O2", "-g", "-o", program, a.source, "-pthread"], check=True)


def preloaded(name, **env):
    return ([], dict(env, LD_PRELOAD=LIB + name)) if os.path.exists(LIB + name) else None


TOOLS = {
    "bare": ([], {}),
    "jemalloc": preloaded("libjemalloc.so.2"),
    "jemalloc-sampled-512K": preloaded(
        "libjemalloc.so.2", MALLOC_CONF=f"prof:true,prof_final:true,prof_prefix:{out}/jemalloc"
    ),
    "tcmalloc-HEAPPROFILE": preloaded("libtcmalloc.so.4", HEAPPROFILE=f"{out}/tcmalloc"),
    "heaptrack": (
        (["heaptrack", "-r", "-o", f"{out}/heaptrack"], {}) if shutil.which("heaptrack") else None
    ),
    "heapprof-sampled": (
        ([a.heapprof, "record", "--no-symbolize", "-o", f"{out}/sampled.pb.gz", "--"], {})
        if a.heapprof
        else None
    ),
    "heapprof-exact": (
        ([a.heapprof, "record", "--exact", "--no-symbolize", "-o", f"{out}/exact.pb.gz", "--"], {})
        if a.heapprof
        else None
    ),
}
wanted = (
    set(a.tools.split(","))
    if a.tools
    else {"bare", "jemalloc-sampled-512K", "heaptrack", "heapprof-sampled", "heapprof-exact"}
)
tools = {name: how for name, how in TOOLS.items() if how and (name in wanted or name == "bare")}
threads = [int(t) for t in a.threads.split(",")]


def pair(tool, count, kind):
    """Nanoseconds of CPU and of wall time a pair."""
    wrap, env = tools[tool]
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [*wrap, program, str(a.pairs), str(count), *kind.split()],
        env=dict(os.environ, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        print(f"{tool}, {count} threads, {kind}: exit status {done.returncode}", file=sys.stderr)
    return [
        (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / a.pairs * 1e9,
        wall / a.pairs * 1e9,
    ]


print("| kind | tool | threads | CPU ns/pair | extra | wall ns/pair | to 2 threads |")
print("| :--- | :--- | ---: | ---: | ---: | ---: | ---: |")
for kind in a.kinds.split(","):
    cases = [(tool, count) for tool in tools for count in threads]
    took = {case: [] for case in cases}
    for _ in range(a.runs):
        random.shuffle(cases)
        for case in cases:
            took[case].append(pair(*case, kind))
    for tool in tools:
        for count in threads:
            rounds = took[tool, count]
            cpu, wall = (statistics.median(r[i] for r in rounds) for i in (0, 1))
            extra = statistics.median(x[0] - b[0] for x, b in zip(rounds, took["bare", count]))
            to_two = (
                f"{statistics.median(x[0] / b[0] for x, b in zip(rounds, took[tool, 2])):.2f}"
                if 2 in threads
                else "–"
            )
            print(
                f"| {kind} | {tool} | {count} | {cpu:.0f} | {extra:+.0f} | {wall:.0f} | {to_two} |",
                flush=True,
            )
