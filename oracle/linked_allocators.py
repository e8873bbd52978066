"""Records programs with an allocator inside, and compares each count with the program's own.

usage: linked_allocators.py HEAPPROF FOLDER [--python PYTHON] [--only REGEX]
The programs are built in FOLDER. Each row of the table was given its verdict before the first run:
`equal` for the same blocks and bytes, allocated and in use, or the words by which record says that
the blocks are missing. PYTHON has polars, pyarrow and duckdb. Rows whose tools or sources are
missing are left out, with the reason. Rust's crates come from cargo.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent / "linked_allocators"
TYPES = ["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"]
TIMEOUT = 600
DEBUG_FOLDER = pathlib.Path("/usr/lib/debug/.build-id")

CRATES = {
    "jemalloc": ('tikv-jemallocator = "0.6"', "tikv_jemallocator::Jemalloc"),
    "mimalloc": ('mimalloc = "0.1"', "mimalloc::MiMalloc"),
    "rpmalloc": ('rpmalloc = "0.2"', "rpmalloc::RpMalloc"),
    "snmalloc": ('snmalloc-rs = "0.3"', "snmalloc_rs::SnMalloc"),
}
PYTHON_PROGRAMS = {
    "polars": """
import os, polars
frame = polars.DataFrame({"a": range(1_000_000), "b": [str(i) for i in range(1_000_000)]})
found = frame.group_by((polars.col("a") % 1000)).agg(polars.col("b").count())
print(len(found), frame.estimated_size(), flush=True)
os._exit(3)
""",
    "pyarrow": """
import os, pyarrow
kept = [pyarrow.array(range(1000 + i)) for i in range(300)]
for i in range(0, 300, 2): kept[i] = None
print(pyarrow.total_allocated_bytes(), flush=True)
os._exit(3)
""",
    "duckdb": """
import duckdb, os
there = duckdb.connect()
there.execute("create table t as select range a, range::varchar b from range(500000)")
print(there.execute("select count(distinct b) from t").fetchall(), flush=True)
os._exit(3)
""",
}


class Missing(Exception):
    """What a row needs is not there."""


class Wrong(Exception):
    """A row is not as its verdict says."""


def run(command, folder, **more):
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, **more
    )
    return done


def build(command, folder):
    done = run(command, folder)
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or ["it does not build"])[-1][:100])


def rust(folder, crate, profile=""):
    dependency, allocator = CRATES[crate]
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "work"\nversion = "0.1.0"\nedition = "2024"\n'
        f"[dependencies]\n{dependency}\n[profile.release]\ndebug = 1\n{profile}\n[workspace]\n"
    )
    inner = f"static INNER: {allocator} = {allocator};\n"
    (folder / "src/main.rs").write_text((HERE / "work.rs").read_text() + inner)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CARGO_")}
    done = run(["cargo", "build", "--release", "-q"], folder, env=environment)
    if done.returncode:
        raise Missing((done.stderr.strip().splitlines() or ["it does not build"])[-1][:100])
    return folder / "target/release/work"


def gcc(folder, options, source="work.c", compiler="gcc"):
    build([compiler, "-g", "-w", *options[0], str(HERE / source), "-o", "work", *options[1]], folder)
    return folder / "work"


def library(name):
    folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib"]
    found = [pathlib.Path(folder) / name for folder in folders]
    found = [file for file in found if file.exists()]
    if not found:
        raise Missing(f"there is no {name}")
    return str(found[0])


JEMALLOC_NEEDS = ["-lm", "-pthread", "-ldl", "-lstdc++"]


def mimalloc(folder, version, options=()):
    """Makes mimalloc's object file from the sources that come with Rust's crate."""
    home = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    found = sorted(home.glob(f"registry/src/*/libmimalloc-sys-*/c_src/mimalloc/{version}"))
    if not found:
        raise Missing("cargo has not fetched libmimalloc-sys")
    source = found[-1]
    flags = ["-O2", "-g", "-w", "-DNDEBUG", f"-I{source}/include", *options]
    build(["gcc", "-c", *flags, f"{source}/src/static.c", "-o", "allocator.o"], folder)
    return "allocator.o"


def c_mimalloc(folder, version, options=(), more=()):
    made = mimalloc(folder, version, options)
    prefix = "" if "-DMI_MALLOC_OVERRIDE" in options else "mi_"
    return gcc(folder, ([f"-DPREFIX={prefix}", "-O2", *more], [made, "-pthread"]))


def c_jemalloc(folder, options):
    made = library("libjemalloc.a")
    flags = ["-DPREFIX=", "-DEXTENDED", "-fno-builtin", *options]
    return gcc(folder, (flags, [made, *JEMALLOC_NEEDS]))


def stripped(program, folder, keeps_names):
    """Strips a program. Its names go into the folder of files for debuggers."""
    if keeps_names:
        notes = run(["readelf", "-n", str(program)], folder).stdout
        build_id = re.search("Build ID: ([0-9a-f]+)", notes)
        if not build_id or not os.access("/usr/lib/debug", os.W_OK):
            raise Missing("/usr/lib/debug can't be written")
        file = DEBUG_FOLDER / build_id[1][:2] / f"{build_id[1][2:]}.debug"
        file.parent.mkdir(parents=True, exist_ok=True)
        build(["objcopy", "--only-keep-debug", str(program), str(file)], folder)
        CLEANUP.append(file)
    build(["strip", str(program)], folder)
    return program


CLEANUP = []
HIDDEN = "has jemalloc inside, but no names of its functions; its blocks are not recorded"
HIDDEN_MIMALLOC = "has mimalloc inside, but no names of its functions; its blocks are not recorded"
STATIC = "statically linked, so nothing can be preloaded into it"

# Each row: its name, how it is built, and its verdict, which was written before the first run.
ROWS = [
    ("Rust, jemalloc", lambda f: rust(f, "jemalloc"), "equal"),
    ("Rust, mimalloc", lambda f: rust(f, "mimalloc"), "equal"),
    ("Rust, rpmalloc", lambda f: rust(f, "rpmalloc"), "equal"),
    ("Rust, snmalloc", lambda f: rust(f, "snmalloc"), "equal"),
    ("Rust, jemalloc, LTO", lambda f: rust(f, "jemalloc", 'lto = "fat"'), "equal"),
    (
        "Rust, jemalloc, stripped",
        lambda f: stripped(rust(f, "jemalloc"), f, False),
        HIDDEN,
    ),
    (
        "Rust, mimalloc, stripped, with names apart",
        lambda f: stripped(rust(f, "mimalloc"), f, True),
        "equal",
    ),
    ("C, libjemalloc.a, -O0", lambda f: c_jemalloc(f, ["-O0"]), "equal"),
    ("C, libjemalloc.a, -O2", lambda f: c_jemalloc(f, ["-O2"]), "equal"),
    ("C, libjemalloc.a, -O3, not PIE", lambda f: c_jemalloc(f, ["-O3", "-no-pie"]), "equal"),
    ("C, libjemalloc.a, -flto", lambda f: c_jemalloc(f, ["-O2", "-flto"]), "equal"),
    (
        "C, libjemalloc.a, stripped, with names apart",
        lambda f: stripped(c_jemalloc(f, ["-O1"]), f, True),
        "equal",
    ),
    (
        "C, libjemalloc.a, static",
        lambda f: c_jemalloc(f, ["-O2", "-static"]),
        STATIC,
    ),
    (
        "C++, libjemalloc.a",
        lambda f: gcc(
            f, (["-O2"], [library("libjemalloc.a"), *JEMALLOC_NEEDS]), "work.cc", "g++"
        ),
        "equal",
    ),
    (
        "C++, libtcmalloc_minimal.a",
        lambda f: gcc(
            f,
            (["-O2", "-fno-builtin"], [library("libtcmalloc_minimal.a"), "-pthread"]),
            "work.cc",
            "g++",
        ),
        "equal",
    ),
    ("C, mimalloc 2", lambda f: c_mimalloc(f, "v2"), "equal"),
    ("C, mimalloc 3", lambda f: c_mimalloc(f, "v3"), "equal"),
    ("C, mimalloc 3, not PIE", lambda f: c_mimalloc(f, "v3", (), ["-no-pie"]), "equal"),
    (
        "C, mimalloc 2 in malloc's place",
        lambda f: c_mimalloc(f, "v2", ["-DMI_MALLOC_OVERRIDE"], ["-fno-builtin"]),
        "equal",
    ),
    (
        "C, mimalloc 2, stripped",
        lambda f: stripped(c_mimalloc(f, "v2"), f, False),
        HIDDEN_MIMALLOC,
    ),
    (
        "C, a shared jemalloc",
        lambda f: gcc(
            f,
            (
                ["-DPREFIX=", "-DEXTENDED", "-fno-builtin", "-O2"],
                [library("libjemalloc.so.2"), "-pthread"],
            ),
        ),
        "equal",
    ),
]


def row_of(heapprof, profile, sample_type, folder):
    """Returns what the function `work` and what it calls have in a profile."""
    words = ["top", "--all-code", "--sort", "cum", "-n", "0", "-t", sample_type, "-f", "json"]
    done = run([heapprof, *words, profile], folder)
    rows = json.loads(done.stdout)["rows"]
    is_work = re.compile(r"^(work::)?work(\(\))?(\(void\*\))?$").match
    return max([row["cum"] for row in rows if is_work(row["function"])], default=0)


def record(heapprof, program, folder):
    bare = run([str(program)], folder)
    if bare.returncode != 3:
        raise Missing(f"it ends with {bare.returncode} when it is not recorded: {bare.stderr[:80]}")
    words = ["record", "--exact", "--follow-children", "no", "-o", "p.pb.gz", "--"]
    done = run([heapprof, *words, str(program)], folder)
    if (done.returncode, done.stdout) != (3, bare.stdout):
        raise Wrong(f"code {done.returncode}, output {done.stdout!r}, bare {bare.stdout!r}")
    return done


def check(heapprof, program, verdict, folder):
    done = record(heapprof, program, folder)
    if verdict != "equal":
        if verdict not in done.stderr:
            raise Wrong(f"record does not say so: {done.stderr.strip()}")
        return "said"
    own = [int(word) for word in done.stdout.split()]
    found = [row_of(heapprof, "p.pb.gz", of, folder) for of in TYPES]
    if found != own:
        raise Wrong(f"heapprof {found}, the program {own}; {done.stderr.strip()}")
    if "not recorded" in done.stderr or "noticed only" in done.stderr:
        raise Wrong(done.stderr.strip())
    return f"equal: {own[0]:,} blocks, {own[1]:,} B; {own[2]:,} kept, {own[3]:,} B"


def check_python(heapprof, python, name, folder):
    """The blocks of a module of Python are those of its allocator, and the program is the same.
    pyarrow has three allocators for the same requests."""
    (folder / "program.py").write_text(PYTHON_PROGRAMS[name])
    pools = ["mimalloc", "jemalloc", "system"] if name == "pyarrow" else [""]
    totals = []
    for pool in pools:
        environment = dict(os.environ, PYTHONHASHSEED="0")
        if pool:
            environment["ARROW_DEFAULT_MEMORY_POOL"] = pool
        bare = run([python, "program.py"], folder, env=environment)
        if bare.returncode != 3:
            raise Missing(f"the Python has no {name}")
        words = [heapprof, "record", "--exact", "-o", "p.pb.gz", "--", python, "program.py"]
        done = run(words, folder, env=environment)
        if (done.returncode, done.stdout) != (3, bare.stdout):
            raise Wrong(f"code {done.returncode}, output {done.stdout!r}, bare {bare.stdout!r}")
        if "also recorded: " not in done.stderr or "are not recorded" in done.stderr:
            raise Wrong(done.stderr.strip())
        words = ["top", "--all-code", "-t", "alloc_objects", "-f", "json", "p.pb.gz"]
        totals.append(json.loads(run([heapprof, *words], folder).stdout)["total"])
    if len(totals) == 3 and max(totals) - min(totals) > 20:
        raise Wrong(f"{name} has {totals} allocations with its pools {pools}")
    return f"hooked, same output; allocations {', '.join(f'{one:,}' for one in totals)}"


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("heapprof")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--python")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    heapprof = str(pathlib.Path(args.heapprof).resolve())
    rows = [(name, verdict, lambda f, b=b, v=verdict: check(heapprof, b(f), v, f))
            for name, b, verdict in ROWS]
    if args.python:
        python = os.path.abspath(args.python)
        rows += [(f"Python, {name}", "hooked", lambda f, n=name: check_python(heapprof, python, n, f))
                 for name in PYTHON_PROGRAMS]
    failed = 0
    for name, verdict, do in rows:
        if not re.search(args.only, name):
            continue
        folder = args.folder.resolve() / re.sub("[^a-z0-9]+", "-", name.lower())
        folder.mkdir(parents=True, exist_ok=True)
        try:
            said = do(folder)
        except Missing as error:
            said = f"left out: {error}"
        except (Wrong, subprocess.TimeoutExpired) as error:
            said = f"WRONG: {error}"
            failed += 1
        finally:
            while CLEANUP:
                CLEANUP.pop().unlink(missing_ok=True)
        print(f"{name} | {verdict} | {said}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
