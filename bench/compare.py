#!/usr/bin/env python3
"""Times heapprof beside the real pprof on the same profiles: CPU (user+sys) and peak memory of
whole processes.

usage: compare.py --pprof PATH --heapprof PATH [--runs N] [--drop-in] PROFILE...

For each profile and question both programs run in turn, N times (pprof once where it takes over 20
s); medians and the ratios of the medians are printed as a Markdown table. Diffs are between each
profile and the next one given. With --drop-in the questions are pprof's own flags, asked of pprof
and of `heapprof pprof`.
"""

import argparse, os, statistics, subprocess, tempfile

ap = argparse.ArgumentParser()
ap.add_argument("--pprof", required=True)
ap.add_argument("--heapprof", required=True)
ap.add_argument("--runs", type=int, default=3)
ap.add_argument("--drop-in", action="store_true")
ap.add_argument("profiles", nargs="+")
a = ap.parse_args()


def run(cmd):
    with open(os.devnull, "wb") as null:
        child = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=null, stderr=null)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, cmd
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def both(ours, theirs):
    mine, his = [], []
    for n in range(a.runs):
        mine.append(run(ours))
        if theirs and (n == 0 or his[0][0] < 20):
            his.append(run(theirs))
    middle = lambda rows, i: statistics.median(r[i] for r in rows) if rows else None
    return middle(mine, 0), middle(mine, 1), middle(his, 0), middle(his, 1)


print("| profile | question | heapprof CPU s | MB | pprof CPU s | MB | CPU ratio | memory ratio |")
print("| :--- | :--- | ---: | ---: | ---: | ---: | ---: | ---: |")
p = [a.pprof, "-symbolize=none", "-unit=bytes", "-nodefraction=0"]
svg = os.path.join(tempfile.gettempdir(), "compare.svg")
packed = "-output=" + os.path.join(tempfile.gettempdir(), "compare.pb.gz")


def drop_in(f):
    for flags in (["-top"], ["-tree"], ["-traces"], ["-raw"], ["-proto", packed]):
        flags = ["-symbolize=none", *flags, f]
        yield "pprof " + flags[1], [a.heapprof, "pprof", *flags], [a.pprof, *flags]


def own(i, f):
    cases = [
        ("top -n 40", [a.heapprof, "top", "--all-code", "-n", "40", f], p + ["-top", "-nodecount=40", f]),
        ("top, all rows", [a.heapprof, "top", "--all-code", "-n", "0", f], p + ["-top", f]),
        (
            "top --focus",
            [a.heapprof, "top", "--all-code", "-n", "40", "--focus", "mod12[0-9]*::", f],
            p + ["-top", "-nodecount=40", "-focus=mod12[0-9]*::", f],
        ),
        ("flame", [a.heapprof, "flame", "-o", svg, f], None),
    ]
    if i + 1 < len(a.profiles):
        g = a.profiles[i + 1]
        cases.append(
            (
                "diff with the next",
                [a.heapprof, "diff", "--all-code", "-n", "40", f, g],
                p + ["-top", "-nodecount=40", f"-diff_base={f}", g],
            )
        )
    return cases


for i, f in enumerate(a.profiles):
    for name, ours, theirs in drop_in(f) if a.drop_in else own(i, f):
        cpu, mem, his_cpu, his_mem = both(ours, theirs)
        peer = (
            f"{his_cpu:.2f} | {his_mem:.0f} | 1/{his_cpu / max(cpu, 0.001):.0f} |"
            f" 1/{his_mem / mem:.1f}"
            if theirs
            else "– | – | – | –"
        )
        print(f"| {os.path.basename(f)} | {name} | {cpu:.3f} | {mem:.0f} | {peer} |", flush=True)
