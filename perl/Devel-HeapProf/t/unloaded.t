# Without heapprof's library nothing happens.
use strict;
use warnings;
use Test::More;

use Devel::HeapProf;
use Devel::HeapProf;

my @warnings;
local $SIG{__WARN__} = sub { push @warnings, @_ };
SKIP: {
    skip 'the library is loaded', 7 if Devel::HeapProf::is_loaded();
    ok !Devel::HeapProf::is_running(), 'is_running';
    ok !Devel::HeapProf::start(), 'start';
    ok !Devel::HeapProf::start(period => 1000, output => 'x'), 'start with options';
    ok !Devel::HeapProf::dump(), 'dump';
    is scalar(Devel::HeapProf::stop()), undef, 'stop';
    is scalar(Devel::HeapProf::alive('code')), undef, 'alive';
    ok !-e 'x', 'no file';
}
is eval { Devel::HeapProf::start(perod => 1); 1 }, undef, 'an unknown option';
like $@, qr/has no option 'perod' at \Q$0\E/, 'names itself and the caller';
my $child = fork;
die "no child: $!" if !defined $child;
if (!$child) { Devel::HeapProf::dump(); exit 7 }
waitpid $child, 0;
is $? >> 8, 7, 'after fork';
is_deeply \@warnings, [], 'no warnings';
done_testing;
