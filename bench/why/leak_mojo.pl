# A Mojolicious application that never forgets a session.
use Mojolicious::Lite -signatures;
our %SESSIONS;

sub remember ($id) {
    $SESSIONS{$id} = { id => $id, cart => [ map { "item $_ of $id" } 1 .. 100 ] };
}

get '/' => sub ($c) {
    remember("s" . keys %SESSIONS) for 1 .. 10;
    $c->render(text => "kept\n");
};
get '/quit' => sub ($c) { exit 0 };
app->log->level('fatal');
app->start;
