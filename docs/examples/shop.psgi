# A shop for Starman. It remembers what each visitor looked at, and never forgets it.
use strict;
use warnings;

my (%history, %page, @page_order, $visits);

# The leak: an entry for each visitor, and nobody takes any away.
sub remember_visit {
    my ($visitor, $path) = @_;
    push @{ $history{$visitor} }, "$path " . ('.' x 2000);
}

# A cache that is bounded: the oldest page goes when there are 200.
sub cached_page {
    my ($path) = @_;
    return $page{$path} //= do {
        push @page_order, $path;
        delete $page{ shift @page_order } if @page_order > 200;
        render($path);
    };
}

sub render {
    my ($path) = @_;
    return "<h1>$path</h1>" . join '', map { "<p>line $_ of $path</p>" } 1 .. 800;
}

# Needed for a moment only.
sub log_line {
    my ($path) = @_;
    return scalar reverse 'x' x (20_000 + length $path);
}

sub {
    my ($env) = @_;
    my $path = $env->{PATH_INFO};
    $visits++;
    remember_visit('visitor' . ($visits % 5000), $path);
    log_line($path);
    return [200, ['Content-Type', 'text/html'], [cached_page($path)]];
};
