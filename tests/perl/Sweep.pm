# Loads sweep.so, which is beside this file. Sweep::wait() writes the counts and waits.
package Sweep;
use strict;
use warnings;
require DynaLoader;
my ($library) = grep { -e } map { "$_/sweep.so" } @INC;
my $loaded = DynaLoader::dl_load_file($library, 0) or die DynaLoader::dl_error();
DynaLoader::dl_install_xsub('Sweep::boot', DynaLoader::dl_find_symbol($loaded, 'boot_sweep'))->();
1;
