#!/usr/bin/env python3
"""How long does symbolizing take, and how much memory, when the debug information is small, missing
or huge?

usage: symbolize_time.py [--heapprof PATH] [--megabytes 500] [--runs 3] [--limit 300] [--keep DIR]
needs: g++ and binutils; elfutils, google-perftools, libgoogle-perftools4 (Debian packages) for the
peers.

One generated C++ unit (templates over the standard library, -g -O1, many inlined frames) is
compiled once; its object file is copied, with its symbols made local in each copy, until the linked
program has the wanted size of debug information. Each copy allocates in an eighth of its functions,
so the addresses are spread over all units. The programs: one unit stripped, one unit with -g, and
the large one. Each is recorded and its profile symbolized; beside it addr2line and eu-addr2line get
the same addresses of the program (function, file, line, inlined frames), and google-pprof its own
profile of the same run. A process's seconds and largest resident memory, of its children too;
medians. The first run of all is not counted: it brings the files into the page cache. Without
--heapprof the addresses are tcmalloc's.
"""

import argparse, json, os, re, shutil, signal, statistics, subprocess, sys, tempfile, threading, time

TCMALLOC = "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4"
TYPES, SHARE = 40, 8
ap = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
)
ap.add_argument("--heapprof")
ap.add_argument("--megabytes", type=int, default=500)
ap.add_argument("--runs", type=int, default=3)
ap.add_argument("--limit", type=int, default=300, help="seconds that a symbolizer may take")
ap.add_argument(
    "--keep", help="build in this folder and leave it; programs found there are not built again"
)
a = ap.parse_args()
if a.heapprof:
    a.heapprof = os.path.abspath(shutil.which(a.heapprof) or a.heapprof)
here = os.path.dirname(os.path.abspath(__file__))
scratch = None if a.keep else tempfile.TemporaryDirectory(prefix="symbolize-")
work = os.path.abspath(a.keep) if a.keep else scratch.name
os.makedirs(work, exist_ok=True)
os.chdir(work)


def sh(*cmd, **more):
    return subprocess.run(cmd, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


# --- the programs ---


def unit():
    text = [
        "#include <algorithm>",
        "#include <functional>",
        "#include <map>",
        "#include <memory>",
        "#include <set>",
        "#include <string>",
        "#include <vector>",
    ]
    for i in range(TYPES):
        text.append(f"""namespace unit {{
struct Key{i} {{ long a, b; bool operator<(const Key{i} &other) const {{ return a < other.a; }} }};
struct Value{i} {{ double d[{i % 7 + 1}]; std::string s; }};
template <class T> struct Holder{i} {{
  std::map<Key{i}, std::vector<std::shared_ptr<T>>> held;
  std::set<std::pair<Key{i}, std::string>> names;
  std::vector<std::function<void *(int)>> later;
  void *keep(int n) {{
    for (int k = 0; k < 3; k++) held[{{k, n}}].push_back(std::make_shared<T>()), names.insert({{{{k, n}}, std::string(40, 'x')}});
    later.push_back([](int m) {{ return (void *)new char[m + {i}]; }});
    std::sort(later.begin(), later.end(), [](auto &l, auto &r) {{ return &l < &r; }});
    return later.back()(n);
  }}
}};
}}""")
    cases = "\n".join(
        f"  if (share == {i % SHARE}) (new unit::Holder{i}<unit::Value{i}>)->keep(share);"
        for i in range(TYPES)
    )
    return "\n".join(text) + f'\nextern "C" void unit_entry(int share) {{\n{cases}\n}}\n'


def debug_bytes(file):
    """Of all sections with debug information; of those that a linker does not fold."""
    sizes = [
        line.split()[:2]
        for line in sh("size", "-A", file).splitlines()
        if line.startswith(".debug_")
    ]
    return sum(int(n) for _, n in sizes), sum(int(n) for name, n in sizes if "str" not in name)


def link(program, objects):
    calls = (
        "".join(f"void unit_entry_{i}(int); " for i in range(objects))
        + "int main() { "
        + "".join(f"unit_entry_{i}({i % SHARE}); " for i in range(objects))
        + "}"
    )
    open("main.c", "w").write(calls)
    sh("gcc", "-g", "-c", "main.c")
    sh(
        "g++",
        "-no-pie",
        *(["-fuse-ld=gold"] if shutil.which("ld.gold") else []),
        "-o",
        program,
        "main.o",
        *(f"unit{i}.o" for i in range(objects)),
    )


def build():
    open("unit.cpp", "w").write(unit())
    sh("g++", "-std=c++17", "-fno-gnu-unique", "-g", "-O1", "-c", "unit.cpp")
    sh(
        "ld", "-r", "--force-group-allocation", "-o", "whole.o", "unit.o"
    )  # else the linker would fold the copies' templates
    sh("objcopy", "--keep-global-symbol=unit_entry", "whole.o")
    copies = -(-a.megabytes * 1_000_000 // debug_bytes("whole.o")[1])
    for i in range(copies):
        sh("objcopy", f"--redefine-sym=unit_entry=unit_entry_{i}", "whole.o", f"unit{i}.o")
    link("one", 1)
    shutil.copy("one", "stripped")
    sh("strip", "stripped")
    link("large", copies)
    for i in range(copies):
        os.remove(f"unit{i}.o")


# --- the symbolizers: each says how many addresses it named ---


def timed(cmd, feed):
    """Seconds, MB (the largest of the process and its children) and output; None where it did not
    end in time."""
    with open("feed", "w") as f:
        f.write(feed)
    with open("feed") as i, open("out", "w") as o, open("err", "w") as e:
        child = subprocess.Popen(
            ["./meter", "figures", "1", *cmd], stdin=i, stdout=o, stderr=e, start_new_session=True
        )
    alarm = threading.Timer(a.limit, os.killpg, (child.pid, signal.SIGKILL))
    alarm.start()
    code = child.wait()
    alarm.cancel()
    if code == -signal.SIGKILL:
        return None
    if code and cmd[0] != "eu-addr2line":  # which ends with 1 where it knows nothing
        sys.exit(f"{cmd[0]}: exit status {code}\n{open('err').read()[-2000:]}")
    seconds, _, kilobytes = map(float, open("figures").read().split())
    return seconds, kilobytes / 1024, open("out").read()


def by_line(text):
    """addr2line -a prints the address, then pairs of function and place."""
    blocks = re.split(r"^0x[0-9a-f]+$", text, flags=re.M)[1:]
    return sum(block.strip().splitlines()[0] != "??" for block in blocks)


def addresses(program):
    """Of the program's own code, each inside its call instruction."""
    ends = [
        (int(start, 16), int(end, 16))
        for start, end in re.findall(
            r"LOAD\s+\S+ (0x\S+) \S+\s+\S+ (0x\S+)", sh("readelf", "-lW", program)
        )
    ]
    top = max(start + size for start, size in ends)
    if a.heapprof:
        rows = json.loads(
            sh(a.heapprof, "traces", "-n", "0", "-g", "addresses", "-f", "json", program + ".pb.gz")
        )["rows"]
        found = {
            int(frame["address"], 16)
            for row in rows
            for frame in row["stack"]
            if "address" in frame
        }
    else:
        found = {
            int(x, 16)
            for line in open(program + ".0001.heap")
            if "] @ 0x" in line
            for x in line.split("@")[1].split()
        }
    return sorted(x - 1 for x in found if min(ends)[0] < x < top)


def cases(program):
    """name, command, what it reads, how to count the named; and the addresses."""
    if os.path.exists(TCMALLOC):
        subprocess.run(
            ["./" + program],
            env=dict(os.environ, LD_PRELOAD=TCMALLOC, HEAPPROFILE=program),
            check=True,
            stderr=subprocess.DEVNULL,
        )
    if a.heapprof:
        sh(
            a.heapprof,
            "record",
            "--exact",
            "--no-symbolize",
            "-o",
            program + ".pb.gz",
            "--",
            "./" + program,
        )
        yield (
            "heapprof symbolize",
            [
                a.heapprof,
                "symbolize",
                "-o",
                "named.pb.gz",
                program + ".pb.gz",
            ],
            "",
            named_by_heapprof,
        )
    feed = "".join(f"{x:#x}\n" for x in addresses(program))
    if shutil.which("addr2line"):
        yield "addr2line", ["addr2line", "-a", "-f", "-i", "-C", "-e", program], feed, by_line
    if shutil.which("eu-addr2line"):
        yield "eu-addr2line", ["eu-addr2line", "-a", "-f", "-i", "-C", "-e", program], feed, by_line
    if shutil.which("google-pprof") and os.path.exists(TCMALLOC):
        yield (
            "google-pprof --text",
            [
                "google-pprof",
                "--text",
                "--lines",
                program,
                program + ".0001.heap",
            ],
            "",
            lambda text: None,
        )


def named_by_heapprof(_):
    info = json.loads(sh(a.heapprof, "info", "-f", "json", "named.pb.gz"))
    return info["locations"] - info["unsymbolized"], info["locations"]


sh("gcc", "-O2", "-o", "meter", os.path.join(here, "meter.c"))
start = time.monotonic()
if not all(os.path.exists(name) for name in ("one", "stripped", "large")):
    build()
    print(f"built in {time.monotonic() - start:.0f} s", file=sys.stderr)
print("| program | debug information, MB | symbolizer | seconds | MB resident | named addresses |")
print("| :--- | ---: | :--- | ---: | ---: | ---: |")
for program, label in (("stripped", "stripped"), ("one", "-g, one unit"), ("large", "-g, large")):
    for name, cmd, feed, named in cases(program):
        runs = [timed(cmd, feed)]
        while runs[-1] and len(runs) <= a.runs:
            runs.append(timed(cmd, feed))
        size = f"{debug_bytes(program)[0] / 1e6:.0f}"
        if not runs[-1]:
            print(f"| {label} | {size} | {name} | over {a.limit} | – | – |", flush=True)
            continue
        counted = runs[1:] or runs
        seconds, memory = (statistics.median(r[i] for r in counted) for i in (0, 1))
        count = named(runs[-1][2])
        count = (
            "{:,} of {:,}".format(
                *(count if isinstance(count, tuple) else (count, feed.count("\n")))
            )
            if count is not None
            else "–"
        )
        print(f"| {label} | {size} | {name} | {seconds:.2f} | {memory:.0f} | {count} |", flush=True)
