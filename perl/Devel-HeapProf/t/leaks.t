# What blocks of code leave behind. heapprof must trace values: heapprof record --perl-values -- prove -b t
use strict;
use warnings;
use Test::More;

use Devel::HeapProf;

if (!Devel::HeapProf::is_tracing()) {
    my @none = (Devel::HeapProf::leaks { my $c = {}; $c->{c} = $c }, Devel::HeapProf::growth('none'));
    is_deeply \@none, [], 'nothing is said where nothing is traced';
    is scalar(Devel::HeapProf::mark('text')), undef, 'mark';
    done_testing;
    exit;
}

package Kept { sub new { my $class = shift; return bless {@_}, $class } }
package main;

sub leaves {
    my ($what, $block) = @_;
    $block->() for 1 .. 2;    # what is made once
    return Devel::HeapProf::leaks { $block->() };
}

my @kept;
my %planted = (
    cycle   => sub { my $c = {}; $c->{self} = $c },
    global  => sub { push @kept, 'x' x 10 },
    closure => sub { my $again; $again = sub { $again } },
    object  => sub { my $k = Kept->new(name => 'k'); $k->{k} = $k },
    code    => sub { my $n = 1; push @kept, sub { $n } },
    handle  => sub { open my $f, '<', '/dev/null' or die; push @kept, $f },
);
for my $name (sort keys %planted) {
    my @leaks = leaves($name, $planted{$name});
    cmp_ok scalar(@leaks), '>', 0, "$name: found";
    my @elsewhere = grep { $_->{stack}[0] !~ /leaks\.t:\d+\z/ } @leaks;
    is_deeply \@elsewhere, [], "$name: on its line";
}
my ($object) = grep { defined $_->{class} } leaves(object => $planted{object});
is $object->{class}, 'Kept', 'class';
is $object->{type}, 'HASH', 'type';
is $object->{count}, 1, 'count';
cmp_ok $object->{bytes}, '>', 100, 'bytes';

# Ops that introduce a variable themselves: the row of the variable is there, and not of the call before.
my %variables = (
    ARRAY  => sub { my @f = split /,/, 'a,b'; push @kept, \@f },
    SCALAR => sub { my $s = "a$#kept-b$#kept"; push @kept, \$s },
);
for my $type (sort keys %variables) {
    my @rows = grep { $_->{type} eq $type } leaves($type, $variables{$type});
    cmp_ok scalar(@rows), '>', 0, "$type: the variable of a my is found";
}

my %clean = (
    values   => sub { my @list = map { { n => $_ } } 1 .. 10; my %of = map { ($_ => [$_]) } @list; scalar keys %of },
    closures => sub { my $n = 2; my $twice = sub { $n * $_[0] }; $twice->(4) },
    dies     => sub { eval { die { why => 'thrown' } }; undef $@; 1 },
    strings  => sub { my $text = join ',', 1 .. 100; $text =~ /(\d+),(\d+)\z/; "$1$2" },
    sorts    => sub { my @s = sort { $b <=> $a } 1 .. 50; $s[0] },
);
for my $name (sort keys %clean) {
    my @leaks = map { leaves($name, $clean{$name}) } 1 .. 20;
    is_deeply [ map { $_->{text} } @leaks ], [], "$name: nothing is left";
}
done_testing;
