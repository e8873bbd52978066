#!/usr/bin/env python3
"""Compares perl-heap --size with Devel::Size on simple variables. What differs has to differ by what the
page says: a scalar's body of 16 bytes and not 8, no buckets of an empty hash, shared keys and texts.
usage: oracle/perl_size_peers.py HEAPPROF   (needs perl with Devel::Size)
"""
import json
import subprocess
import sys

PROGRAM = r"""
use strict; use warnings; use Devel::Size qw(size total_size); no strict 'refs';
our ($undef, $int, $num, $str, $long, $ref, $aref, $href, $obj, $utf, $chop);
our (@empty, @ints, @strs, @nested, @shifted, %empty, %h, %hoh, %big);
sub text { join "", map { chr 97 + $_ % 26 } 1 .. shift }
$int = 42; $num = 3.5; $str = text(5); $long = text(1000); $ref = \$int; $aref = [1, 2, 3];
$href = { first => 1, second => 2 }; $obj = bless { third => 1 }, 'Obj'; $utf = join "", map { chr 9786 } 1 .. 10;
$chop = text(80); $chop =~ s/^...//;
@ints = (1 .. 100); @strs = map { text($_ % 9 + 1) } 1 .. 100; @nested = map { [1 .. 3] } 1 .. 10;
@shifted = (1 .. 100); shift @shifted for 1 .. 10;
%h = map { ("own$_" => $_) } 1 .. 10; %hoh = map { ("outer$_" => { "inner$_" => $_ }) } 1 .. 5;
%big = map { ("many$_" => text(4)) } 1 .. 1000;
$| = 1;
for my $name (qw($undef $int $num $str $long $ref $aref $href $obj $utf $chop @empty @ints @strs @nested @shifted
        %empty %h %hoh %big)) {
    my ($sigil, $rest) = $name =~ /^(.)(.*)/;
    my $r = $sigil eq '$' ? \${"main::$rest"} : $sigil eq '@' ? \@{"main::$rest"} : \%{"main::$rest"};
    print join("\t", $name, size($r), total_size($r)), "\n";
}
print "$$\n"; sleep 1000;
"""
# What the page says: eight bytes for each text's body, 64 for the buckets of an empty hash. A text that is
# shared with where it was computed counts only in the second row.
SHARED = {"$utf"}
TEXTS = {"$str": 1, "$long": 1, "$utf": 1, "$chop": 1, "@strs": 100, "%big": 1000}


def main():
    running = subprocess.Popen(["perl", "-e", PROGRAM], stdout=subprocess.PIPE, text=True)
    rows = []
    try:
        for line in running.stdout:
            words = line.split("\t")
            if len(words) == 1:
                break
            rows.append((words[0], int(words[1]), int(words[2])))
        bad = 0
        for name, size, total in rows:
            found = subprocess.run([sys.argv[1], "perl-heap", f"pid:{running.pid}", "--size", name, "-f", "json"],
                                   capture_output=True, text=True, check=True).stdout
            found = json.loads(found)
            ours = found["size"]["asked"], found["total_size"]["asked"]
            texts = 8 * TEXTS.get(name, 0)
            own = texts if name.startswith("$") else 0
            expected = (size + own, total + texts) if name != "%empty" else (size - 64, total - 64)
            is_right = ours[1] == expected[1] if name in SHARED else ours == expected
            bad += not is_right
            print(f"{'equal' if is_right else 'DIFFERENT':9} {name:9} {ours}, Devel::Size {size, total}")
        sys.exit(bad != 0)
    finally:
        running.kill()
        running.wait()


main()
