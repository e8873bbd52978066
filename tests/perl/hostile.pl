# What a profiler of stacks might trip over. It prints what it did.
use strict;
use warnings;
no warnings 'recursion';

{ package Dies; sub new { bless [] } sub DESTROY { die "on purpose\n" } }
for (1 .. 50) { local $SIG{__WARN__} = sub { }; my $dies = Dies->new; undef $dies }

sub deep { my ($n) = @_; my @kept = ($n) x 3; return $n ? 1 + deep($n - 1) : 0 }
print 'deep ', deep($ENV{DEEP} || 50_000), "\n";

my $alarms = 0;
{
    require Time::HiRes;
    local $SIG{ALRM} = sub { my @made = (1) x 100; $alarms++ };
    Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0.001, 0.001);
    my $until = Time::HiRes::time() + 0.3;
    while (Time::HiRes::time() < $until) { my @list = map { "x$_" } 1 .. 20 }
    Time::HiRes::setitimer(Time::HiRes::ITIMER_REAL(), 0);
}
print 'alarms ', ($alarms > 10 ? 'came' : "were $alarms"), "\n";

my $sum = 0;
for my $i (1 .. ($ENV{EVALS} || 100_000)) { $sum += eval "sub { \$_[0] + $i }->(1)" }
print "evals $sum\n";

if (eval { require threads; 1 }) {
    my $joined = 0;
    for (1 .. 20) { $joined += $_->join for map { my $n = $_; threads->create(sub { my @l = map { "t$_" } 1 .. 100; $n }) } 1 .. 3 }
    print "joined $joined\n";
}
my @sorted = sort { my $key = "$a:$b"; $a <=> $b } reverse 1 .. 2000;
print "sorted $sorted[0] $sorted[-1]\n";
eval { local $SIG{__DIE__} = sub { my @trace = caller(0); die "again: $_[0]" }; die "once\n" };
print "died $@";
exit 3;
