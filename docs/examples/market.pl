# A market that keeps what it should forget: orders in a cache, rings of references, and a text that
# a sub has for each call.
package Order;

sub new {
    my ($class, %self) = @_;
    return bless {%self}, $class;
}

package main;

our %CACHE;
our $SECRET = 'the key of the till';

sub handle {
    my ($number) = @_;
    my $page = "order $number: " . 'line ' x 2_000;
    my $audit = { number => $number };
    $audit->{self} = $audit if $number % 10 == 0;
    $CACHE{$number} = Order->new(number => $number, lines => [ 1 .. 5 ], customer => "customer $number");
    return length $page;
}

sub depth {
    my ($left) = @_;
    my $buffer = 'x' x 8_000;
    return $left ? depth($left - 1) : length $buffer;
}

handle($_) for 1 .. $ARGV[0];
depth(4);
$| = 1;
print "$$\n";
sleep 1000;
