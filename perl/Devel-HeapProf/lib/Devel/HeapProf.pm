package Devel::HeapProf;

# No other module is used here, because its memory would be taken for the program's.

our $VERSION = '0.01';

# The marks that were set, by their texts.
my %marked;

require XSLoader;
XSLoader::load(__PACKAGE__, $VERSION);

# What comes behind these two frees values that are alive when the program ends. They are the first of their kind, so the
# one for INIT runs before the program's own blocks, and the one for END after them.
_before_and_after() if is_tracing();

# What a forked child shares is looked at after the program's own END blocks, and before Perl cleans up.
_look_at_end();

# Begins another part of the program. Values that are made from now on have its name as a label, and a watch is told.
# The entry is made first, so that it is not one of those values.
sub mark {
    $marked{defined $_[0] ? $_[0] : ''} ||= 0;
    $marked{defined $_[0] ? $_[0] : ''} = _mark($_[0]);
    return;
}

# The values that were made since a mark and are alive, by the stack that made them. It has no variables of its own, which
# would be such values.
sub growth {
    return if !$marked{defined $_[0] ? $_[0] : ''};
    return _told(_since($marked{defined $_[0] ? $_[0] : ''}));
}

# Runs a block. Returns the values that it leaves behind, by the stack that made them.
sub leaks (&) {
    return _told(_leaks($_[0]));
}

sub _told {
    my @rows = sort { $b->{bytes} <=> $a->{bytes} || $b->{count} <=> $a->{count} } @_;
    for my $row (@rows) {
        # What leads to the block is the same for all rows.
        my ($outside) = grep { $row->{stack}[$_] =~ /^Devel::HeapProf::leaks / } 0 .. $#{ $row->{stack} };
        $#{ $row->{stack} } = $outside - 1 if $outside;
        my $what = defined $row->{class} ? "$row->{class}=$row->{type}" : $row->{type};
        $row->{text} = "$row->{count} $what, $row->{bytes} bytes: " . join ' < ', @{ $row->{stack} };
    }
    return @rows;
}

# Records from now on. Without a period every allocation is recorded.
sub start {
    my (%options) = @_;
    my $period = delete $options{period};
    $period = 0 if !defined $period;
    my $output = delete $options{output};
    _unknown('start', \%options);
    return _start($output, $period);
}

# Writes a profile.
sub dump {
    my ($path) = @_;
    return _dump($path);
}

sub _unknown {
    my ($function, $options) = @_;
    my ($first) = sort keys %$options or return;
    require Carp;
    Carp::croak("Devel::HeapProf::$function has no option '$first'");
}

1;

__END__

=head1 NAME

Devel::HeapProf - ask heapprof for a profile of this program's memory, and which values leak

=head1 SYNOPSIS

    use Devel::HeapProf;

    Devel::HeapProf::dump('before.pb.gz');
    handle_requests(1000);
    Devel::HeapProf::dump('after.pb.gz');

    $ heapprof record -- perl app.pl
    $ heapprof diff before.pb.gz after.pb.gz -g lines

    for my $leak (Devel::HeapProf::leaks { handle_request() }) {
        print "$leak->{text}\n";
    }

    $ heapprof record --perl-values -- perl app.pl

=head1 DESCRIPTION

L<heapprof|https://crates.io/crates/heapprof> shows where a program's memory is: by sub, by file and by line. It needs no
module for that. With this module a Perl program decides itself when it is recorded, and when a profile is written.

With the module, subs that are written in C (XS) have frames of their own, with the line that calls them.

With C<heapprof record --perl-values>, heapprof knows of each value that is alive which stack has made it. Perl takes
values from arenas, so the memory that malloc gives says nothing of that.

The module also tells heapprof what the structures of this perl are, from the headers that it was compiled with. So subs
and lines are there for perls that heapprof does not know, such as development releases, and builds with unusual options.

heapprof's library is in a program that was started by C<heapprof record>, or with the library in C<LD_PRELOAD>. Without
it every function does nothing, says nothing and returns false. So the calls can stay in a program.

C<heapprof setup perl-install> builds the module for a perl and keeps it in heapprof's own folder. C<heapprof record> loads it
from there. A program that calls its functions without C<heapprof record> needs it in C<@INC>: install it with
C<perl Makefile.PL && make install>.

=head1 FUNCTIONS

None is exported.

=head2 is_loaded

    if (Devel::HeapProf::is_loaded()) { ... }

Whether heapprof's library is in this program.

=head2 is_running

Whether allocations are being recorded.

=head2 is_tracing

Whether the values of this interpreter are traced: C<heapprof record --perl-values>, or C<HEAPPROF_PERL_VALUES=yes>.

=head2 start

    Devel::HeapProf::start() or warn "not recorded: $!";
    Devel::HeapProf::start(period => 512 * 1024, output => '/tmp/app.%p.pb.gz');

Records from now on, and forgets what was recorded before. C<period> records one allocation in so many bytes on average;
without it every allocation is recorded. C<output> is where profiles go, with C<%p> for the number of the process and
C<%n> for that of the profile; without it they go where C<heapprof record> was told. Returns false and sets C<$!> if that
is not possible.

=head2 stop

    Devel::HeapProf::stop();

Ends the recording. What it recorded can still be dumped. The values of this moment can, too, until the program ends; after
that a profile has none. C<leaks> and C<growth> die from now on, because nothing tells them what was made.

=head2 dump

    Devel::HeapProf::dump();
    Devel::HeapProf::dump('after.pb.gz') or warn "no profile: $!";

Writes a profile of this moment to a file, or to where the recording's profiles go. Returns false and sets C<$!> if that
is not possible. It waits up to ten seconds for another thread's profile.

=head2 leaks

    my @leaks = Devel::HeapProf::leaks { handle_request() };

Runs a block, and returns the values that it made and left behind. Each row stands for the values that one stack has made
of one type and class, and is a hash with these keys:

=over

=item C<text>

All of the row in one line, for people.

=item C<count>, C<bytes>

How many values there are, and how many bytes they have: head, body, and what malloc gave for their content.

=item C<type>, C<class>

What they are, such as C<HASH>, C<ARRAY>, C<SCALAR>, C<REF> or C<CODE>, and the class that they are blessed into, or
C<undef>.

=item C<stack>

The frames of the stack up to the block, the innermost first, each as C<function file:line>.

=back

The rows with the most bytes come first. If values are not traced, there are none.

What a block makes once and keeps for later, such as a cache, looks like a leak the first time. Run it once or twice
before. A value that replaces an older one counts, too, because it is new and stays. Such rows do not grow with the number
of rounds: a leak leaves something behind in each of them. Here is a test for a suite of your own:

    use Test::More;
    my $traces = eval { require Devel::HeapProf } && Devel::HeapProf::is_tracing();
    plan skip_all => 'needs heapprof record --perl-values' if !$traces;

    handle_request() for 1 .. 3;    # what is made once
    my @left = Devel::HeapProf::leaks(sub { handle_request() for 1 .. 10 });
    my @leaks = grep { $_->{count} >= 10 } @left;
    ok !@leaks, 'requests leave nothing behind'
        or diag map { "$_->{text}\n" } @leaks;
    done_testing;

C<heapprof record --perl-values -- prove -b t> runs it, with a profile for each test.

=head2 mark

    Devel::HeapProf::mark('loaded');

Begins another part of the program. Values that are made from now on have the text as their label C<mark> in profiles,
until the next mark: C<heapprof top -t sv_inuse_space --tag-focus mark=loaded> shows them.

If C<heapprof watch> runs the program, it gets the mark, too, with what the program has in memory at this moment. That
needs neither C<heapprof record> nor heapprof's library.

=head2 growth

    Devel::HeapProf::mark('loaded');
    handle_request() for 1 .. 1000;
    print "$_->{text}\n" for Devel::HeapProf::growth('loaded');

Returns the values that were made since a mark and are alive, in rows as those of L</leaks>.

=head2 alive

    Devel::HeapProf::alive('orders.cancel');

Says that this code has run, in a datagram to where C<HEAPPROF_WIRETAP> says, with the caller's file and line. Without that
variable it does nothing. It never waits and never fails. C<heapprof alive listen> collects the datagrams, and
C<heapprof alive wiretap --expect FILE> shows which code was never seen.

=head1 LIMITS

Values are noticed after each op. If one op, such as a call of a sub that is written in C, frees a value and makes another
one in its place, both are one for heapprof. In the coroutines of L<Coro>, which Perl's own run loop runs, values are
noticed when a sub is called or left and when a statement begins.

Values can't be traced beside another module that replaces Perl's run loop, such as L<Test::LeakTrace> or L<Devel::Cover>.
The program ends at once then, with a message and exit code 2.

=head1 SEE ALSO

The guide "Perl programs" in heapprof's documentation, and "Perl: which value leaks".

=head1 LICENSE

This module is free software. You may use it under the terms of Perl itself.

=cut
