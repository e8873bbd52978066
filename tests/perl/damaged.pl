# Writes over the next pointer of a free body, as a module in C might that uses what it has freed. Perl takes no body of that
# type again, so it does not notice.
use B;
my @texts = map { "x$_" } 1 .. 1000;
my $head = \$texts[500] + 0;
my $body = unpack 'Q', unpack 'P8', pack 'Q', $head;
@texts = ();
pipe my $from, my $to;
syswrite $to, pack 'Q', 0x4141414141414141;
syscall 0, fileno $from, $body + 0, 8;
print "done\n";
