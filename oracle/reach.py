"""Records a program beside each libc, and prints a table: the same output and exit code as bare,
and the numbers that the program knows.

usage: reach.py HEAPPROF FOLDER
FOLDER has what oracle/fetch-reach.sh makes. A cell is `yes`, or says what is wrong.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BLOCKS, SIZE, THREADS, ROUNDS = 1000, 1000, 4, 100
PLUGIN = """
#include <stdlib.h>
void *plugin_block(size_t size) {
    void *volatile block = malloc(size);
    return block;
}
"""
PYTHON = "def hold():\n    return [bytearray(1024) for _ in range(4096)]\nkept = hold()\nprint(len(kept))\n"
PERL = "sub hold { my @all = map { 'x' x 1000 } 1 .. 1000; return \\@all } our $kept = hold(); print scalar(@$kept), qq(\\n)"
TIMEOUT = 120


class Wrong(Exception):
    """A cell of the table is not as it should be. The text says why."""


def check(is_so, why):
    if not is_so:
        raise Wrong(why)


class Libc:
    """A libc, and how programs are built and run with it."""

    def __init__(self, name, compiler, loader, libraries):
        self.name = name
        self.compiler = compiler
        self.loader = loader
        self.libraries = libraries
        self.python = None
        self.perl = None

    def is_musl(self):
        return self.name.startswith("musl")

    def build(self, folder):
        link = [f"-Wl,--dynamic-linker,{self.loader}", *(f"-Wl,-rpath,{one}" for one in self.libraries)]
        options = ["-O1", "-g", "-pthread", *link]
        program, plugin = folder / "reach", folder / "plugin.so"
        source = folder / "plugin.c"
        source.write_text(PLUGIN)
        run([*self.compiler, *options, str(HERE / "reach.c"), "-o", str(program), "-ldl"])
        run([*self.compiler, "-O1", "-g", "-shared", "-fPIC", str(source), "-o", str(plugin)])
        return program, plugin


def run(command, folder=None, expected=0):
    output = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    if expected is not None:
        check(output.returncode == expected, f"{command[0]}: {output.returncode} {output.stderr[-300:]}")
    return output


class Trial:
    """One program, built for one libc."""

    def __init__(self, heapprof, libc, folder):
        self.heapprof, self.libc, self.folder = heapprof, libc, folder
        self.program, self.plugin = libc.build(folder)

    def record(self, options, command):
        """Runs a command bare and recorded. Returns the path of the profile."""
        bare = run(command, self.folder, None)
        profile = pathlib.Path(tempfile.mkdtemp(dir=self.folder)) / "p.pb.gz"
        words = [self.heapprof, "record", *options, "-o", str(profile), "--", *command]
        recorded = run(words, self.folder, None)
        code = bare.returncode if bare.returncode >= 0 else 128 - bare.returncode
        check(recorded.returncode == code, f"exit code {recorded.returncode}, bare {code}")
        check(recorded.stdout == bare.stdout, f"output {recorded.stdout!r}, bare {bare.stdout!r}")
        errors = [line for line in recorded.stderr.splitlines() if not line.startswith("heapprof: ")]
        check(errors == bare.stderr.splitlines(), f"errors {errors}")
        return profile

    def rows(self, profile, kind="alloc_objects"):
        words = [self.heapprof, "top", "-n", "0", "--all-code", "-t", kind, "-f", "json", str(profile)]
        rows = json.loads(run(words, self.folder).stdout)["rows"]
        return {row["function"]: row["cum"] for row in rows}

    def mode(self, *words):
        return [str(self.program), *words]

    def expect(self, profile, function, expected, kind="alloc_objects"):
        found = self.rows(profile, kind).get(function, 0)
        check(found == expected, f"{function}: {found}, not {expected}")

    def exact(self):
        profile = self.record(["--exact"], self.mode("plain"))
        self.expect(profile, "held_block", BLOCKS)
        self.expect(profile, "held_block", BLOCKS * SIZE, "inuse_space")

    def sampled(self):
        profile = self.record(["--period", "4KiB"], self.mode("plain"))
        found = self.rows(profile, "inuse_space").get("held_block", 0)
        check(BLOCKS * SIZE / 2 < found < BLOCKS * SIZE * 2, f"held_block: {found}")

    def children(self):
        # A shell of the machine's libc starts the program; the program's child is one more.
        profile = self.record(["--exact"], ["sh", "-c", f"{self.program} fork; exit $?"])
        others = profile.parent / "p.children"
        found = list(others.glob("*.pb.gz")) if others.is_dir() else []
        found += [one for one in profile.parent.glob("p.*.pb.gz") if one != profile]
        held = sorted(self.rows(one).get("held_block", 0) for one in found)
        check(held == [BLOCKS, 2 * BLOCKS], f"children hold {held}")

    def dlopen(self):
        profile = self.record(["--exact"], self.mode("dlopen", str(self.plugin)))
        self.expect(profile, "plugin_block", 10 * ROUNDS)

    def threads(self):
        profile = self.record(["--exact"], self.mode("threads"))
        self.expect(profile, "held_block", (1 + THREADS) * BLOCKS)

    def fork(self):
        profile = self.record(["--exact"], self.mode("fork"))
        self.expect(profile, "held_block", BLOCKS)

    def killed(self):
        for options in [["--exact"], []]:
            profile = self.record(options, self.mode("kill"))
            if options:
                self.expect(profile, "held_block", BLOCKS * SIZE, "inuse_space")

    def waiting(self, command, look):
        """Starts a program that waits for lines, and calls `look` with it after each step."""
        process = subprocess.Popen(
            command, cwd=self.folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            check(process.stdout.readline() == "ready\n", "it did not start")
            look(process, "ready")
            process.stdin.write("\n")
            process.stdin.flush()
            check(process.stdout.readline() == "held\n", "it did not go on")
            look(process, "held")
            out, err = process.communicate("\n", timeout=TIMEOUT)
            check((process.returncode, out) == (3, f"wait: held {BLOCKS}\n"), f"{process.returncode} {out}{err}")
        finally:
            process.kill()
            process.wait()

    def pid(self):
        def look(process, step):
            if step == "held":
                child = f"/proc/{process.pid}/task/{process.pid}/children"
                pid = pathlib.Path(child).read_text().split()[0]
                self.expect(f"pid:{pid}", "held_block", BLOCKS * SIZE, "inuse_space")

        words = ["record", "--exact", "-o", "w.pb.gz", "--"]
        self.waiting([self.heapprof, *words, *self.mode("wait")], look)

    def attach(self):
        profile = self.folder / "attached.pb.gz"

        def look(process, step):
            if step == "ready":
                words = ["attach", str(process.pid), "--exact", "-o", str(profile)]
                attached.append(subprocess.Popen(
                    [self.heapprof, *words], cwd=self.folder, text=True, stderr=subprocess.PIPE,
                ))  # fmt: skip
                line = attached[0].stderr.readline()
                check("recording" in line, line.strip().removeprefix("heapprof: "))
            else:
                attached[0].send_signal(2)
                attached[0].communicate(timeout=TIMEOUT)

        attached = []
        self.waiting(self.mode("wait"), look)
        self.expect(profile, "held_block", BLOCKS * SIZE, "inuse_space")

    def python(self):
        check(self.libc.python, "none is here")
        script = self.folder / "app.py"
        script.write_text(PYTHON)
        profile = self.record(["--exact"], [*self.libc.python, str(script)])
        found = self.rows(profile, "alloc_space").get("hold", 0)
        check(found >= 4096 * 1024, f"hold: {found}")

    def perl(self):
        check(self.libc.perl, "none is here")
        profile = self.record(["--exact"], [*self.libc.perl, "-e", PERL])
        found = {name: value for name, value in self.rows(profile, "alloc_space").items() if "hold" in name}
        # Some of the strings are made where others were freed.
        check(max(found.values(), default=0) >= 10**6 / 2, f"hold: {found}")


COLUMNS = {
    "exact": Trial.exact, "sampled": Trial.sampled, "children": Trial.children,
    "dlopen": Trial.dlopen, "threads": Trial.threads, "fork": Trial.fork, "kill -9": Trial.killed,
    "pid:": Trial.pid, "attach, leave": Trial.attach, "Python": Trial.python, "Perl": Trial.perl,
}  # fmt: skip


def libcs(folder):
    """Returns the libcs that are in a folder, with the compilers for them."""
    zig = ["python3", "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]
    interpreter = pathlib.Path("/lib64/ld-linux-x86-64.so.2")
    glibcs = [("this machine's", None)] + [(one, folder / "libcs" / one) for one in ("bullseye", "trixie", "sid")]
    for name, root in glibcs:
        if root is not None and not (root / "loader").exists():
            continue
        places = [] if root is None else [root / "lib/x86_64-linux-gnu", root / "usr/lib/x86_64-linux-gnu"]
        libraries = [str(place) for place in places if (place / "libc.so.6").exists()]
        loader = interpreter if root is None else root / "lib64" / interpreter.name
        version = glibc_version(loader, libraries)
        gcc = ["gcc"]
        if root is not None:
            gcc += [f"--sysroot={root}", f"-B{places[1]}", *(f"-L{place}" for place in places)]
        for compiler, made in [(gcc, "gcc"), (zig, "zig, for 2.17")]:
            libc = Libc(f"glibc {version}, {made}", compiler, loader, libraries)
            # libcrypt is in the perls' roots.
            more = [] if root is None else [str(folder / "perls" / root.name / "lib/x86_64-linux-gnu")]
            path = ":".join([*libraries, *more])
            by_loader = [str(loader), "--library-path"]
            python = folder / "python-glibc"
            if python.exists():
                libc.python = [*by_loader, f"{path}:{python}/lib", f"{python}/bin/python3"]
            perl = None if root is None else folder / "perls" / root.name
            if root is None:
                libc.perl = ["perl"]
            elif perl.exists():
                libc.perl = perl_of(perl)
            yield libc
    musls = [("musl 1.2.3", pathlib.Path("/lib/ld-musl-x86_64.so.1")),
             ("musl 1.2.6", folder / "musl/usr/lib/ld-musl-x86_64.so.1")]  # fmt: skip
    for name, loader in musls:
        if not loader.exists():
            continue
        libc = Libc(name, ["musl-gcc", "-Wl,--eh-frame-hdr"], loader, [])
        python, perl = folder / "python-musl", folder / "perl-musl/bin/perl"
        if perl.exists():
            libc.perl = [str(perl)] if name == "musl 1.2.3" else [str(loader), str(perl)]
        if name == "musl 1.2.6" and python.exists():
            libc.python = ["env", f"LD_LIBRARY_PATH={python}/lib", f"PYTHONHOME={python}",
                           str(loader), f"{python}/bin/python3"]  # fmt: skip
        yield libc


def perl_of(root):
    """Returns the command of a perl that oracle/fetch-perls.sh has unpacked."""
    libraries = [root / "lib/x86_64-linux-gnu", root / "usr/lib/x86_64-linux-gnu"]
    loader = next(root.glob("lib*/ld-linux-x86-64.so.2"))
    path = ":".join(str(place) for place in libraries)
    folders = [*root.glob("usr/share/perl/5.*"), *root.glob("usr/lib/x86_64-linux-gnu/perl*/5.*")]
    return [str(loader), "--library-path", path, str(root / "usr/bin/perl"), *(f"-I{one}" for one in folders)]


def glibc_version(loader, libraries):
    libc = next((pathlib.Path(one) / "libc.so.6" for one in libraries), None)
    text = run([str(libc or "/lib/x86_64-linux-gnu/libc.so.6")] if libc is None else [str(loader), str(libc)]).stdout
    return text.splitlines()[0].rsplit(" ", 1)[-1].rstrip(".")


def main():
    heapprof, folder = os.path.realpath(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    failed = 0
    print("| libc |", " | ".join(COLUMNS), "|")
    print("| :--- |" + " :--- |" * len(COLUMNS))
    reasons = []
    for libc in libcs(folder):
        with tempfile.TemporaryDirectory() as work:
            trial = Trial(heapprof, libc, pathlib.Path(work))
            cells = []
            for name, column in COLUMNS.items():
                try:
                    column(trial)
                    cells.append("yes")
                except (Wrong, subprocess.TimeoutExpired, StopIteration) as wrong:
                    cells.append("no")
                    reasons.append(f"* {libc.name}, {name}: {wrong}")
                    failed += 1
            print(f"| {libc.name} |", " | ".join(cells), "|", flush=True)
    print("\n".join(["", *reasons]))
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
