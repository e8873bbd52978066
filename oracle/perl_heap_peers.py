#!/usr/bin/env python3
"""Compares what perl-heap finds with what a sweep from within finds, on real programs and several
perls: the values of each type of each interpreter, and the bytes that malloc has given out. Planted cycles
have to be found, all of them and no other.
usage: oracle/perl_heap_peers.py HEAPPROF [ROOT...]   (ROOTs of oracle/prove-perls.sh; they need root)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TYPES = ("NULL IV NV PV INVLIST PVIV PVNV PVMG REGEXP PVGV PVLV PVAV PVHV PVCV PVFM PVIO PVOBJ").split()
CYCLES = r"""
use strict; use warnings;
package Node { sub new { my ($class, %a) = @_; bless {%a}, $class } }
for (1 .. 100) { my $n = Node->new(id => $_, payload => "y" x 500); $n->{self} = $n; }
for (1 .. 100) { my ($a, $b) = ([], {}); push @$a, $b; $b->{back} = $a; }
for (1 .. 100) { my $code; my $n = $_; $code = sub { $n ? $code : undef }; }
our @kept = map { my $n = Node->new; $n->{self} = $n; $n } 1 .. 50;
use Scalar::Util 'weaken';
our @weak = map { my $n = Node->new; $n->{self} = $n; weaken $n->{self}; $n } 1 .. 50;
Sweep::wait();
"""
THREADS = r"""
use strict; use warnings; use threads; use threads::shared;
my %shared :shared; $shared{"k$_"} = $_ for 1 .. 1000;
my @threads = map { my $n = $_; threads->create(sub {
    my @own = map { { id => $_, text => "t" x 50 } } 1 .. 1000 * $n; Sweep::wait() }) } 1 .. 3;
my @main = (1 .. 5000);
sleep 1;
Sweep::wait();
"""
MANY = r"""our %DATA; $DATA{"k$_"} = [$_, "v$_"] for 1 .. 1_250_000; Sweep::wait();"""
TIDY = r"""
use Perl::Tidy;
my $source = do { open my $in, '<', $INC{'Perl/Tidy.pm'} or die; local $/; <$in> };
$source = substr $source, 0, 60_000; $source =~ s/\n[^\n]*\z/\n/;
my ($result, $errors, $log);
Perl::Tidy::perltidy(source => \$source, destination => \$result, argv => '-npro', stderr => \$errors,
    errorfile => \$log);
Sweep::wait();
"""
CLASSES = r"""
use v5.38; use experimental 'class'; use experimental 'for_list';
class Point { field $x :param = 1; field @trail; field %seen;
    method move($by) { push @trail, $x; $x += $by; $seen{$x}++; $self } }
class Point3D :isa(Point) { field $z :param = 0; ADJUST { $z += 1 } }
our @points = map { Point3D->new(x => $_)->move(2) } 1 .. 500;
Sweep::wait();
"""


def programs(version):
    catalyst = open(f"{HOME}/tests/perl/catalyst.pl").read()
    yield "Catalyst", "@ARGV = (200);" + catalyst + "\nSweep::wait();\n", 200
    yield "perltidy", TIDY, 0
    yield "cycles", CYCLES, 300
    yield "threads", THREADS, 0
    yield "5 million values", MANY, 0
    if version >= (5, 38):
        yield "class", CLASSES, 0


def inside(root, *command):
    return ["chroot", root, *command] if root else list(command)


def build(root, work):
    flags = subprocess.run(inside(root, "perl", "-MExtUtils::Embed", "-e", "ccopts"),
                           capture_output=True, text=True, check=True).stdout.split()
    place = work[len(root):]
    command = inside(root, "gcc", "-shared", "-fPIC", "-w", "-o", f"{place}/sweep.so", f"{place}/sweep.c", *flags)
    subprocess.run(command, check=True)


def sweep(root, work, program):
    """Runs a program until all of its interpreters have said their counts and wait."""
    place = work[len(root):]
    with open(f"{work}/program.pl", "w") as file:
        file.write(program)
    out = open(f"{work}/out", "w+")
    running = subprocess.Popen(inside(root, "env", f"SWEEP_FD={out.fileno()}", "perl", f"-I{place}", "-MSweep", f"{place}/program.pl"),
                               stdout=subprocess.DEVNULL, stderr=open(f"{work}/err", "w"),
                               pass_fds=[out.fileno()])
    wanted = 4 if program == THREADS else 1
    lines = []
    for _ in range(1200):
        time.sleep(0.1)
        lines = open(f"{work}/out").read().splitlines()
        if len(lines) >= wanted or running.poll() is not None:
            break
    return running, [json.loads(line) for line in lines]


def compare(heapprof, root, work, name, program, planted):
    running, sweeps = sweep(root, work, program)
    if not sweeps:
        said = open(f"{work}/err").read().strip().splitlines()
        running.kill()
        running.wait()
        return None, f"{name}: skipped: {said[-1] if said else 'it said nothing'}"
    try:
        answer = subprocess.run([heapprof, "perl-heap", f"pid:{sweeps[0]['pid']}", "-f", "json", "-n0"],
                                capture_output=True, text=True)
        if answer.returncode:
            return False, f"{name}: {answer.stderr.strip()}"
        found = json.loads(answer.stdout)
        wrong = []
        for one in sweeps:
            same = [i for i in found["interpreters"] if list(i["types"].values()) == one["types"] and i["sv_count"] == one["count"]]
            if len(same) != 1:
                near = [i for i in found["interpreters"] if i["sv_count"] == one["count"]]
                wrong.append(f"{one['count']}: {one['types']} but {near}")
        values = sum(i["values"] for i in found["interpreters"])
        malloc = sweeps[-1]["malloc"]
        # Threads have arenas of their own, which mallinfo does not count. It counts as given out what threads keep.
        apart = (found["bytes"] + found["malloc_cached"] - malloc) / malloc if malloc and program != THREADS else 0
        named = {part["name"]: part["bytes"] for part in found["parts"]}
        perls = 100 * (1 - sum(named.get(part, 0) for part in ("(not Perl's)", "(malloc)")) / found["bytes"])
        cycles = subprocess.run([heapprof, "perl-heap", f"pid:{sweeps[0]['pid']}", "--cycles", "-f", "json", "-n0"],
                                capture_output=True, text=True)
        cycles = json.loads(cycles.stdout)["cycles"]
        if cycles != planted:
            wrong.append(f"{cycles} cycles, {planted} were planted")
        if found["bytes"] != found["malloc"]:
            wrong.append(f"sizes are {found['bytes']}, chunks have {found['malloc']}")
        if abs(apart) > 0.01:
            wrong.append(f"malloc says {malloc}, sizes are {found['bytes']}")
        held = next((note for note in found["notes"] if note.startswith("it was suspended")), "")
        text = (f"{name}: {len(sweeps)} of {len(found['interpreters'])} interpreters swept, {values} values, "
                f"{found['bytes']} B, {100 * apart:+.2f} % of malloc's, {perls:.1f} % Perl's, {cycles} cycles; {held}")
        return not wrong, "\n    ".join([text, *wrong])
    finally:
        running.kill()
        running.wait()


def main():
    heapprof, roots = sys.argv[1], sys.argv[2:]
    bad = 0
    for root in ["", *roots]:
        root = root.rstrip("/")
        work = tempfile.mkdtemp(dir=f"{root}/tmp")
        os.chmod(work, 0o755)
        proc = f"{root}/proc"
        if root and not os.path.exists(f"{proc}/self"):
            os.makedirs(proc, exist_ok=True)
            subprocess.run(["mount", "-t", "proc", "proc", proc], check=True)
        try:
            for file in ("sweep.c", "Sweep.pm"):
                shutil.copy(f"{HOME}/tests/perl/{file}", work)
            build(root, work)
            version = subprocess.run(inside(root, "perl", "-e", "printf '%vd', $^V"), capture_output=True, text=True).stdout
            print(f"perl {version}", flush=True)
            for name, program, planted in programs(tuple(map(int, version.split(".")))):
                is_right, text = compare(heapprof, root, work, name, program, planted)
                bad += is_right is False
                mark = {True: "equal", False: "DIFFERENT", None: "-"}[is_right]
                print(f"  {mark}  {text}", flush=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
