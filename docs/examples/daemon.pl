# A daemon whose two workers load what they need when they need it: the program of the guide "Pre-forking daemons".
# perl daemon.pl [early]
use strict;
use warnings;

my @prices = map { "$_.99" } 1 .. 20_000;    # the parent's, for all workers

if (@ARGV && $ARGV[0] eq 'early') {
    require Text::Balanced;                  # loaded once
    my $sum = 0;
    $sum += $_ for @prices;                  # Perl notes the number of each text, once
}

for my $worker (1 .. 2) {
    next if fork;
    work();
    exit 0;
}
1 while wait > 0;

sub work {
    eval { require JSON::XS::Fast };         # optional, and not there
    require Text::Balanced;
    my $sum = 0;
    $sum += $_ for @prices;                  # looks as if it only read
    sleep 1;
}
