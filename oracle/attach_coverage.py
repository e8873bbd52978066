#!/usr/bin/env python3
"""Counts the calls of malloc's family that a piece of work makes, once in a program that was started
under heapprof record, and once in one that was attached to, and compares both.

usage: oracle/attach_coverage.py HEAPPROF
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HEAPPROF = str(pathlib.Path(sys.argv[1]).resolve())

PYTHON = r"""
import hashlib, json, re, sqlite3, ssl, sys, threading, zlib
database = sqlite3.connect(":memory:")
database.execute("create table t (a, b)")
def work():
    for n in range(300):
        json.loads(json.dumps({"n": n, "all": list(range(n)), "text": "x" * n}))
        zlib.decompress(zlib.compress(b"%d " % n * 100))
        database.execute("insert into t values (?, ?)", (n, hashlib.sha256(b"%d" % n).hexdigest()))
        open("/dev/null").read()
    database.execute("delete from t")
    ssl.create_default_context()
for line in sys.stdin:
    work()
    thread = threading.Thread(target=work) if line == "thread\n" else None
    print("done", flush=True)
"""

PERL = r"""
$| = 1;
while (my $line = <STDIN>) {
    my %all;
    for my $n (1 .. 2000) {
        my $text = join ",", map { $_ * $n } 1 .. 20;
        $all{$n} = { text => $text, list => [ split /,/, $text ] };
    }
    print "done\n";
}
"""

C = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *(*volatile allocate)(size_t) = malloc;
static void (*volatile release)(void *) = free;
int main(void) {
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        for (int i = 0; i < 1000; i++) {
            void *a = malloc(i + 1), *b = allocate(i + 2), *c = calloc(3, i + 1), *d = strdup(line);
            a = realloc(a, 2 * i + 8);
            void *e = 0;
            if (posix_memalign(&e, 64, 100)) return 1;
            char *f = 0;
            if (asprintf(&f, "%d %s", i, line) < 0) return 1;
            free(a); release(b); free(c); release(d); free(e); free(f);
        }
        FILE *file = fopen("/dev/null", "r");
        fclose(file);
        puts("done");
        fflush(stdout);
    }
}
"""


def total(pid):
    """How many allocations a process has made since it is recorded."""
    done = subprocess.run([HEAPPROF, "top", "-n", "1", "-t", "alloc_objects", f"pid:{pid}"],
                          capture_output=True, text=True, timeout=60)
    found = re.search(r"total (\d+)", done.stdout)
    if not found:
        raise SystemExit(done.stdout + done.stderr)
    return int(found[1])


def counts(pid, work):
    """The calls of the work, three times."""
    found = []
    for _ in range(3):
        before = total(pid)
        work()
        found.append(total(pid) - before)
    return found


def child_of(pid):
    for _ in range(200):
        found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split()
        if found:
            return int(found[0])
        time.sleep(0.05)
    raise SystemExit("record starts nothing")


class Lines:
    """A program that works whenever it gets a line."""

    def __init__(self, *command):
        self.command = list(command)

    def start(self, before):
        self.process = subprocess.Popen(before + self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        pid = child_of(self.process.pid) if before else self.process.pid
        for _ in range(3):
            self.work()
        return pid

    def work(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def stop(self):
        self.process.stdin.close()
        self.process.wait(30)


class Redis:
    port = "7395"

    def start(self, before):
        # Its clock ticks once a second at least, and allocates for that.
        self.process = subprocess.Popen(
            before + ["redis-server", "--port", self.port, "--save", "", "--hz", "1"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        pid = child_of(self.process.pid) if before else self.process.pid
        time.sleep(1)
        self.client = subprocess.Popen(["redis-cli", "-p", self.port], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            self.work()
        return pid

    def work(self):
        lines = [f"set key{n} {'v' * (n % 300)}" for n in range(2000)]
        lines += [f"lpush list {n}" for n in range(500)] + ["del list"]
        for line in lines:
            self.client.stdin.write(line + "\n")
            self.client.stdin.flush()
            self.client.stdout.readline()

    def stop(self):
        self.client.kill()
        subprocess.run(["redis-cli", "-p", self.port, "shutdown", "nosave"], capture_output=True)
        self.process.wait(30)


def main():
    folder = tempfile.mkdtemp()
    source = folder + "/work.c"
    pathlib.Path(source).write_text("#define _GNU_SOURCE\n" + C)
    programs = {"python": Lines(sys.executable, "-c", PYTHON), "perl": Lines("perl", "-e", PERL)}
    for name, words in [("C, non-PIE", ["-no-pie", "-fno-pie"]), ("C, PIE", ["-pie", "-fPIE"]),
                        ("C, -fno-plt", ["-pie", "-fPIE", "-fno-plt", "-Wl,-z,now"])]:
        built = f"{folder}/{len(programs)}"
        subprocess.run(["cc", "-O1", "-fno-builtin", *words, "-o", built, source], check=True)
        programs[name] = Lines(built)
    for name, library in [("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4"),
                          ("mimalloc", "libmimalloc.so.2")]:
        path = f"/usr/lib/x86_64-linux-gnu/{library}"
        if os.path.exists(path):
            built = f"{folder}/{name}"
            subprocess.run(["cc", "-O1", "-fno-builtin", "-no-pie", "-fno-pie", "-o", built, source, path],
                           check=True)
            programs["C, " + name] = Lines(built)
    pointers = str(pathlib.Path(__file__).resolve().parent / "attach_pointers.cc")
    for name, words in [("expat", ["-DEXPAT", "-lexpat"]), ("zlib", ["-DZLIB", "-lz"]),
                        ("SQLite", ["-DSQLITE", "-lsqlite3"]), ("virtual functions", [])]:
        built = f"{folder}/{name.split()[0]}"
        done = subprocess.run(["c++", "-O1", "-fno-builtin", "-o", built, pointers, *words],
                              capture_output=True, text=True)
        if done.returncode:
            print(f"copied pointers, {name}: left out: {done.stderr.splitlines()[0]}")
        else:
            programs["copied pointers, " + name] = Lines(built)
    if shutil.which("redis-server"):
        programs["redis"] = Redis()
    failed = 0
    for name, program in programs.items():
        os.chdir(folder)
        pid = program.start([HEAPPROF, "record", "--exact", "-o", folder + "/r.pb.gz", "--"])
        recorded = counts(pid, program.work)
        program.stop()
        pid = program.start([])
        attach = subprocess.Popen([HEAPPROF, "attach", str(pid), "--exact", "-o", folder + "/a.pb.gz"],
                                  stderr=subprocess.PIPE, text=True)
        while "recording every" not in (line := attach.stderr.readline()):
            if not line:
                raise SystemExit(f"{name}: attach has ended")
        attached = counts(pid, program.work)
        attach.terminate()
        said = attach.stderr.read()
        attach.wait(30)
        program.stop()
        if "not recorded" in said or "does not see" in said:
            print(f"{name}: {said}")
            failed += 1
        differs = sorted(recorded)[1] - sorted(attached)[1]
        failed += abs(differs) > 0
        print(f"{name}: recorded {recorded}, attached {attached}, difference {differs}", flush=True)
    sys.exit(1 if failed else 0)


main()
