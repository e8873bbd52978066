#!/usr/bin/env python3
"""What Perl stacks cost: user and system seconds of docs/examples' kind of script, in interleaved rounds.

Prints medians and paired ratios to the bare run, and of Perl stacks to native ones.
Devel::NYTProf runs beside it if it is installed.
"""
import argparse
import os
import random
import resource
import statistics
import subprocess
import tempfile

SCRIPT = r"""
use strict; use warnings;
my (%kept, $depth);
sub work {
    my ($i) = @_;
    my @list = map { { id => $_, name => "n$_" } } 1 .. 10;
    my $names = join ',', map { $_->{name} } @list;
    $kept{$i % 1000} = [$names, \@list];
    return length $names;
}
sub deep { my ($n, $i) = @_; return $n ? deep($n - 1, $i) : work($i) }
$depth = shift;
my $total = 0;
$total += deep($depth, $_) for 1 .. 40000;
print "$total\n";
"""


def seconds(command, environment):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def interval(ratios):
    """The 95 % interval of the median, by bootstrap."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[-51]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heapprof", default="target/release/heapprof")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--depths", default="6,20")
    parser.add_argument("--script", help="another script, which gets the depth as its argument")
    args = parser.parse_args()
    script = SCRIPT
    if args.script:
        with open(args.script) as file:
            script = file.read()
    library = subprocess.check_output([args.heapprof, "preload-path"], text=True).strip()
    nytprof = subprocess.run(["perl", "-MDevel::NYTProf", "-e1"], capture_output=True).returncode == 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("script.pl", "w") as file:
            file.write(script)
        kinds = ["bare"]
        for mode in ["exact", "sampled"]:
            kinds += [f"{mode} {frames}" for frames in ["native", "script"]]
        if nytprof:
            kinds.append("NYTProf")
        for depth in args.depths.split(","):
            taken = {kind: [] for kind in kinds}
            for _ in range(args.rounds):
                for kind in kinds:
                    environment, command = dict(os.environ), ["perl"]
                    if kind == "NYTProf":
                        command.append("-d:NYTProf")
                    elif kind != "bare":
                        mode, frames = kind.split()
                        environment.update(LD_PRELOAD=library, HEAPPROF_OUTPUT=f"{folder}/p.pb.gz",
                                           HEAPPROF_MODE=mode, HEAPPROF_FRAMES=frames)
                    taken[kind].append(seconds(command + ["script.pl", depth], environment))
                for name in os.listdir(folder):
                    if name != "script.pl" and os.path.isfile(name):
                        os.unlink(name)
            print(f"depth {depth}, {args.rounds} rounds: bare {statistics.median(taken['bare']):.3f} s")
            for kind in kinds[1:]:
                ratio = statistics.median(x / y for x, y in zip(taken[kind], taken["bare"]))
                medians = statistics.median(taken[kind]) / statistics.median(taken["bare"])
                line = f"  {kind}: {medians:.2f} times bare (paired {ratio:.2f})"
                if kind.endswith("script"):
                    native = taken[kind.replace("script", "native")]
                    ratios = [x / y for x, y in zip(taken[kind], native)]
                    low, high = interval(ratios)
                    line += (f"; {statistics.median(ratios):.3f} of native stacks "
                             f"(paired; 95 %: {low:.3f} to {high:.3f})")
                print(line)


main()
