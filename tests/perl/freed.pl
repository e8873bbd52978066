# Code that is freed while a stack still refers to it: threads that begin in an eval whose text is
# gone, files that are required again and again, and constants that are made at run time.
use strict;
use POSIX ();
use warnings;
use threads;
use threads::shared;

my $begun : shared = 0;
my $goes_on : shared = 0;
my $worked : shared = 0;
our @junk;

sub announce { my ($of) = @_; lock $$of; $$of++; cond_broadcast $$of }
sub await { my ($of, $n) = @_; lock $$of; cond_wait $$of until $$of >= $n }

# Perl itself reads the statement that is gone if the thread ends. So none does.
sub work {
    announce(\$begun);
    await(\$goes_on, 1);
    my @list = map { "item $_" } 1 .. 2000;
    announce(\$worked);
    await(\$goes_on, 2);
}

# The statements of these evals are gone when the threads work, and their memory holds other things.
for my $i (1 .. 4) {
    eval "{ my \$x = $i }\n" x 300 . 'threads->create(\&work)->detach; await(\$begun, $i)';
}
push @junk, "\x78" x (100 + $_ * 4) for 1 .. 4000;
announce(\$goes_on);
await(\$worked, 4);
print "worked\n";

# Between two frames at the top of a file there is a moment in which `caller` sees half of one.
my $file = $ARGV[0];
for (1 .. 500) { require $file; delete $INC{$file} }
print "required\n";

require constant;
for my $i (1 .. 500) { constant->import("NAME$i" => $i) }
print 'constants ', (grep { defined &{"main::NAME$_"} } 1 .. 500) + 0, "\n";

$| = 1;
print "done\n";
POSIX::_exit(0);
