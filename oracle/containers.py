#!/usr/bin/env python3
"""Records and attaches to programs in containers of other libcs, from hosts of other libcs.

usage: oracle/containers.py LIBCS HEAPPROF [--hosts NAME,...] [--markdown FILE]

LIBCS is a folder that oracle/fetch-libcs.sh has made. Needs root, gcc and, for musl, musl-gcc.
Each host is a root folder with a libc, in which heapprof runs; each container is another root folder
in it, with a program of its own libc. Prints a table of what was found in each combination, and
fails if a cell is neither right nor has the reason that is expected there.
"""

import argparse
import csv
import io
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent.parent
SOURCES = HERE / "tests/collector/containers"
# The name of a container's libc, and its folder below LIBCS; None is the machine's own libc.
RELEASES = {"2.31": "bullseye", "machine": None, "2.41": "trixie", "2.43": "sid"}
LIBRARIES = ["libc.so.6", "libm.so.6", "libgcc_s.so.1", "libdl.so.2", "libpthread.so.0"]
# The lines that allocate, and the blocks that each of them makes at once.
LINES = {"keep_order": ("hold.c", "14"), "keep_in_library": ("keep.c", "6")}
BLOCKS = 1000
APP = "/app"


def run(*words, **options):
    words = [str(word) for word in words]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, **options)


def must(*words, **options):
    done = run(*words, **options)
    if done.returncode:
        sys.exit(f"{words}: {done.stderr}")
    return done.stdout


def machine_release():
    return os.confstr("CS_GNU_LIBC_VERSION").split()[1]


def folders_of(root):
    """Returns the folders of a release's libraries."""
    return [root / name for name in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")]


def make_root(root, release):
    """Makes a root folder with the libc of a release: its libraries and its loader."""
    for name in ("proc", "tmp", "bin", "dev", "etc", "lib64", "c", "lib/x86_64-linux-gnu"):
        (root / name).mkdir(parents=True, exist_ok=True)
    to = root / "lib/x86_64-linux-gnu"
    origin = release or pathlib.Path("/")
    for library in LIBRARIES:
        found = [f / library for f in folders_of(origin) if (f / library).exists()]
        if found:
            shutil.copy(found[0].resolve(), to / library)
    loader = origin / "loader" if release else pathlib.Path("/lib64/ld-linux-x86-64.so.2")
    shutil.copy(loader.resolve(), to / "ld-linux-x86-64.so.2")
    (root / "lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")


def make_musl_root(root):
    for name in ("proc", "tmp", "lib"):
        (root / name).mkdir(parents=True, exist_ok=True)
    loader = pathlib.Path("/lib/ld-musl-x86_64.so.1").resolve()
    shutil.copy(loader, root / "lib/ld-musl-x86_64.so.1")


def gcc(release):
    """Returns the words that compile for the libc of a release."""
    if not release:
        return ["gcc"]
    of = folders_of(release)
    return ["gcc", f"--sysroot={release}", f"-B{of[1]}", f"-L{of[0]}", f"-L{of[1]}"]


def make_program(root, release, is_musl):
    """Builds the program and its library for the libc of a container."""
    app = root / APP[1:]
    app.mkdir()
    compile_words = ["musl-gcc"] if is_musl else gcc(release)
    compile_words += ["-O1", "-g", "-w", "-Wl,--build-id"]
    library = app / "libkeep.so"
    must(*compile_words, "-shared", "-fPIC", SOURCES / "keep.c", "-o", library)
    link = [f"-L{app}", "-lkeep", f"-Wl,-rpath,{APP}"]
    must(*compile_words, SOURCES / "hold.c", "-o", app / "hold", *link)


def make_other_program(host):
    """Puts other files into the host at the paths of the container's files."""
    app = host / APP[1:]
    app.mkdir()
    for name in ("keep.c", "hold.c"):
        text = (SOURCES / name).read_text().replace("keep_", "other_")
        (host / "tmp" / name).write_text(text)
    flags = ["-O1", "-g", "-w"]
    library = app / "libkeep.so"
    must("gcc", *flags, "-shared", "-fPIC", host / "tmp/keep.c", "-o", library)
    must("gcc", *flags, host / "tmp/hold.c", "-o", app / "hold", f"-L{app}", "-lkeep")
    for name in ("keep.c", "hold.c"):
        (host / "tmp" / name).unlink()


def names(root):
    return sorted(str(path) for path in root.rglob("*"))


class Host:
    """A root folder in which heapprof runs."""

    def __init__(self, root, contain):
        self.root, self.contain = root, contain

    def words(self, *words):
        return [self.contain, "", self.root, *words]

    def heapprof(self, *words):
        return run(*self.words("/bin/heapprof", *words), env={})

    def check(self, profile, expected):
        """Returns what is wrong with the lines of a profile; nothing if all is right."""
        words = ("top", "-g", "lines", "-t", "alloc_objects", "-f", "csv", profile)
        top = self.heapprof(*words)
        rows = list(csv.DictReader(io.StringIO(top.stdout)))
        if "other_" in top.stdout:
            return "names of the host's files"
        for function, (file, line) in LINES.items():
            row = [row for row in rows if row["function"] == function]
            if not row:
                return f"no name {function}"
            if not row[0]["file"].endswith(file) or row[0]["line"] != line:
                return f"{function} has not the line {file}:{line}"
            if row[0]["flat"] != str(expected):
                return f"{function} has {row[0]['flat']} blocks, not {expected}"
        return ""

    def record(self, container):
        inside = f"/c/{container}"
        before = names(self.root / inside[1:])
        words = ["record", "--exact", "-o", "/tmp/p.pb.gz", "--", "/bin/contain", "p", inside]
        done = self.heapprof(*words, f"{APP}/hold", "once")
        try:
            if done.returncode != 3 or done.stdout != "ready\n":
                return f"the program did not run: {done.returncode} {done.stderr.strip()}"
            own = [line for line in done.stderr.splitlines() if not line.startswith("heapprof: ")]
            if own:
                return f"the program printed {own[0]}"
            if names(self.root / inside[1:]) != before:
                return "files were left"
            found = list((self.root / "tmp").glob("p.children/hold.*"))
            if not found:
                reason = [line for line in done.stderr.splitlines() if "not recorded" in line]
                return "; ".join(reason) or "no profile"
            return self.check("/" + str(found[0].relative_to(self.root)), BLOCKS)
        finally:
            shutil.rmtree(self.root / "tmp/p.children", ignore_errors=True)

    def attach(self, container):
        inside = f"/c/{container}"
        before = names(self.root / inside[1:])
        words = self.words("/bin/contain", "pw", inside, f"{APP}/hold")
        pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
        program = subprocess.Popen([str(word) for word in words], text=True, **pipes)
        try:
            pid = program.stderr.readline().strip()
            program.stdout.readline()
            words = self.words("/bin/heapprof", "attach", "--exact", "-o", "/tmp/a.pb.gz", pid)
            words = [str(word) for word in words]
            attach = subprocess.Popen(words, text=True, stderr=subprocess.PIPE, env={})
            said = attach.stderr.readline()
            if "recording every allocation" not in said:
                return said.strip()
            program.stdin.write("\n")
            program.stdin.flush()
            program.stdout.readline()
            wrong = self.check(f"pid:{pid}", BLOCKS)
            self.heapprof("attach", "--stop", pid)
            attach.wait(60)
            wrong = wrong or self.check("/tmp/a.pb.gz", BLOCKS)
            why = self.heapprof("why", pid).stdout
            if not wrong and not any(" kept " in line for line in why.splitlines()):
                wrong = "why does not name the variable kept"
            if not wrong and names(self.root / inside[1:]) != before:
                wrong = "files were left"
            return wrong
        finally:
            if pid and program.poll() is None:
                os.kill(int(pid), signal.SIGKILL)
            program.wait(60)


def is_expected(container, wrong):
    """Whether a cell that is not right has a reason that is expected."""
    # A build for this machine does not start with an older libc than its own.
    return "version `GLIBC_" in wrong or (container == "musl" and "glibc" in wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("libcs", type=pathlib.Path)
    parser.add_argument("heapprof", type=pathlib.Path)
    parser.add_argument("--hosts", default=",".join(RELEASES))
    parser.add_argument("--markdown", type=pathlib.Path)
    options = parser.parse_args()
    if os.geteuid():
        sys.exit("oracle/containers.py needs root")
    containers = list(RELEASES) + (["musl"] if shutil.which("musl-gcc") else [])
    shown = {"machine": f"{machine_release()} (this machine)", "musl": "musl"}
    title = ["host", "container", "`record`", "`attach`, `pid:`, `why`"]
    rows, is_wrong = [], False
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        contain = folder / "contain"
        # It runs on each host, so it is built for the oldest libc.
        oldest = options.libcs / RELEASES["2.31"]
        must(*gcc(oldest), "-O1", "-w", SOURCES / "contain.c", "-o", contain)
        for name in options.hosts.split(","):
            release = RELEASES[name] and options.libcs / RELEASES[name]
            root = folder / name
            make_root(root, release)
            shutil.copy(options.heapprof, root / "bin/heapprof")
            shutil.copy(contain, root / "bin/contain")
            make_other_program(root)
            for container in containers:
                inside = root / "c" / container
                of = RELEASES.get(container) and options.libcs / RELEASES[container]
                if container == "musl":
                    make_musl_root(inside)
                else:
                    make_root(inside, of)
                make_program(inside, of, container == "musl")
            host = Host(root, contain)
            started = host.heapprof("--version")
            refused = started.returncode and started.stderr.splitlines()[0]
            for container in containers:
                cells = []
                for what in (host.record, host.attach):
                    wrong = refused or what(container)
                    cells.append(wrong or "right")
                    is_wrong |= bool(wrong) and not is_expected(container, wrong)
                rows.append([shown.get(name, name), shown.get(container, container), *cells])
                print(*rows[-1], sep="\t", flush=True)
    table = [title, [":---"] * len(title), *rows]
    text = "".join("| " + " | ".join(cells) + " |\n" for cells in table)
    if options.markdown:
        options.markdown.write_text(text)
    sys.exit(1 if is_wrong else 0)


if __name__ == "__main__":
    main()
