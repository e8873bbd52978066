# A Catalyst application that answers so many requests, and leaves a cycle of values behind for each.
package MyApp;
use Moose;
use Catalyst;
__PACKAGE__->config(name => 'MyApp');

package MyApp::Controller::Root;
BEGIN { $INC{'MyApp/Controller/Root.pm'} = $INC{'MyApp.pm'} = 1 }
use Moose;
BEGIN { extends 'Catalyst::Controller' }
__PACKAGE__->config(namespace => '');
our $answered = 0;

sub remember {
    my ($self, $number) = @_;
    my $session;
    $session =
        { number => $number, lines => [ map { "line $_" } 1 .. 10 ] };
    $session->{self} = $session;
    return $number;
}

sub index :Path :Args(0) {
    my ($self, $c) = @_;
    $c->res->body('answer ' . $self->remember(++$answered));
}

package main;
MyApp->setup;
my $app = MyApp->psgi_app;
open my $null, '<', '/dev/null' or die "/dev/null: $!";
for my $i (1 .. shift) {
    my $response = $app->({
        REQUEST_METHOD => 'GET', PATH_INFO => '/', SCRIPT_NAME => '', QUERY_STRING => '',
        SERVER_NAME => 'x', SERVER_PORT => 80, SERVER_PROTOCOL => 'HTTP/1.1', HTTP_HOST => 'x',
        REMOTE_ADDR => '127.0.0.1', 'psgi.version' => [ 1, 1 ], 'psgi.url_scheme' => 'http',
        'psgi.input' => $null, 'psgi.errors' => \*STDERR, 'psgi.multithread' => 0,
        'psgi.multiprocess' => 0, 'psgi.run_once' => 0, 'psgi.nonblocking' => 0, 'psgi.streaming' => 0,
    });
    $response->(sub { $response = $_[0] }) if ref $response eq 'CODE';
    print "$response->[0] @{ $response->[2] }\n";
    Devel::HeapProf::mark('warm') if $i == 30 && $INC{'Devel/HeapProf.pm'};
}
