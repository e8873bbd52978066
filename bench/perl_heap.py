#!/usr/bin/env python3
"""perl-heap on large programs: how long the program is held beside a memcpy of as many bytes, how long
all of it takes, and its memory; and a file of Devel::MAT beside pmat-counts, which only loads it.
usage: bench/perl_heap.py HEAPPROF [ROUNDS=3]   (needs perl, gcc and Devel::MAT)"""
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
COUNTS = [1_250_000, 2_500_000, 5_000_000, 10_000_000]
# Each element is a reference, an array, a number and a text.
PROGRAM = '$| = 1; our %%DATA; $DATA{"k$_"} = [$_, "v$_"] for 1 .. %d; print "ready\\n"; sleep 1000;'
DUMPED = """
use Devel::MAT::Dumper (); package My::Session; sub new { my ($c, %%a) = @_; bless {%%a}, $c } package main;
our (%%CACHE, @LOG);
$CACHE{"user$_"} = My::Session->new(id => $_, name => "n" x 50, roles => [qw(a b c)]) for 1 .. %d;
push @LOG, { msg => "m" x 200, t => $_ } for 1 .. 2000;
for (1 .. 300) { my $x = My::Session->new(leak => "L" x 1000); $x->{self} = $x }
Devel::MAT::Dumper::dump($ARGV[0]);
"""


def run(words, out=subprocess.DEVNULL):
    """Seconds, seconds of processor time, MiB."""
    began = time.monotonic()
    child = subprocess.Popen(words, stdout=out)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{words}: status {status}")
    return time.monotonic() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def of_process(heapprof, pid, folder):
    with open(folder / "out", "w+") as out:
        took, _, memory = run([heapprof, "perl-heap", f"pid:{pid}", "-n", "1", "-o", folder / "h.pb.gz"], out)
        out.seek(0)
        text = out.read()
    values = int(re.search(r"(\d+) values", text).group(1))
    held, copied, unit = re.search(r"for ([\d.]+) ms while ([\d.]+)(\wiB)", text).groups()
    return float(held), float(copied) * {"MiB": 1, "GiB": 1024}[unit], took, memory, values


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    heapprof = sys.argv[1]
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = folder / "program"
        subprocess.run(["gcc", "-O2", "-o", program, HERE / "heapwalk.c"], check=True)
        print("    values  copied MiB  held ms  memcpy ms  ratio  all s  us/value  memory MiB")
        for count in COUNTS:
            child = subprocess.Popen(["perl", "-e", PROGRAM % (count // 4)], stdout=subprocess.PIPE, text=True)
            try:
                child.stdout.readline()
                rows = []
                for _ in range(rounds):
                    held, copied, took, memory, values = of_process(heapprof, child.pid, folder)
                    # A program says how long its own memcpy of as many bytes takes, in the same round.
                    size = int(copied * 1024 * 1024)
                    peer = subprocess.Popen([program, str(size), "100"], stdout=subprocess.PIPE, text=True)
                    memcpy = float(peer.stdout.readline()) * 1000
                    peer.kill()
                    peer.wait()
                    rows.append((held / memcpy, held, memcpy, copied, took, memory, values))
            finally:
                child.kill()
                child.wait()
            ratio, held, memcpy, copied, took, memory, values = (statistics.median(column) for column in zip(*rows))
            print(f"{values:10} {copied:11.1f} {held:8.1f} {memcpy:10.1f} {ratio:6.2f} {took:6.2f} "
                  f"{took / values * 1e6:9.2f} {memory:11.0f}", flush=True)
        print("\n   file MB  top s  perl-heap s  pmat-counts s  ratio  (processor time)")
        for count in (5_500, 16_000):
            file = folder / "app.pmat"
            subprocess.run(["perl", "-e", DUMPED % count, file], check=True)
            ours = statistics.median(run([heapprof, "top", file])[1] for _ in range(rounds))
            asked = statistics.median(run([heapprof, "perl-heap", file])[1] for _ in range(rounds))
            theirs = statistics.median(run(["pmat-counts", file])[1] for _ in range(rounds))
            print(f"{file.stat().st_size / 1e6:10.1f} {ours:6.2f} {asked:12.2f} {theirs:14.2f} {theirs / ours:6.1f}",
                  flush=True)


main()
