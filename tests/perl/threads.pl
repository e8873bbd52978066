# Three threads beside the first one, each with stacks of its own. Each says what it allocated.
use strict;
use warnings;
use threads;

sub worker { my ($number) = @_; my $sum = 0; $sum += made($number) for 1 .. 20; return $sum }

sub made {
    my ($number) = @_;
    my $block = 'x' x (100_000 * $number);    # the allocation
    return length $block;
}

my @threads = map { threads->create(\&worker, $_) } 1 .. 3;
print join(' ', map { $_->join } @threads), "\n";
print worker(4), "\n";
