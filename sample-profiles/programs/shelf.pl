# What is dumped for docs/formats/pmat.md: a cache, what a sub keeps between calls, rings that leak.
use Devel::MAT::Dumper;

package Book;

sub new {
    my ($class, $number) = @_;
    return bless { number => $number, pages => [ map { "page $_ of $number" } 1 .. 3 ] }, $class;
}

package main;

our (%CACHE, %SHELF);
$CACHE{$_} = Book->new($_) for 1 .. 100;
$SHELF{$_} = Book->new($_) for qw(left right);

sub keeps {
    my $big = 'x' x 50_000;
    return length $big;
}
keeps();

sub deep {
    my ($depth) = @_;
    my $line = 'y' x 9_000;
    return $depth ? deep($depth - 1) : 0;
}
deep(2);

for my $number (1 .. 7) {
    my $ring = { number => $number };
    my $other = { ring => $ring };
    $ring->{other} = $other;
}

Devel::MAT::Dumper::dump($ARGV[0]);
