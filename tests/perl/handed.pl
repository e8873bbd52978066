# What `handed.c` runs.
use strict;
use warnings;
no warnings 'recursion';

our $i = 0;
sub deep { my $n = shift; my @x = (1 .. 3); return $n ? deep($n - 1) : 1 }
sub flat { my @l = (1 .. $_[0]); return scalar @l }
sub fresh { return [ 1 .. 3 ] }
sub work { fresh(); deep(50 + $_[0] * 10); flat(1000 + 100 * $_[0]); my @s = sort { flat(10); $a <=> $b } 1 .. 50; return 1 }
1;
