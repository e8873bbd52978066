#!/usr/bin/env python3
"""Runs the real pprof and `heapprof pprof` over the same profiles and flags, and compares their
stdout byte for byte.

usage: compare.py --pprof PATH --heapprof PATH [--only REGEX] [--seed N --random N] PROFILE... Each
case is FLAGS x PROFILE (and FLAGS x PAIR for -base / -diff_base). --random N adds N generated
profiles (odd shapes: recursion, inlines, empty stacks, missing symbols, labels, negative values,
many sample types). Prints each mismatch with the first differing line, then the closing line `N
passed, N failed`. Exit 1 on any failure. TZ is UTC and -symbolize=none throughout, so both sides
read nothing but the profile.
"""

import argparse, gzip, itertools, os, random, re, subprocess, sys, tempfile

from profiles import random_profile

SINGLE = [
    "-top",
    "-top -cum",
    "-top -nodecount=10",
    "-top -nodefraction=0",
    "-top -trim=false",
    "-text -lines",
    "-top -files",
    "-top -filefunctions",
    "-top -addresses",
    "-top -noinlines",
    "-top -unit=bytes",
    "-top -unit=kb",
    "-top -unit=auto",
    "-top -compact_labels",
    "-top -divide_by=3",
    "-top -mean",
    "-top -relative_percentages -focus=pars|put|walk|main",
    "-top -focus=pars|put|walk",
    "-top -ignore=pars|put|walk",
    "-top -hide=pars|put|walk",
    "-top -show=pars|put|walk|main",
    "-top -show_from=pars|put|main",
    "-top -prune_from=pars|put",
    "-top -drop_negative",
    "-top -sample_index=0",
    "-tree",
    "-tree -cum -nodecount=15",
    "-tree -lines -nodecount=12",
    "-tree -focus=pars|put|walk",
    "-peek=pars|put|walk|main",
    "-traces",
    "-traces -lines",
    "-tags",
    "-tags -unit=bytes",
    "-raw",
    "-comments",
    "-dot",
    "-dot -cum -nodecount=20",
    "-dot -lines -focus=pars|put|walk",
    "-dot -call_tree -nodecount=30",
    "-callgrind",
    "-callgrind -call_tree",
    "-top -tagfocus=:4kb",
    "-top -tagignore=1kb:",
    "-top -tagroot=bytes",
    "-top -tagleaf=bytes",
    "-traces -tagshow=bytes",
    "-top -taghide=bytes",
    "-list=pars|put|walk|main",
    "-proto",
    "-proto -focus=pars|put|walk",
    "-topproto",
]
PAIR = [
    "-top -base",
    "-top -diff_base",
    "-top -cum -diff_base",
    "-tree -diff_base",
    "-top -normalize -base",
    "-top -drop_negative -diff_base",
    "-traces -base",
]


def run(cmd):
    """Exit status and stdout; for -proto and -topproto the inflated bytes of what was written."""
    target = None
    if "-proto" in cmd or "-topproto" in cmd:
        target = os.path.join(tempfile.gettempdir(), f"oracle-{os.getpid()}.pb.gz")
        cmd = [x for x in cmd[:-1]] + [f"-output={target}", cmd[-1]]
    env = dict(os.environ, TZ="UTC", NO_COLOR="1", PPROF_TMPDIR=tempfile.gettempdir())
    p = subprocess.run(
        cmd,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300,
    )
    if target and os.path.exists(target):
        data = gzip.open(target).read()
        os.remove(target)
        return p.returncode, data
    return p.returncode, p.stdout


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--pprof", required=True)
    ap.add_argument("--heapprof", required=True)
    ap.add_argument("--only", default=".")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--random", type=int, default=0)
    ap.add_argument("profiles", nargs="*")
    a = ap.parse_args()
    tmp = tempfile.mkdtemp()
    rng = random.Random(a.seed)
    files = list(a.profiles)
    for i in range(a.random):
        files.append(os.path.join(tmp, f"random-{a.seed}-{i}.pb.gz"))
        random_profile(files[-1], rng)
    cases = [(c.split(), [f]) for f in files for c in SINGLE]
    cases += [
        (c.split()[:-1] + [c.split()[-1] + "=" + x], [y])
        for x, y in itertools.pairwise(files)
        for c in PAIR
    ]
    good = bad = unstable = 0
    for flags, rest in cases:
        name = " ".join(flags + [os.path.basename(r) for r in rest])
        if not re.search(a.only, name):
            continue
        args = ["-symbolize=none", *flags, *rest]
        rc1, want = run([a.pprof, *args])
        rc2, got = run([a.heapprof, "pprof", *args])
        if rc1 == rc2 and want == got:
            good += 1
            continue
        again = [run([a.pprof, *args]) for _ in range(5)]  # pprof breaks some ties by map order
        if all(r == (rc1, want) for r in again):
            # Of hundreds of ties, some come out in the same way six times.
            again += [run([a.pprof, *args]) for _ in range(30)]
        if any(r != (rc1, want) for r in again):
            good += (rc2, got) in again
            unstable += (rc2, got) not in again
            continue
        bad += 1
        w, g = want.decode(errors="replace").splitlines(), got.decode(errors="replace").splitlines()
        at = next((i for i, (x, y) in enumerate(itertools.zip_longest(w, g)) if x != y), 0)
        print(
            f"MISMATCH {name}: exit {rc1} vs {rc2}, line {at + 1}\n  pprof   "
            f" {w[at] if at < len(w) else '<end>'}\n  heapprof {g[at] if at < len(g) else '<end>'}"
        )
    print(f"{unstable} left out: pprof's own output changes from run to run there")
    print(f"{good} passed, {bad} failed")
    sys.exit(bad > 0)


main()
