# Nine kinds of leaks, ten of each, whose lines are counted: by Test::LeakTrace ("trace") or by Devel::HeapProf ("leaks").
# Each line of output is a line of this file and how many values it left behind.
use strict;
use warnings;
use Scalar::Util qw(weaken);

my ($by, $times);
BEGIN {
    ($by, $times) = (@ARGV, 10);
    require Test::LeakTrace if $by eq "trace";
}
my (@globals, %globals, @kept);
our @package;

{ package Counter; sub TIESCALAR { bless { n => 0 }, shift } sub FETCH { $_[0]{n}++ } sub STORE { } }
{ package Node; sub new { my ($class, %of) = @_; return bless {%of}, $class } }

sub cycles {
    my $one = { name => 'one' };
    my $two = [ $one, 'text' ];
    $one->{two} = $two;
    return;
}

sub closures {
    my $number = shift;
    my $again;
    $again = sub {
        return $number ? $again->() : 0;
    };
    return;
}

sub globals {
    push @globals, 'x' x 20;
    push @package, { of => 'package' };
    $globals{ 'key ' . @globals } = [ 1, 2, 3 ];
    return;
}

sub weakened {
    my $parent = { children => [] };
    my $child = { parent => $parent };
    push @{ $parent->{children} }, $child;
    weaken($child->{parent});
    my $other = { };
    $other->{self} = $other;
    $other->{weak} = $other;
    weaken($other->{weak});
    return;
}

sub magic {
    my $text = 'some text';
    pos($text) = 2;
    push @kept, \$text;
    my $far = 'far';
    push @kept, \substr($far, 1, 1);
    return;
}

sub tied_ones {
    my $value;
    tie $value, 'Counter';
    push @kept, \$value;
    return;
}

sub blessed_ones {
    my $node = Node->new(
        name => 'a node',
        list => [ 1 .. 3 ],
    );
    $node->{self} = $node;
    return;
}

sub filehandles {
    open my $handle, '<', '/dev/null' or die "/dev/null: $!";
    push @kept, $handle;
    return;
}

sub code {
    my $number = shift;
    push @kept, sub { return $number + 1 };
    return;
}

# Some things are made once, at the first time.
sub all {
    my $count = shift;
    for my $i (1 .. $count) {
        cycles();
        closures($i);
        globals();
        weakened();
        magic();
        tied_ones();
        blessed_ones();
        filehandles();
        code($i);
    }
    return;
}
all(2);

my %lines;
if ($by eq 'trace') {
    require Test::LeakTrace;
    for my $leak (Test::LeakTrace::leaked_info(sub { all($times) })) {
        my ($value, $file, $line) = @$leak;
        $lines{"$file:$line"}++;
    }
}
else {
    require Devel::HeapProf;
    for my $leak (Devel::HeapProf::leaks(sub { all($times) })) {
        my ($place) = $leak->{stack}[0] =~ /(\S+)\z/;
        $lines{$place} += $leak->{count};
    }
}
for my $place (sort { $a cmp $b } keys %lines) {
    my $shown = $place =~ s{\A.*/}{}r;
    print "$shown $lines{$place}\n";
}
