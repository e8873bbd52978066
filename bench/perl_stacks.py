#!/usr/bin/env python3
"""What Perl stacks cost: user and system seconds of docs/examples' kind of script, in interleaved rounds.

Prints medians and paired ratios to the bare run, and of Perl stacks to native ones.
Devel::NYTProf runs beside it if it is installed.
"""
import argparse
import os
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heapprof", default="target/release/heapprof")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--depths", default="6,20")
    args = parser.parse_args()
    library = subprocess.check_output([args.heapprof, "preload-path"], text=True).strip()
    nytprof = subprocess.run(["perl", "-MDevel::NYTProf", "-e1"], capture_output=True).returncode == 0
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        with open("script.pl", "w") as file:
            file.write(SCRIPT)
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
                    ratio = statistics.median(x / y for x, y in zip(taken[kind], native))
                    line += f"; {ratio:.3f} of native stacks (paired)"
                print(line)


main()
