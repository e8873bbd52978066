# Keeps values of every kind, and frees some. With `again`, a profile is asked for in between.
use strict;
use warnings;
use feature 'state';

my @kept;
sub nothing { my @list = 5; return }
sub keep { push @kept, 1 }
for (1 .. 20_000) { nothing(); keep() }

package Counter;
sub TIESCALAR { my $value = 0; return bless \$value }
sub FETCH { return ${ $_[0] }++ }
package main;

my %table = map { ("key$_" => { id => $_, list => [ 1 .. 3 ] }) } 1 .. 300;
my @subs = map { my $i = $_; sub { return $i++ } } 1 .. 200;
my @numbers = map { my $n = $_ + 0.5; my $text = "$n"; $n } 1 .. 200;
my @patterns = map { qr/a{$_}b/ } 1 .. 50;
my @tied = map { tie my $value, 'Counter'; \$value } 1 .. 20;
my @files = map { open my $file, '<', $0 or die $!; $file } 1 .. 20;
my @blessed = map { bless { of => $_ }, "Class$_" } 1 .. 40;
my $sorted = join ',', sort { $a cmp $b } keys %table;
my $wide = join '', map { chr(0x100 + $_) } 1 .. 300;
my $count = () = $wide =~ /[\x{100}-\x{180}]/g;
substr($wide, 3, 2) = 'xy';
format STDOUT =
@<<<<<< @>>>>>
$count, $sorted
.
eval "sub made_$_ { my \@own = (1) x $_; return \\\@own } made_$_()" for 1 .. 50;
delete $table{"key$_"} for 1 .. 150;
kill USR2 => $$ if @ARGV;
@kept = () if @ARGV;
print scalar(@kept), "\n";
