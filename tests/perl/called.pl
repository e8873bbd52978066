# What embedded.c runs.
sub called { our $kept .= 'x' x 50_000; 1 }
sub helper { my $big = 'y' x 90_000; return length $big }
helper() for 1 .. 5;
1;
