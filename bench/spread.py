#!/usr/bin/env python3
"""Whether the ranges that heapprof prints hold the truth: many sampled recordings of programs
beside an exact one of each.

usage: spread.py --heapprof PATH [--recordings 200] [--pairs 1000] [--others 50] [--real 36] [--only
small,mixed] [--keep FOLDER]

bench/spread.cpp has six programs, each with the same blocks in each run, and a hard one, which is
counted by itself. Each is recorded exactly, for the truth, and as often as --recordings says at
four periods, which give about 25, 100, 400 and 1,250 samples. Of each recording the total and the
rows whose true share is above 1 % are looked at: is the truth in the range? Then pairs of
recordings of one program are compared, as a build server would: they are equal, and must not fail.
Last the same blocks and three tenths more: those must.

--only: of the six programs these.
--others: so many profiles each of Go's, jemalloc's and tcmalloc's own samplers, where they are
there.
--real: so many recordings each of a compiler, perl, python3 and sqlite3.
needs: g++; go, libjemalloc.so.2 and libtcmalloc.so.4 for the others.
"""

import argparse
import collections
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = ("inuse_space", "inuse_objects", "alloc_space", "alloc_objects")
# About so many samples in use at the end.
SAMPLES = (25, 100, 400, 1250)
# Large blocks are sampled for certain where the period is short: periods for it.
LARGE = (8_000_000, 1_800_000, 200_000, 40_000)
PROGRAMS = ("small", "mixed", "large", "growth", "freed", "threads")
# What is hard, and stands aside: as many blocks of 16 bytes as of 64 KiB.
ASIDE = "wide"


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--heapprof", required=True)
    parser.add_argument("--recordings", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--others", type=int, default=50)
    parser.add_argument("--real", type=int, default=36)
    parser.add_argument("--only", default="")
    parser.add_argument("--keep")
    return parser.parse_args()


class Heapprof:
    def __init__(self, path, folder):
        self.path, self.folder = path, folder

    def record(self, name, *options, command, env=None):
        out = os.path.join(self.folder, name + ".pb.gz")
        run([self.path, "record", *options, "-o", out, "--", *command], env)
        return out

    def rows(self, profile, sample_type):
        """The total and each function: value, low, high and samples, of its flat and its cum."""
        text = run([self.path, "top", "-t", sample_type, "-n", "0", "-f", "json", profile]).stdout
        report = json.loads(text)
        estimate = report.get("estimate") or {}
        rows = {("", "total"): of(report["total"], estimate)}
        for row in report["rows"]:
            rows[row["function"], "flat"] = of(row["flat"], row.get("estimate") or {})
            rows[row["function"], "cum"] = of(row["cum"], row.get("cum_estimate") or {})
        return rows

    def fails(self, before, after):
        rule = "inuse_space > +10%"
        words = [self.path, "diff", "-t", "inuse_space", "--fail-if", rule, before, after]
        return run(words, allowed=(0, 1)).returncode == 1


def of(value, estimate):
    return (
        value,
        estimate.get("low", value),
        estimate.get("high", value),
        estimate.get("samples", 0),
    )


def run(words, env=None, allowed=(0,)):
    done = subprocess.run(
        words, env=dict(os.environ, **(env or {})), capture_output=True, text=True
    )
    if done.returncode not in allowed:
        sys.exit(f"{' '.join(words)}: exits with {done.returncode}: {done.stderr}")
    return done


class Held:
    """How often the truth was in the range, by kind of row."""

    def __init__(self):
        self.counts = collections.defaultdict(lambda: [0, 0])

    def judge(self, program, sample_type, truth, recordings, period=0):
        """Holds the rows of recordings with one period to the truth."""
        total = truth["", "total"][0]
        never = 3.7 * period if sample_type.endswith("space") else 0
        # How many samples a row can expect is what it has on average.
        expected = collections.Counter()
        for rows in recordings:
            for key, row in rows.items():
                expected[key] += row[3] / len(recordings)
        for key, (true, *_) in truth.items():
            # Names that are addresses are others in each run.
            if true <= 0.01 * total or key[0].startswith("0x"):
                continue
            enough = "30 and more" if expected[key] >= 30 else "fewer"
            kind = "totals" if key[1] == "total" else "rows"
            for rows in recordings:
                # What was not sampled has no row: its bytes are below 3.7 periods, of its objects
                # nothing is said.
                _, low, high, samples = rows.get(key, (0, 0, 0, 0))
                if not samples and not never:
                    continue
                held = low <= true <= high or not samples and true <= never
                pools = [(program, sample_type, enough), (program, "all", enough)]
                if program != ASIDE:
                    pools += [
                        ("all", sample_type, enough),
                        ("all", kind, enough),
                        ("all", "all", enough),
                    ]
                for what in pools:
                    self.counts[what][0] += held
                    self.counts[what][1] += 1

    def show(self):
        print("\n| program | of | samples | ranges | held |\n| :--- | :--- | :--- | ---: | ---: |")
        for (program, of_what, enough), (held, all_) in sorted(self.counts.items()):
            print(f"| {program} | {of_what} | {enough} | {all_} | {100 * held / all_:.1f} % |")


def own(args, heapprof, folder):
    program = os.path.join(folder, "spread")
    names = [name for name in (*PROGRAMS, ASIDE) if not args.only or name in args.only.split(",")]
    held, pairs, power = Held(), [], []
    for name in names:
        exact = heapprof.record(f"{name}-exact", "--exact", command=[program, name])
        truth = {sample_type: heapprof.rows(exact, sample_type) for sample_type in TYPES}
        size = truth["inuse_space"]["", "total"][0]
        for period in LARGE if name == "large" else [size // samples for samples in SAMPLES]:
            profiles = [
                heapprof.record(
                    f"{name}-{period}-{n}", "--period", str(period), command=[program, name]
                )
                for n in range(args.recordings // len(SAMPLES))
            ]
            for sample_type in TYPES:
                rows = [heapprof.rows(profile, sample_type) for profile in profiles]
                held.judge(name, sample_type, truth[sample_type], rows, period)
            if name == ASIDE:
                continue
            samples = [
                heapprof.rows(profile, "inuse_space")["", "total"][3] for profile in profiles
            ]
            print(
                f"# {name}, period {period}: {min(samples)} to {max(samples)} samples in use",
                flush=True,
            )
            enough = [profile for profile, count in zip(profiles, samples) if count >= 20]
            pairs += zip(enough, enough[1:] + enough[:1])
            many = [profile for profile, count in zip(profiles, samples) if count >= 1000]
            power += [(name, period, n, profile) for n, profile in enumerate(many[:45])]
    held.show()
    step = max(1, len(pairs) // args.pairs)
    chosen = pairs[::step]
    failed = sum(heapprof.fails(*pair) for pair in chosen)
    print(
        f"\nequal programs: {failed} of {len(chosen)} pairs with 20 samples and more fail:"
        f" {100 * failed / len(chosen):.1f} %"
    )
    caught = 0
    for name, period, n, before in power:
        after = heapprof.record(
            f"{name}-more-{n}", "--period", str(period), command=[program, name, "130"]
        )
        caught += heapprof.fails(before, after)
    if power:
        print(
            f"+30 %: caught in {caught} of {len(power)} pairs of 1,000 samples and more:"
            f" {100 * caught / len(power):.1f} %"
        )


GO = """
package main

import (
	"math"
	"math/rand"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
)

var kept [][]byte
SITES
var sites = []func(int){LIST}

func main() {
	rate, _ := strconv.Atoi(os.Args[1])
	runtime.MemProfileRate = rate
	random := rand.New(rand.NewSource(1))
	kept = make([][]byte, 0, 1<<20)
	for i := 0; i < 20000; i++ {
		site := int(8 * math.Pow(random.Float64(), 1.8))
		sites[site](int(16 * math.Pow(2048, random.Float64())))
	}
	for i := range kept {
		if i%3 == 0 {
			kept[i] = nil
		}
	}
	runtime.GC()
	runtime.GC()
	file, err := os.Create(os.Args[2])
	if err != nil {
		panic(err)
	}
	pprof.Lookup("heap").WriteTo(file, 0)
	file.Close()
	runtime.KeepAlive(kept)
}
"""


def go(folder):
    """Gives a program that writes Go's profile: its rate, its file."""
    sites = "".join(
        f"\n//go:noinline\nfunc site{n}(size int) {{ kept = append(kept, make([]byte, size)) }}\n"
        for n in range(8)
    )
    text = GO.replace("SITES", sites).replace("LIST", ", ".join(f"site{n}" for n in range(8)))
    source = os.path.join(folder, "spread.go")
    with open(source, "w") as file:
        file.write(text)
    out = os.path.join(folder, "spread-go")
    run(
        ["go", "build", "-o", out, source],
        {"GOTOOLCHAIN": "local", "GO111MODULE": "off", "GOCACHE": os.path.join(folder, "cache")},
    )
    return lambda rate, into: run([out, str(rate), into])


def jemalloc(folder, program, name):
    def write(rate, into):
        prefix = os.path.join(folder, "je")
        options = (
            f"prof:true,prof_active:true,lg_prof_sample:{rate.bit_length() - 1},prof_final:true,prof_prefix:{prefix}"
        )
        run([program, name], {"LD_PRELOAD": "libjemalloc.so.2", "MALLOC_CONF": options})
        (found,) = (
            file for file in os.listdir(folder) if file.startswith("je.") and file.endswith(".heap")
        )
        os.rename(os.path.join(folder, found), into)

    return write


def tcmalloc(_, program, name):
    return lambda rate, into: run(
        [program, name],
        {"LD_PRELOAD": "libtcmalloc.so.4", "TCMALLOC_SAMPLE_PARAMETER": str(rate), "DUMP": into},
    )


def others(args, heapprof, folder):
    """Bytes in other samplers' profiles; the truth is what they write when they sample every byte."""
    program = os.path.join(folder, "spread")
    held = Held()
    kinds = [("jemalloc", jemalloc, name) for name in ("small", "mixed", "growth", "freed")]
    kinds += [("tcmalloc", tcmalloc, name) for name in ("small", "mixed", "growth", "freed")]
    if shutil.which("go"):
        kinds.append(("go", None, "go"))
    for kind, make, name in kinds:
        if (
            make
            and subprocess.run(
                ["true"],
                env={"LD_PRELOAD": f"lib{kind}.so.{4 if make is tcmalloc else 2}"},
                capture_output=True,
            ).stderr
        ):
            print(f"# {kind} is not there", flush=True)
            continue
        write = make(folder, program, name) if make else go(folder)

        def rows(rate):
            raw, named = (os.path.join(folder, f"{kind}{end}") for end in (".heap", ".pb.gz"))
            write(rate, raw)
            run([heapprof.path, "symbolize", "-o", named, raw])
            sample_type = "inuse_space" if kind != "tcmalloc" else "space"
            return heapprof.rows(named, sample_type)

        truth = rows(1)
        for rate in (16384, 131072):
            held.judge(kind, "inuse_space", truth, [rows(rate) for _ in range(args.others)], rate)
    held.show()


def real(args, heapprof, folder):
    """Programs that are not ours; each is started so that it does the same again."""
    import overhead

    held = Held()
    fixed = {"PERL_HASH_SEED": "0", "PYTHONHASHSEED": "0"}
    workloads = overhead.workloads(folder)
    for name in ("c++-compile", "perl-index", "python-malloc", "sqlite"):
        if name not in workloads:
            continue
        command, _, env = workloads[name]

        def record(into, *options):
            return heapprof.record(
                f"{name}-{into}", *options, command=command, env={**env, **fixed}
            )

        exact = record("exact", "--exact")
        truth = {sample_type: heapprof.rows(exact, sample_type) for sample_type in TYPES}
        for samples in (100, 400, 1600):
            period = truth["alloc_space"]["", "total"][0] // samples
            profiles = [record(n, "--period", str(period)) for n in range(args.real // 3)]
            for sample_type in TYPES:
                if truth[sample_type]["", "total"][0]:
                    held.judge(
                        name,
                        sample_type,
                        truth[sample_type],
                        [heapprof.rows(p, sample_type) for p in profiles],
                        period,
                    )
    held.show()


def main():
    args = parse()
    with tempfile.TemporaryDirectory(prefix="spread-") as temporary:
        folder = args.keep or temporary
        os.makedirs(folder, exist_ok=True)
        heapprof = Heapprof(args.heapprof, folder)
        run(
            [
                "g++",
                "-O2",
                "-g",
                "-o",
                os.path.join(folder, "spread"),
                os.path.join(HERE, "spread.cpp"),
                "-pthread",
                "-ldl",
            ]
        )
        if args.recordings:
            own(args, heapprof, folder)
        if args.others:
            others(args, heapprof, folder)
        if args.real:
            real(args, heapprof, folder)


main()
