# A Perl program whose subs keep memory, for Devel::MProf: perl -d:MProf orchard.pl
use strict;
package Tree;
sub new { my ($class, $apples) = @_; my $tree = bless { apples => [] }, $class; $tree->grow($apples); return $tree }
sub grow { my ($tree, $n) = @_; push @{ $tree->{apples} }, apple($_) for 1 .. $n }
sub apple { my $n = shift; return "apple number $n, red, from the old orchard behind the house" }
package main;
my @orchard;
sub plant { my $n = shift; push @orchard, Tree->new($n); return scalar @orchard }
sub fell { @orchard = () }
sub walk { my $depth = shift; my $path = 'x' x 200_000; return $depth ? length($path) + walk($depth - 1) : 0 }
plant(300 * $_) for 1 .. 3;
walk(3);
fell();
plant(10);
