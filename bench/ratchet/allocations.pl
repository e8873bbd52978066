# Allocations of Perl below six calls, in a thread of their own: the main thread's stack is elsewhere
# under valgrind. usage: perl allocations.pl TIMES
use strict; use warnings; use threads;

my $times = shift;
sub allocate { my $text = "x" x 1000; undef $text; return }
sub descend { my ($depth) = @_; return $depth ? descend($depth - 1) : allocate() }
threads->create(sub { descend(4) for 1 .. $times; return })->join;
