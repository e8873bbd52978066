#!/usr/bin/env python3
"""Runs every command of heapprof on some profiles: CPU (user+sys) and peak memory of whole
processes beside those of `top`.

usage: commands.py --heapprof PATH [--only REGEX] [--limit SECONDS] [--into FILE.json] PROFILE...
       commands.py --show FILE.json [--before FILE.json]

    for n in "10000 3000 25 s10k" "100000 20000 30 r100k" "1000000 50000 30 r1m"; do
        set -- $n; python3 bench/gen_profile.py $1 $2 $3 $4.pb.gz
    done
    python3 bench/commands.py --heapprof target/release/heapprof s10k.pb.gz r100k.pb.gz r1m.pb.gz

    for n in "label-sets 10000 l10k" "threads 5000 t5k" "deep 2000 d2k" "recursive 2000 c2k"; do
        set -- $n; python3 bench/gen_shapes.py $1 $2 $3.pb.gz
    done
    python3 bench/commands.py --heapprof target/release/heapprof l10k.pb.gz t5k.pb.gz d2k.pb.gz

Output goes to /dev/null: what the kernel takes to keep gigabytes of text says nothing of us. The
profile is also loaded into a database of its own, and questions of it are put beside those of the
file. A command that takes longer than the limit is ended, and its row says so. --into keeps the
figures, so that parts can be run one by one; --show prints what was kept as a Markdown table.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import tempfile

FOCUS = "mod12[0-9]*::"


def parse():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--heapprof")
    parser.add_argument("--only", default="")
    parser.add_argument("--limit", type=int, default=120)
    parser.add_argument("--into")
    parser.add_argument("--show")
    parser.add_argument("--before")
    parser.add_argument("profiles", nargs="*")
    return parser.parse_args()


def commands(profile, db, folder):
    """Name and arguments of each command; PROFILE stands where the profile does."""
    name = os.path.basename(profile).removesuffix(".pb.gz")
    out = os.devnull
    source = os.path.join(folder, "source")
    reports = [
        ("top", ["top"]),
        ("top -n 40", ["top", "-n", "40"]),
        ("top --wide", ["top", "--wide"]),
        ("top, lines", ["top", "-g", "lines"]),
        ("top --focus", ["top", "--focus", FOCUS]),
        ("top -f json", ["top", "-f", "json"]),
        ("peek .", ["peek", "."]),
        ("peek . -f json", ["peek", ".", "-f", "json"]),
        ("peek . -f csv", ["peek", ".", "-f", "csv"]),
        ("peek, addresses", ["peek", ".", "-g", "addresses"]),
        ("peek --focus", ["peek", "method_1[0-9]$", "--focus", FOCUS]),
        ("tree", ["tree"]),
        ("tree --min-percent 0", ["tree", "--min-percent", "0"]),
        ("tree --min-percent 0 -f json", ["tree", "--min-percent", "0", "-f", "json"]),
        ("tree --min-percent 0 -f csv", ["tree", "--min-percent", "0", "-f", "csv"]),
        ("tree --reverse", ["tree", "--reverse"]),
        ("traces", ["traces"]),
        ("traces -f json", ["traces", "-f", "json"]),
        ("traces -f csv", ["traces", "-f", "csv"]),
        ("traces --focus", ["traces", "--focus", FOCUS]),
        ("tags", ["tags"]),
        ("list", ["list", "method_1[0-9]$", "--source-path", source]),
        ("leaks", ["leaks"]),
        ("leaks -f json", ["leaks", "-f", "json"]),
        ("leaks -f csv", ["leaks", "-f", "csv"]),
        ("leaks --fail-if", ["leaks", "-n", "10", "--fail-if", "cum(method_1[0-9]$) > 1TiB"]),
        ("info", ["info"]),
        ("info -f json", ["info", "-f", "json"]),
        ("stats", ["stats"]),
        ("report", ["report", "-o", os.devnull]),
        ("flame", ["flame"]),
        ("flame --min-percent 0 -f folded", ["flame", "--min-percent", "0", "-f", "folded"]),
    ]
    for label, words in reports:
        yield label, [*words, "PROFILE"]
    yield "diff", ["diff", "PROFILE", "PROFILE"]
    yield "timeline", ["timeline", "PROFILE", "PROFILE"]
    yield "report --base", ["report", "-o", out, "--base", "PROFILE", "PROFILE"]
    yield "diff --fail-if", ["diff", "--fail-if", "inuse_space > +10%", "PROFILE", "PROFILE"]
    for form in (
        "pprof",
        "json",
        "csv",
        "folded",
        "speedscope",
        "firefox",
        "gperftools",
        "symbolized",
        "callgrind",
    ):
        yield f"convert --to {form}", ["convert", "--to", form, "-o", out, "PROFILE"]
    yield "merge with itself", ["merge", "-o", out, "PROFILE", "PROFILE"]
    yield "symbolize", ["symbolize", "-o", out, "PROFILE"]
    yield "sql -p, flat by function", [
        "sql",
        "-p",
        "PROFILE",
        "SELECT f.name, t.flat, t.cum FROM function_total t JOIN function f ON f.id = t.function",
    ]
    yield "sql -p, every sample", ["sql", "-p", "PROFILE", "SELECT * FROM sample"]
    yield "load", ["load", "--as", name, "PROFILE"]
    stored = [
        r
        for r in reports
        if r[0]
        in (
            "top",
            "top -n 40",
            "top --wide",
            "top, lines",
            "top --focus",
            "peek .",
            "tree",
            "tree --min-percent 0",
            "traces",
            "traces --focus",
            "tags",
            "leaks",
            "info",
            "stats",
            "flame",
        )
    ]
    for label, words in stored:
        yield f"{label}, loaded", [*words, name]
    yield "diff, loaded", ["diff", name, name]
    yield "convert --to pprof, loaded", ["convert", "--to", "pprof", "-o", out, name]
    yield "merge with itself, loaded", ["merge", "-o", out, name, name]
    yield "sql of the database", [
        "sql",
        "SELECT profile, type, sum(value) FROM sample GROUP BY profile, type",
    ]
    yield "ls", ["ls"]
    yield "rm", ["rm", name]
    for flags in (
        "-top",
        "-tree",
        "-peek=.",
        "-traces",
        "-tags",
        "-raw",
        "-comments",
        "-dot",
        "-callgrind",
        "-topproto",
        "-proto",
    ):
        yield f"pprof {flags}", [
            "pprof",
            "-symbolize=none",
            flags,
            *([f"-output={out}"] if "proto" in flags else []),
            "PROFILE",
        ]
    yield "pprof -list", [
        "pprof",
        "-symbolize=none",
        "-list=method_1[0-9]$",
        f"-source_path={source}",
        "PROFILE",
    ]
    for flags in ("--text", "--collapsed"):
        yield f"jeprof {flags}", ["jeprof", flags, "PROFILE"]


def run(words, limit):
    """CPU seconds, megabytes and whether it came to its end."""
    child = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
    )
    said = child.stderr.read().decode(errors="replace")
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    ended = child.returncode in (0, 1)
    if not ended and child.returncode != -signal.SIGXCPU:
        print("#", " ".join(words), "exits with", child.returncode, said.strip(), flush=True)
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, ended


def fake_source(folder):
    """Source text for what list asks."""
    path = os.path.join(folder, "source/build/src/pkg1/file1.cc")
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.writelines(f"line {n}\n" for n in range(1, 3001))


def measure(arguments, kept):
    for profile in arguments.profiles:
        rows = kept.setdefault(os.path.basename(profile), {})
        with tempfile.TemporaryDirectory() as folder:
            db = os.path.join(folder, "heapprof.db")
            fake_source(folder)
            for name, words in commands(profile, db, folder):
                needs_db = "loaded" in name or name in ("load", "ls", "rm", "sql of the database")
                is_wanted = name == "top" or re.search(arguments.only, name)
                if not is_wanted and not (
                    needs_db and name == "load" and re.search(arguments.only, "loaded")
                ):
                    continue
                words = [profile if word == "PROFILE" else word for word in words]
                words = [arguments.heapprof, *(["--db", db] if needs_db else []), *words]
                cpu, mb, ended = run(words, arguments.limit)
                # The middle of five, as far as that takes no minutes.
                if cpu < 1.5 and name not in ("load", "rm"):
                    more = sorted(
                        [(cpu, mb, ended)] + [run(words, arguments.limit) for _ in range(4)]
                    )
                    cpu, mb, ended = more[2]
                rows[name] = [round(cpu, 3), round(mb, 1), ended]
                if name == "load":
                    kept.setdefault("database MB", {})[os.path.basename(profile)] = (
                        os.path.getsize(db) / 1e6
                    )
                if arguments.into:
                    with open(arguments.into, "w") as file:
                        json.dump(kept, file, indent=1)


def show(kept, before):
    profiles = [name for name in kept if name != "database MB"]
    head = ["command"]
    for profile in profiles:
        head += [f"{profile.removesuffix('.pb.gz')}: CPU s", "× top", "MB", "× top"]
        if before:
            head += ["before: CPU s", "MB"]
    if len(profiles) > 1:
        head.append("growth")
    print("| " + " | ".join(head) + " |")
    print("| :--- |" + " ---: |" * (len(head) - 1))
    names = list(dict.fromkeys(name for profile in profiles for name in kept[profile]))
    for name in names:
        cells = [name]
        for profile in profiles:
            top, row = kept[profile]["top"], kept[profile].get(name)
            if row is None:
                cells += ["–"] * 4
            else:
                more = "" if row[2] else ">"
                cells += [
                    f"{more}{row[0]:.2f}",
                    f"{more}{row[0] / top[0]:.1f}",
                    f"{row[1]:.0f}",
                    f"{row[1] / top[1]:.1f}",
                ]
            if before:
                old = before.get(profile, {}).get(name)
                cells += (
                    [f"{'' if old[2] else '>'}{old[0]:.2f}", f"{old[1]:.0f}"] if old else ["–", "–"]
                )
        if len(profiles) > 1:
            last, one = (kept[profile].get(name) for profile in (profiles[-1], profiles[-2]))
            cells.append(f"{last[0] / max(one[0], 0.001):.1f}" if last and one else "–")
        print("| " + " | ".join(cells) + " |")


def main():
    arguments = parse()
    source = arguments.show or arguments.into
    kept = {}
    if source and os.path.exists(source):
        with open(source) as file:
            kept = json.load(file)
    before = None
    if arguments.before:
        with open(arguments.before) as file:
            before = json.load(file)
    if not arguments.show:
        measure(arguments, kept)
    show(kept, before)


main()
