package Devel::HeapProf::Loader;

# Loads the Devel::HeapProf that `heapprof setup perl-install` built for this perl, if there is one. If there is none, or it is
# of another build, it does nothing and says nothing: the program is not to notice. So it uses no other module either,
# whose memory would be taken for the program's.

our $VERSION = '0.01';

sub import {
    my ($own) = __FILE__ =~ m{\A(.*)/Devel/HeapProf/Loader\.pm\z}s or return;
    delete $INC{+__FILE__};
    load($own) if !$INC{'Devel/HeapProf.pm'};
    # Values were asked for, and this is the program that was to be recorded, not a perl that it runs.
    if (!$INC{'Devel/HeapProf.pm'} && ($ENV{HEAPPROF_PERL_VALUES} || q{}) eq q{yes} && ($ENV{HEAPPROF_RECORD} || '') =~ /:0*$$\z/) {
        print STDERR "heapprof: --perl-values: no Devel::HeapProf was built for this perl ($^X, $]); ",
            "run 'heapprof setup perl-install --perl $^X'\n";
        exit 2;
    }
    return;
}

sub load {
    my ($own) = @_;
    my $version = sprintf '-%vd-', $^V;
    my ($root) = $own =~ m{\A(.*)/}s or return;
    local $SIG{__DIE__};
    opendir my $folder, $root or return;
    for my $build (sort grep { index($_, $version) > 0 } readdir $folder) {
        # A module of another build would end the program, and so would one that is cut short.
        open my $file, '<', "$root/$build/identity" or next;
        my $identity = do { local $/; <$file> };
        my $length = -s "$root/$build/lib/auto/Devel/HeapProf/HeapProf.so" || 0;
        next if !defined $identity || $identity ne identity() . "\n$length";
        local @INC = ("$root/$build/lib", @INC);
        last if eval { require Devel::HeapProf; 1 };
        delete $INC{'Devel/HeapProf.pm'};
    }
    return;
}

# What tells this perl from others: its version, its options, its patches, and when it was compiled.
sub identity {
    return join "\n", map { defined $_ ? $_ : '' } $], Internals::V();
}

1;
