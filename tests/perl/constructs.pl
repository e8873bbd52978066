# Allocates in every construct that Perl's stack has, and says what caller says there: for each
# allocation its size, then its frames from the inside, each as kind|sub|file|line of the call.
use strict;
use warnings;
no warnings qw(recursion redefine once);

our ($rounds, $depth) = (@ARGV, 400, 9);
open my $said, '>', $ENV{SAID} or die "SAID: $!";
our $seed = 4711;
our $size = 0;

sub chance { $seed = ($seed * 1103515245 + 12345) % 2147483648; int($seed / 65536) % $_[0] }

sub mark {
    my ($i, @frames) = (0);
    while (my ($package, $file, $line) = caller $i) {
        # The name of a format must not be copied.
        if (ref \(caller $i)[3] eq 'FORMAT' || (caller $i)[3] eq 'main::REPORT') {
            push @frames, "format|main::REPORT|$file|$line";
            $i++;
            next;
        }
        my ($sub, $text, $required) = (caller $i++)[3, 6, 7];
        my $kind = 'sub';
        if ($sub eq '(eval)') {
            $kind = $required ? 'file' : defined $text ? 'string' : 'block';
            $sub = $required ? $text : '';
        }
        push @frames, "$kind|$sub|$file|$line";
    }
    $size = 1 + ($size + 7) % 4096;
    my $wanted = 300000 + 16 * $size;
    print $said join("\t", $wanted, @frames), "\n";
    my $block = '';
    vec($block, $wanted, 8) = 1;    # the allocation
    undef $block;
    1;
}

our @ways;
sub further { my $left = shift; return mark() if $left <= 0; $ways[chance(scalar @ways)]->($left - 1) }
sub plain { my ($left) = @_; further($left) }
sub again { my ($n, $left) = @_; $n ? again($n - 1, $left) : further($left) }
sub trampoline { goto &landing }
sub landing { further($_[0]) }
{ package Tied; sub TIESCALAR { bless [$_[1]] } sub FETCH { main::further($_[0][0]); 1 } sub STORE { main::further($_[0][0]) } }
{ package TiedHash; sub TIEHASH { bless [$_[1]] } sub FETCH { main::further($_[0][0]); 1 } }
{ package Mortal; sub DESTROY { main::further($_[0][0]) } }
{ package Number; use overload '+' => sub { main::further($_[0][0]); 1 }, '""' => \&text, bool => sub { 1 }; sub text { main::further($_[0][0]); 'n' } }
{ package Automatic; our $AUTOLOAD; sub new { bless [] } sub DESTROY { } sub AUTOLOAD { my $called = $AUTOLOAD; main::further($_[1]) } }
our ($for_format, $for_sort, $for_regex, $for_signal, $for_file) = (0, -1, -1, 0, 0);
format REPORT =
@<<<<
from_format()
.
sub from_format { further($for_format); 'x' }
open REPORT, '>', '/dev/null';
sub by_number { if ($for_sort >= 0) { my $left = $for_sort; $for_sort = -1; further($left) } $a <=> $b }
$SIG{USR1} = sub { my $left = $for_signal; further($left) };
*Other::name = sub { further($_[0]) };
{ package Far::Away::Package; sub method { main::further($_[1]) } }

@ways = (
    \&plain,
    sub { again(chance(5), $_[0]) },
    sub { my $left = shift; my $inner = sub { further($left) }; $inner->() },
    sub { my $left = shift; eval { further($left); 1 } or die },
    sub { my $left = shift; eval "further(\$left);\n1" or die $@ },
    sub { my $left = shift; eval "\n\nsub { package In::Eval; main::further(\$left) }->(); 1" or die $@ },
    sub { my $left = shift; my @sorted = sort { if ($left >= 0) { my $l = $left; $left = -1; further($l) } $a <=> $b } 3, 1, 2; 1 },
    sub { local $for_sort = shift; my @sorted = sort by_number 3, 1, 2; 1 },
    sub { tie my $tied, 'Tied', $_[0]; my $got = $tied; untie $tied; 1 },
    sub { tie my $tied, 'Tied', $_[0]; $tied = 1; untie $tied; 1 },
    sub { tie my %tied, 'TiedHash', $_[0]; my $got = $tied{key}; untie %tied; 1 },
    sub { my $mortal = bless [$_[0]], 'Mortal'; undef $mortal; 1 },
    sub { my $number = bless [$_[0]], 'Number'; my $sum = $number + 1; 1 },
    sub { my $number = bless [$_[0]], 'Number'; my $text = "$number"; 1 },
    sub { Automatic->new->anything($_[0]) },
    sub { Automatic::function(undef, $_[0]) },
    \&trampoline,
    sub { Other::name($_[0]) },
    sub { Far::Away::Package->method($_[0]) },
    sub { local $for_signal = shift; kill USR1 => $$; 1 },
    sub { local $for_format = shift; my $old = select(REPORT); write; select($old); 1 },
    sub { my $left = shift; local $SIG{__WARN__} = sub { further($left) }; warn 'x'; 1 },
    sub { my $left = shift; local $SIG{__DIE__} = sub { further($left) }; eval { die 'x' }; 1 },
    sub { my $left = shift; for my $i (1 .. 2) { my @mapped = map { further($i == 1 ? $left : 0) } 1 } 1 },
    sub { my $left = shift; my ($first) = grep { further($left) } 1; 1 },
    sub { my $left = shift; (my $text = 'xy') =~ s/x/further($left)/e; 1 },
    sub { my $left = shift; (my $text = 'xy') =~ s/x/'further($left)'/ee; 1 },
    sub { my $left = shift; while (1) { { further($left) } last } 1 },
    sub { local $for_file = shift; do "$ENV{FILES}/done.pl"; 1 },
    sub { local $for_file = shift; my $name = 'Used' . chance(3) . '.pm'; delete $INC{$name}; require $name; 1 },
);
unshift @INC, $ENV{FILES};
if ($] >= 5.018) { eval q{ use feature 'lexical_subs'; no warnings; my sub lexical { further($_[0]) } push @ways, sub { lexical($_[0]) }; 1 } or die $@ }
if ($] >= 5.034) { eval q{ use feature 'try'; no warnings; push @ways, sub { my $left = shift; try { further($left) } catch ($e) { die $e } 1 }, sub { my $left = shift; try { die 'x' } catch ($e) { further($left) } 1 }; 1 } or die $@ }
eval q{ BEGIN { mark() } 1 } or die $@;

for my $way (@ways) { $way->($_) for 0, 1 }
for (1 .. $rounds) { further(chance($depth)) }
if ($ENV{WITH_FORK}) {
    for my $child (1 .. 2) {
        defined(my $pid = fork) or die;
        if (!$pid) {
            close $said;
            open $said, '>', "$ENV{SAID}.$child" or die;
            further(chance($depth)) for 1 .. $rounds;
            close $said;
            exit 0;
        }
        waitpid $pid, 0;
    }
}
close $said;
