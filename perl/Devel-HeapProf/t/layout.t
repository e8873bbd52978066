# What the module says of Perl's structures.
use strict;
use warnings;
use Test::More;

use Devel::HeapProf;

my %fields = Devel::HeapProf::_fields();
cmp_ok scalar(keys %fields), '>', 60, 'fields';
is $fields{'SV.sv_any'}, 0, 'a head begins with its body';
is $fields{'SV.sv_flags'}, 12, 'flags';
cmp_ok $fields{OP_max}, '>', 300, 'ops';
my @odd = grep { $fields{$_} !~ /\A\d+\z/ } keys %fields;
is_deeply \@odd, [], 'numbers';
done_testing;
