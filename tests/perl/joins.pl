# Threads that are joined, and data that they share, from within subs.
use strict;
use warnings;
use threads;
use threads::shared;

my %shared : shared;
{ package Ends; sub new { bless { text => 'e' x 1000 }, shift } sub DESTROY { my $last = 'd' x 2000; } }

sub child { my ($n) = @_; my $ends = Ends->new; our $kept = Ends->new; my @list = map { "t$_" } 1 .. 200; return $n + @list }

sub inner {
    my ($thread, $n) = @_;
    my $sum = $thread->join;
    my @kept = ('after' x 1000) x 3;
    $shared{$n} = 's' x 10_000;
    return $sum;
}

sub outer { my ($n) = @_; return inner(threads->create(\&child, $n), $n) }
sub nested { my $sum = 0; $sum += outer($_) for 1 .. 40; return $sum }
print nested(), "\n";
print scalar(keys %shared), " shared\n";
