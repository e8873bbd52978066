#!/usr/bin/env python3
"""What recording costs the program that is recorded: CPU of everything that a command starts,
beside the bare command's.

usage: overhead.py --heapprof PATH [--before PATH] [--runs 5] [--least-of 1] [--tools a,b]
[--workloads a,b]

In each round every tool runs once, or --least-of times in turn, of which the least CPU counts: a
machine whose memory is taken back by its host adds to some runs, and takes from none. With
--before, another heapprof runs in the same rounds, and a second table says what the one is of the
other: the median of the rounds' ratios, and between what bounds it lies with 95 % confidence
(bootstrap: the rounds are drawn again 10,000 times, with replacement).

needs: g++; heaptrack, perl, python3, sqlite3, node where they are to be measured. What is not
installed is left out.
"""

import argparse
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PERL = r"""
my %index; my $files = 0;
for my $file (glob('/usr/share/perl/5*/*.pm /usr/share/perl/5*/*/*.pm')) {
    open my $in, '<', $file or next; local $/; my $text = <$in>;
    $index{$_}{$file}++ for grep { length > 2 } split /\W+/, lc $text;
    last if ++$files > 250;
}
print scalar(keys %index), "\n";
"""
PYTHON = """
import ast, glob, os
folder = os.path.dirname(os.__file__)
trees = [ast.parse(open(file, errors="replace").read()) for file in sorted(glob.glob(folder + "/*.py"))[:25]]
"""
SQL = """create table t(a, b);
with recursive c(x) as (select 1 union all select x + 1 from c where x < 600000) insert into t select x, hex(x) from c;
create index i on t(b); select count(*) from t a join t b on a.b = b.b;"""
NODE = (
    "const m=new Map();for(let"
    " i=0;i<4e5;i++)m.set('k'+i,{i});console.log(JSON.stringify([...m]).length)"
)


def workloads(folder):
    """name: (command, pairs of malloc and free or 0, environment)"""
    churn = os.path.join(folder, "churn")
    subprocess.run(
        ["g++", "-O2", "-g", "-o", churn, os.path.join(HERE, "churn.cpp"), "-pthread"], check=True
    )
    source = os.path.join(folder, "many.cc")
    with open(source, "w") as out:
        out.write("#include <bits/stdc++.h>\n")
        for i in range(60):
            out.write(
                f"struct K{i} {{ std::map<std::string, std::vector<std::pair<int,"
                " std::function<int(int)>>>> m;"
                f' int f() {{ std::regex r("a{i}"); return m.size(); }} }};\nint g{i}() {{ return'
                f" K{i}().f(); }}\n"
            )
    # The compiler itself: heaptrack follows no child.
    compiler = subprocess.run(
        ["g++", "-print-prog-name=cc1plus"], capture_output=True, text=True
    ).stdout.strip()
    compile_ = [
        compiler,
        "-quiet",
        "-imultiarch",
        "x86_64-linux-gnu",
        "-D_GNU_SOURCE",
        "-fsyntax-only",
        source,
    ]
    # Not a version manager's script.
    python = os.path.realpath(sys.executable)
    table = {
        "churn": ([churn, "3000000", "1", "2000"], 3_000_000, {}),
        "churn-2-threads": ([churn, "3000000", "2", "2000"], 3_000_000, {}),
        "churn-one-stack": ([churn, "3000000", "1", "2000", "0"], 3_000_000, {}),
        "churn-large-live": ([churn, "2000000", "1", "200000"], 2_000_000, {}),
        "c++-compile": (compile_, 0, {}),
        "perl-index": (["perl", "-e", PERL], 0, {}),
        "python-malloc": ([python, "-c", PYTHON], 0, {"PYTHONMALLOC": "malloc"}),
        "sqlite": (["sqlite3", ":memory:", SQL], 0, {}),
        "node": (["node", "-e", NODE], 0, {}),
    }
    # Perl and Python draw the order of their hashes anew in each run, which moves perl's CPU by a
    # seventh.
    same = {"PERL_HASH_SEED": "0", "PYTHONHASHSEED": "0"}
    return {
        name: (command, pairs, same | env)
        for name, (command, pairs, env) in table.items()
        if shutil.which(command[0])
    }


def tools(folder, heapprof, before):
    """name: what it makes of a command"""

    def record(binary, *mode):
        return lambda command: [
            binary,
            "record",
            *mode,
            "--no-symbolize",
            "-o",
            f"{folder}/out.pb.gz",
            "--",
            *command,
        ]

    table = {"bare": lambda command: command}
    for of, binary in (("", heapprof), ("before-", before)):
        if binary:
            table[f"{of}sampled"] = record(binary)
            table[f"{of}exact"] = record(binary, "--exact")
    if shutil.which("heaptrack"):
        table["heaptrack"] = lambda command: [
            "heaptrack",
            "-r",
            "-o",
            f"{folder}/heaptrack",
            *command,
        ]
    return table


def cpu(command, env):
    def used():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    start = used()
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    status = subprocess.run(command, env=dict(os.environ, **env), **quiet).returncode
    return used() - start, status


def bounds(ratios):
    """Between what the median lies with 95 % confidence."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(10_000))
    return medians[250], medians[9749]


def main():
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("--heapprof", required=True)
    arguments.add_argument("--before")
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--least-of", type=int, default=1)
    arguments.add_argument("--tools", default="")
    arguments.add_argument("--workloads", default="")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        measure(args, folder)


def measure(args, folder):
    known = tools(folder, args.heapprof, args.before)
    if args.tools and (unknown := set(args.tools.split(",")) - set(known)):
        sys.exit(f"no tool is called {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    chosen = {
        name: tool
        for name, tool in known.items()
        if not args.tools or name == "bare" or name in args.tools.split(",")
    }
    print(f"{'workload':18} {'tool':16} {'CPU s':>8} {'to bare':>8} {'extra ns a pair':>16}")
    compared = []
    for name, (command, pairs, env) in workloads(folder).items():
        if args.workloads and name not in args.workloads.split(","):
            continue
        took = {tool: [] for tool in chosen}
        for _ in range(args.runs):
            least = dict.fromkeys(chosen, float("inf"))
            for _ in range(args.least_of):
                for tool, wrap in chosen.items():
                    seconds, status = cpu(wrap(command), env)
                    if status:
                        sys.exit(f"{name} under {tool}: exit status {status}")
                    least[tool] = min(least[tool], seconds)
            for tool in chosen:
                took[tool].append(least[tool])
        for tool in chosen:
            ratio = statistics.median(x / b for x, b in zip(took[tool], took["bare"]))
            extra = (
                statistics.median((x - b) / pairs * 1e9 for x, b in zip(took[tool], took["bare"]))
                if pairs
                else None
            )
            shown = "" if extra is None else f"{extra:16.1f}"
            print(
                f"{name:18} {tool:16} {statistics.median(took[tool]):8.2f} {ratio:8.2f} {shown}",
                flush=True,
            )
        for mode in ("sampled", "exact"):
            if mode in took and f"before-{mode}" in took:
                ratios = [x / b for x, b in zip(took[mode], took[f"before-{mode}"])]
                compared.append((name, mode, statistics.median(ratios), *bounds(ratios)))
    if compared:
        print(f"\n{'workload':18} {'mode':8} {'to before':>10}   95 % interval")
        for name, mode, median, low, high in compared:
            print(f"{name:18} {mode:8} {median:10.3f}   {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
