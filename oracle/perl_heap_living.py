#!/usr/bin/env python3
"""Asks perl-heap what has leaked in generated programs. In those of the first kind everything is alive, and
much of it is held by modules written in C: nothing may be called leaked. In those of the second kind one
value of each program has leaked in one of eight ways: it has to be found among what is held.
usage: oracle/perl_heap_living.py HEAPPROF [LIVING (200)] [PLANTED (100)] [SEED (1)] [PART ('')]
Each program of the first kind has a part with PART in its name, such as DBD::Pg. Those of DBD::Pg talk to a
PostgreSQL that the script starts in a folder of its own, as another user if root runs it. LIVING_PG names the
folder of the socket of one that runs already.
"""
import contextlib
import glob
import json
import os
import pwd
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# What is held, by the modules that it needs. N is a number of its own in each program; WAIT is where the
# program waits if it does so inside of a callback.
HELD = {
    "DBI statements": ("DBI DBD::SQLite", r"""my $dNUM; $dNUM = DBI->connect("dbi:SQLite:dbname=:memory:", "", "",
        { RaiseError => 1, HandleError => sub { my $e = $dNUM; 0 } });
        $dNUM->do("create table t(a, b)"); $dNUM->do("insert into t values (?, ?)", {}, $_, "x" x $_) for 1 .. N;
        push @KEPT, map { $dNUM->prepare("select a + $_ from t where a > ?") } 1 .. N;"""),
    "DBI, half fetched": ("DBI DBD::SQLite", r"""my $hNUM = DBI->connect("dbi:SQLite:dbname=:memory:");
        $hNUM->do("create table t(a)"); $hNUM->do("insert into t values ($_)") for 1 .. N;
        my $sNUM = $hNUM->prepare_cached("select * from t where a < ?"); $sNUM->execute(1000);
        $sNUM->bind_columns(\my $cNUM); $sNUM->fetch; my $eNUM = $hNUM->prepare("select 1"); $eNUM->execute;
        $eNUM->fetchrow_hashref; push @KEPT, $hNUM, $eNUM;"""),
    "SQLite's functions": ("DBI DBD::SQLite", r"""my $fNUM = DBI->connect("dbi:SQLite:dbname=:memory:"); my @gNUM = 1 .. N;
        $fNUM->sqlite_create_function("f", 1, sub { $gNUM[0] + $_[0] });
        $fNUM->sqlite_create_collation("c", sub { $gNUM[1] cmp $_[0] }); $fNUM->sqlite_commit_hook(sub { @gNUM });
        { package AggNUM; sub new { bless [], shift } sub step { push @{$_[0]}, $_[1] } sub finalize { 0 + @{$_[0]} } }
        $fNUM->sqlite_create_aggregate("g", 1, "AggNUM"); $fNUM->selectrow_array("select f(1), g(2)"); push @KEPT, $fNUM;"""),
    "JSON::XS, incremental": ("JSON::XS", r"""our $iNUM = JSON::XS->new->utf8; $iNUM->incr_parse('["' . "x" x (N * 1000));
        push @KEPT, map { my $j = JSON::XS->new; $j->incr_parse("[$_, {\"a\": [1"); $j } 1 .. N;"""),
    "JSON::XS, filters": ("JSON::XS", r"""{ my @big = map { { a => $_ } } 1 .. N; my $j = JSON::XS->new;
        $j->filter_json_object(sub { $big[0]; $_[0] }); $j->filter_json_single_key_object(k => sub { [@big, $_[0]] });
        $j->filter_json_single_key_object(l => sub { $_[0] }); $j->decode('{"k": 1}'); $j->decode('[{"l": 2}]');
        push @KEPT, $j; }"""),
    "XML::Parser": ("XML::Parser", r"""push @KEPT, map { my $n = { n => $_ }; my $p = XML::Parser->new(Handlers => {
        Start => sub { $n->{start}++ }, Char => sub { $n->{text} .= $_[1] }, End => sub { $n } })->parse_start;
        $p->parse_more("<a><b c='d'>x"); $p } 1 .. N;"""),
    "XML::Parser, trees": ("XML::Parser", r"""push @KEPT, XML::Parser->new(Style => $_)->parse("<a><b c='d'>x</b>" . "<e/>" x N . "</a>")
        for qw(Tree Objects);"""),
    "Storable": ("Storable", r"""push @KEPT, Storable::dclone({ a => [1 .. N], f => Storable::freeze([1 .. N]) }) for 1 .. N;
        { package HookNUM; sub STORABLE_freeze { my ($s) = @_; ("x", $s->{in}) } sub STORABLE_thaw { $_[0]{in} = $_[3] } }
        push @KEPT, Storable::thaw(Storable::freeze(bless { in => [1 .. N] }, "HookNUM"));"""),
    "Text::CSV_XS": ("Text::CSV_XS", r"""push @KEPT, map { my $c = Text::CSV_XS->new({ binary => 1, auto_diag => 0,
        callbacks => { after_parse => sub { my $n = $_[1] } } }); $c->parse("a,b,\"c\"");
        open my $f, "<", \ "a,b\nc,d\n"; $c->bind_columns(\my ($x, $y)); $c->getline($f); $c->types([1, 2]); [$c, $f] } 1 .. N;"""),
    "PDL": ("PDL::Core PDL::Basic PDL::Ops PDL::Slices PDL::Ufunc PDL::Primitive", r"""push @KEPT, map { my $a = PDL->sequence(30, 10); my $b = $a->slice("5:20"); my $c = $b->xchg(0, 1);
        my $d = $a + 1; $c .= 7; $a->set_datatype(6); [$a, $b, $c, $d, $d->sumover, PDL->null] } 1 .. N;"""),
    "Coro": ("Coro", r"""push @KEPT, map { my $n = $_; Coro::async(sub { my @x = (1 .. 10); my %h = (a => [1]); local $KEPT::l = [$n];
        Coro::cede(); sub { my $y = [@_]; Coro::schedule(); $y }->(@x, { q => 1 }); }) } 1 .. N; Coro::cede() for 1 .. 3;"""),
    "Coro, waiting": ("Coro Coro::Semaphore Coro::Channel Coro::Signal", r"""my $qNUM = Coro::Channel->new(N); my $mNUM = Coro::Semaphore->new(0);
        push @KEPT, $qNUM, $mNUM, map { my $n = $_; Coro::async(sub { $qNUM->put({ n => $n });
        for my $x (map { [$_] } 1 .. 3) { my $guard = $mNUM->guard; } }) } 1 .. N; Coro::cede() for 1 .. 3;"""),
    "Coro, in C": ("Coro", r"""push @KEPT, map { my $n = $_; Coro::async(sub { my @s = sort { Coro::cede() if $n % 2; $a <=> $b } 3, 1, 2;
        "abc" =~ s/(b)/Coro::cede(); $1/er; Coro::schedule(); @s }) } 1 .. N; Coro::cede() for 1 .. 2;"""),
    "zlib": ("Compress::Raw::Zlib IO::Compress::Gzip", r"""push @KEPT, map { my $d = Compress::Raw::Zlib::Deflate->new(-Dictionary => "hello");
        my $i = Compress::Raw::Zlib::Inflate->new(); $d->deflate("x" x 1000, my $o); [$d, $i] } 1 .. N;
        push @KEPT, IO::Compress::Gzip->new(\my $bNUM);"""),
    "digests": ("Digest::MD5 Digest::SHA", r"""push @KEPT, map { my $m = Digest::MD5->new; my $s = Digest::SHA->new(256); $m->add("x" x $_);
        $s->add("y"); [$m, $s] } 1 .. N;"""),
    "layers": ("PerlIO::scalar PerlIO::encoding PerlIO::via Encode", r"""{ package ViaNUM; sub PUSHED { bless { d => [1 .. 5] }, shift } sub FILL { -1 } sub WRITE { length $_[1] } }
        push @KEPT, map { my $t = "x\n" x $_; open my $s, "<", \$t; scalar <$s>; open my $e, "<:encoding(UTF-16)", \$t;
        open my $v, ">:via(ViaNUM)", "/dev/null"; print $v "a"; [$s, $e, $v] } 1 .. N;"""),
    "a database with filters": ("DB_File", r"""{ my @l = 1 .. N; my $o = tie my %hNUM, "DB_File", undef, 66, 0666, $DB_File::DB_BTREE; $o->filter_store_key(sub { $l[0]; });
        $hNUM{$_} = "v$_" for 1 .. N; my ($k) = each %hNUM; push @KEPT, \%hNUM; }
        { my $c = DB_File::BTREEINFO->new; my $w = [1]; $c->{compare} = sub { $w->[0]; $_[0] cmp $_[1] };
        tie my %t, "DB_File", undef, 66, 0666, $c; $t{$_} = 1 for 1 .. N; push @KEPT, \%t; }"""),
    "field hashes": ("Hash::Util::FieldHash Scalar::Util", r"""Hash::Util::FieldHash::fieldhash my %fNUM; push @KEPT, \%fNUM, map { my $o = {};
        $fNUM{$o} = { data => [1 .. N] }; $o } 1 .. N; push @KEPT, map { my $r = $KEPT[0]; Scalar::Util::weaken($r); \$r } 1 .. N;"""),
    "tied, each": ("Tie::Hash Tie::Array", r"""tie my %tNUM, "Tie::StdHash"; $tNUM{$_} = [$_] for 1 .. N; each %tNUM; tie my @aNUM, "Tie::StdArray";
        push @aNUM, 1 .. N; my %pNUM = (a => [1], b => [2]); my ($k) = each %pNUM; delete $pNUM{$k}; push @KEPT, \(%tNUM, @aNUM, %pNUM);"""),
    "objects of B": ("B", r"""push @KEPT, map { my $x = { n => $_ }; [$x, B::svref_2object($x), B::svref_2object(sub { $x })] } 1 .. N;"""),
    "Encode, POSIX": ("Encode POSIX IO::Select IO::Socket::INET", r"""push @KEPT, Encode::find_encoding("shiftjis"), Encode::encode("iso-2022-jp", "x"), POSIX::SigSet->new(2),
        POSIX::SigAction->new(sub { 1 }), IO::Select->new(\*STDOUT), IO::Socket::INET->new(Listen => 1), map { qr/$_(?<n>x)/ } 1 .. N;
        POSIX::sigaction(10, $KEPT[-N - 3]);"""),
    "structures in texts": ("", r"""push @KEPT, map { my $x = [$_]; my $s = pack "J2", 7, $x + 0; [$x, \$s] } 1 .. N;"""),
    "DBD::Pg": ("DBI DBD::Pg", r"""my $gNUM = CONNECT;
        push @KEPT, $gNUM, map { my $s = $gNUM->prepare("select generate_series(1, ?), $_"); $s->execute($_); $s->fetch; $s } 1 .. N;
        $gNUM->do("listen x"); push @KEPT, $gNUM->prepare("select ?::text", { pg_server_prepare => 1 });"""),
    "DBD::Pg, bound": ("DBI DBD::Pg", r"""my $gNUM = CONNECT; $gNUM->do("create temp table t(a int, b text, c bytea, d int[])");
        my $s = $gNUM->prepare("insert into t values (?, ?, ?, ?)"); $s->bind_param(3, undef, { pg_type => DBD::Pg::PG_BYTEA() });
        $s->execute($_, "x" x $_, "\0\1", [1 .. $_]) for 1 .. N; my $r = $gNUM->prepare("select * from t where a < ?"); $r->execute(1000);
        $r->bind_columns(\my ($a, $b, $c, $d)); $r->fetch; push @KEPT, $s, $r, $gNUM->selectall_arrayref("select * from t"), $d;
        my $n = $gNUM->prepare('select $1::int + $2::int'); $n->execute(1, 2); push @KEPT, $n;
        my $m = $gNUM->prepare("select :a::int"); $m->bind_param(":a", 5); $m->execute; push @KEPT, $m;"""),
    "DBD::Pg, transactions": ("DBI DBD::Pg", r"""my $gNUM = CONNECT; $gNUM->begin_work; $gNUM->do("create temp table t(a int)");
        $gNUM->pg_savepoint("s$_") for 1 .. N; eval { $gNUM->do("select 1/0") }; $gNUM->pg_rollback_to("s1");
        $gNUM->do("declare c cursor for select generate_series(1, 100)"); my $s = $gNUM->prepare("fetch 5 from c"); $s->execute;
        push @KEPT, $gNUM, $s, $s->fetchrow_hashref, map { $gNUM->prepare_cached("select $_ from t where a = ?") } 1 .. N;"""),
    "DBD::Pg, copy and async": ("DBI DBD::Pg", r"""my $gNUM = CONNECT; $gNUM->do("create temp table t(a int, b text)");
        $gNUM->do("copy t from stdin"); $gNUM->pg_putcopydata("$_\tx\n") for 1 .. N; $gNUM->pg_putcopyend;
        $gNUM->do("copy t to stdout"); my $rowNUM = ""; $gNUM->pg_getcopydata($rowNUM); push @KEPT, $gNUM, \$rowNUM;
        my $oNUM = CONNECT; my $s = $oNUM->prepare("select pg_sleep(0), ?::int", { pg_async => DBD::Pg::PG_ASYNC() }); $s->execute(N);
        push @KEPT, $oNUM, $s;"""),
    "DBD::Pg, callbacks": ("DBI DBD::Pg", r"""my $gNUM; my @heardNUM; $gNUM = CONNECT; $gNUM->{HandleError} = sub { push @heardNUM, $_[0]; 1 };
        local $SIG{__WARN__} = sub { push @heardNUM, $_[0] }; $gNUM->do("do 'begin raise warning ''%'', 1; end'") for 1 .. N;
        $gNUM->{Callbacks} = { prepare => sub { push @heardNUM, $_[1]; return } }; my $s = $gNUM->prepare("select nothing"); $s->execute if $s;
        push @KEPT, $gNUM, $s, \@heardNUM, $gNUM->table_info(undef, "pg_catalog", "pg_class", undef), $gNUM->column_info(undef, undef, "pg_class", "%"),
        $gNUM->pg_notifies, $gNUM->clone;"""),
}
# What waits inside of a callback, so that what C code works with is on its stack or in its memory. What is
# only on its stack is shown as leaked, as the page says: of each type so many values.
ON_STACK = {"in a filter of JSON::XS": {"HASH": 1}}
INSIDE = {
    "in a handler of XML::Parser": ("XML::Parser", r"""XML::Parser->new(Handlers => { Start => sub { my $x = [@_]; WAIT } })->parse("<a>" . "<b/>" x N . "</a>");"""),
    "in a function of SQLite": ("DBI DBD::SQLite", r"""my $wNUM = DBI->connect("dbi:SQLite:dbname=:memory:");
        $wNUM->sqlite_create_function("f", 1, sub { my $x = { a => [@_] }; WAIT }); $wNUM->selectall_arrayref("select f(3)");"""),
    "in Storable's hook": ("Storable", r"""{ package InNUM; sub STORABLE_freeze { my ($s) = @_; main::WAIT } } Storable::freeze([map { [$_] } 1 .. N, bless {}, "InNUM"]);"""),
    "in a filter of JSON::XS": ("JSON::XS", r"""JSON::XS->new->filter_json_object(sub { my $x = [@_]; WAIT })->decode('{"a": {"b": [1, 2, 3]}}');"""),
    "in a callback of Text::CSV_XS": ("Text::CSV_XS", r"""my $cNUM = Text::CSV_XS->new({ callbacks => { after_parse => sub { my $x = [@_]; WAIT } } });
        open my $fNUM, "<", \ "a,b\nc,d\n"; $cNUM->getline($fNUM);"""),
    "in first and sort": ("List::Util", r"""List::Util::first(sub { my @s = sort { WAIT; $a <=> $b } map { $_ + 0 } 3, 1, 2; 0 }, map { [$_] } 1 .. N);"""),
    "in a callback of DBD::Pg": ("DBI DBD::Pg", r"""my $gNUM = CONNECT; $gNUM->{PrintWarn} = 1;
        local $SIG{__WARN__} = sub { my $x = [@_]; WAIT }; $gNUM->do("do 'begin raise warning ''%'', N; end'");"""),
    "in a coroutine": ("Coro", r"""Coro::async(sub { my @x = map { [$_] } 1 .. N; WAIT }); Coro::schedule();"""),
}
# A connection to the server of DBD::Pg's programs.
CONNECT = r"""DBI->connect("dbi:Pg:dbname=postgres;host=$ENV{LIVING_PG}", "postgres", "", { RaiseError => 1, PrintError => 0 })"""
# A value that has leaked: the code sets $ADDRESS to where it is. Nothing of the program leads there at the end.
PLANTED = {
    "a ring": ("", r"""{ my $x = { payload => "p" x N }; $x->{self} = $x; $ADDRESS = "$x"; }"""),
    "a closure of itself": ("", r"""{ my $n = N; my $c; $c = sub { $n ? $c : undef }; $ADDRESS = "$c"; }"""),
    "a weak reference lost": ("Scalar::Util", r"""{ my $w = $KEPT[0]; Scalar::Util::weaken($w); 
        my $o = { parent => $KEPT[0] }; my $r = [$o]; $o->{back} = $r; Scalar::Util::weaken($o->{parent}); $ADDRESS = "$o"; }"""),
    "counted too often by C": ("B", r"""{ my $x = [1 .. N]; $ADDRESS = "$x"; Living::forget($x); }"""),
    "an array in a ring": ("", r"""{ my @x = (1 .. N); my $o = [\@x]; push @x, $o; $ADDRESS = join "", \@x; }"""),
    "a tied ring": ("Tie::Hash", r"""{ my %t; my $o = tie %t, "Tie::StdHash"; $o->{self} = \%t; $ADDRESS = join "", \%t; }"""),
    "a glob": ("Symbol", r"""{ my $g = Symbol::gensym(); *$g = [$g]; *$g = { own => N }; $ADDRESS = "$g"; }"""),
    "code with a pad": ("", r"""{ my @big = (1 .. N); my %own; $own{code} = sub { @big; \%own }; $ADDRESS = join "", $own{code}; }"""),
}
# The program's own module in C: it counts a value once more and forgets it.
FORGET = r"""
#define PERL_NO_GET_CONTEXT
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"
XS(living_forget) { dXSARGS; PERL_UNUSED_VAR(cv); if (items == 1 && SvROK(ST(0))) SvREFCNT_inc_simple_void_NN(SvRV(ST(0))); XSRETURN_EMPTY; }
XS(boot_living) { PERL_UNUSED_VAR(cv); newXS("Living::forget", living_forget, "living.c"); }
"""
LOAD = r"""BEGIN { require DynaLoader; my $l = DynaLoader::dl_load_file("FOLDER/living.so", 0) or die DynaLoader::dl_error();
    DynaLoader::dl_install_xsub("Living::boot", DynaLoader::dl_find_symbol($l, "boot_living"))->(); }
"""
WAIT = r"""{ local $| = 1; print "READY $ADDRESS\n"; sleep 1 while 1; }"""


def has(modules):
    command = ["perl", *(f"-M{module}=" for module in modules.split()), "-e1"]
    return subprocess.run(command, capture_output=True).returncode == 0


def written(draw, chosen, plant, folder):
    """The text of a program with these parts."""
    modules, body = [], []
    for name, (needs, code) in chosen:
        modules += needs.split()
        body.append((name, code))
    if plant:
        modules += plant[0].split()
    lines = ["use strict; no strict 'refs'; no warnings;", LOAD.replace("FOLDER", folder)]
    lines += [f"use {module} ();" for module in dict.fromkeys(modules)]
    lines += ["our (@KEPT, $ADDRESS); $ADDRESS = 0; sub waits " + WAIT]
    lines += ["push @KEPT, {}, [], sub { 1 };"]
    place = draw.randrange(len(body) + 1) if plant else None
    plants = [f"sub plant {numbered(plant[1], draw.randrange(3, 60))} plant();"] if plant else []
    for at, (name, code) in enumerate(body):
        if at == place:
            lines += plants
        code = code.replace("CONNECT", CONNECT).replace("NUM", str(at)).replace("WAIT", "waits()")
        lines.append("# " + name)
        lines.append(numbered(code, draw.randrange(2, 40)))
    if place == len(body):
        lines += plants
    # What was done since has used the memory that was free by then, and the stack.
    lines.append("my @since = map { [$_, { a => $_ }] } 1 .. 200; @since = (); sub deep { my $n = shift; my @x = (1 .. 5); $n ? deep($n - 1) : 0 } deep(20);")
    lines.append("waits();")
    return "\n".join(lines) + "\n"


def numbered(code, number):
    """The text of a part with a number for N."""
    return re.sub(r"(?<![\w$@%&\"'])N(?!\w)", str(number), code)


def started(path):
    """A program that waits, and the address that it says; what it said instead if it ends. A number that is
    an address would hold the value, so it says the value as a text."""
    errors = open(path + ".err", "w+")
    running = subprocess.Popen(["perl", path], stdout=subprocess.PIPE, stderr=errors, text=True)
    for line in running.stdout:
        if line.startswith("READY"):
            return running, int(re.search(r"0x(\w+)|$", line)[1] or "0", 16), ""
    running.wait()
    errors.seek(0)
    return None, 0, errors.read().strip()


def lost_by_modules(heapprof, folder, modules, known={}):
    """How many values of each type Perl and the modules themselves lose while they are loaded."""
    names = " ".join(modules)
    if names not in known:
        path = f"{folder}/loaded.pl"
        with open(path, "w") as file:
            file.write("".join(f"use {name} ();\n" for name in modules) + "our $ADDRESS = 0; " + WAIT)
        running, _, error = started(path)
        found, error = asked(heapprof, running.pid, "--leaked") if running else (None, error)
        if running:
            ended(running)
        known[names] = {row["type"]: row["count"] for row in found["rows"]} if found else {}
    return known[names]


def asked(heapprof, pid, *words):
    done = subprocess.run([heapprof, "perl-heap", f"pid:{pid}", "-f", "json", "-n0", *words], capture_output=True, text=True)
    if done.returncode:
        return None, done.stderr.strip()
    return json.loads(done.stdout), ""


def ended(running):
    running.send_signal(signal.SIGKILL)
    running.wait()


@contextlib.contextmanager
def postgresql(folder):
    """Starts a PostgreSQL whose socket is in a folder of its own, and names that folder in LIVING_PG."""
    places = [os.path.dirname(shutil.which("initdb") or ""), *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True)]
    needed = ("initdb", "postgres", "pg_isready")
    is_whole = lambda place: all(os.access(f"{place}/{name}", os.X_OK) for name in needed)
    place = next(filter(is_whole, places), None)
    if "LIVING_PG" in os.environ or place is None:
        yield
        return
    # A server refuses to run as root.
    user = {}
    if os.geteuid() == 0:
        names = [one.pw_name for one in pwd.getpwall()]
        name = next((name for name in ("postgres", "nobody") if name in names), None)
        if name is None:
            yield
            return
        entry = pwd.getpwnam(name)
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    base = tempfile.mkdtemp()
    server = None
    try:
        if user:
            os.chown(base, user["user"], user["group"])
        log = open(f"{folder}/postgresql.log", "w+")
        options = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "cwd": base, **user}
        subprocess.run([f"{place}/initdb", "-D", f"{base}/data", "-A", "trust", "-U", "postgres", "--no-sync"], check=True, **options)
        command = [f"{place}/postgres", "-D", f"{base}/data", "-k", base, "-c", "listen_addresses=", "-c", "fsync=off"]
        # A program that is killed in the midst of a query keeps its session for a while.
        server = subprocess.Popen([*command, "-c", "max_connections=300"], **options)
        ready = [f"{place}/pg_isready", "-q", "-h", base, "-t", "5"]
        while server.poll() is None and subprocess.run(ready).returncode:
            time.sleep(0.1)
        if server.poll() is not None:
            log.seek(0)
            sys.exit(f"PostgreSQL has ended by itself: {log.read().strip()}")
        os.environ["LIVING_PG"] = base
        yield
    finally:
        os.environ.pop("LIVING_PG", None)
        if server is not None:
            server.send_signal(signal.SIGQUIT)
            server.wait()
        shutil.rmtree(base, ignore_errors=True)


def living(heapprof, folder, draw, count, have, part):
    wrong = tried = lost_all = blocks = ended_early = 0
    failures = {}
    inside = [one for one in INSIDE.items() if one[0] in have]
    number = -1
    while tried < count and ended_early < 10:
        number += 1
        chosen = draw.sample([one for one in HELD.items() if one[0] in have], draw.randrange(2, 6))
        # Each part is tried by itself first.
        every = [one for one in [*HELD.items(), *INSIDE.items()] if one[0] in have and part in one[0]]
        if number < len(every):
            chosen = [every[number]]
        elif number % 5 == 0:
            chosen.append(draw.choice(inside))
        if not any(part in name for name, _ in chosen):
            chosen[0] = draw.choice([one for one in every if one[0] in HELD])
        path = f"{folder}/living-{number}.pl"
        with open(path, "w") as file:
            file.write(written(draw, chosen, None, folder))
        running, _, error = started(path)
        names = ", ".join(name for name, _ in chosen)
        if not running:
            # Some modules do not go together.
            ended_early += 1
            print(f"  {number} ({names}) has ended by itself: {error}")
            continue
        found, error = asked(heapprof, running.pid, "--leaked")
        tried += 1
        modules = dict.fromkeys(module for _, (needs, _) in chosen for module in needs.split())
        lost = dict(lost_by_modules(heapprof, folder, modules))
        for name, _ in chosen:
            for of_type, values in ON_STACK.get(name, {}).items():
                lost[of_type] = lost.get(of_type, 0) + values
        if found is not None:
            # Blocks of C code are no values: a library may keep offsets, from which nobody knows where they are.
            blocks += sum(row["count"] for row in found["rows"] if row["type"] == "C memory") > lost.get("C memory", 0)
            found["rows"] = [row for row in found["rows"] if row["type"] != "C memory" and row["count"] > lost.get(row["type"], 0)]
            lost_all += any(lost.values())
        if found is None or found["rows"]:
            wrong += 1
            print(f"  {number}: {names}: {error}")
            for row in (found or {"rows": []})["rows"][:8]:
                print(f"    {row['retained']} B {row['count']} {row['type']} {row['path']} {row['example']}")
            for name, _ in chosen:
                failures[name] = failures.get(name, 0) + 1
        ended(running)
    print(f"{tried - wrong} of {tried} programs in which all is alive have no leak;", f"in {lost_all} modules lost something while they were loaded, in {blocks} C blocks are not found", failures or "", flush=True)
    return wrong + count - tried


def planted(heapprof, folder, draw, count, have):
    found_all = tried = ended_early = 0
    while tried < count and ended_early < 10:
        number = tried + ended_early
        kind, plant = list(PLANTED.items())[tried % len(PLANTED)]
        chosen = draw.sample([one for one in HELD.items() if one[0] in have], draw.randrange(1, 5))
        path = f"{folder}/planted-{number}.pl"
        with open(path, "w") as file:
            file.write(written(draw, chosen, plant, folder))
        running, address, error = started(path)
        names = ", ".join(name for name, _ in chosen)
        if not running:
            # Some modules do not go together.
            ended_early += 1
            print(f"  {number} ({kind}; {names}) has ended by itself: {error}")
            continue
        tried += 1
        found, error = asked(heapprof, running.pid, "--identify", hex(address))
        path = found["value"]["path"] if found else error
        is_found = path.startswith("(leaked)")
        found_all += is_found
        if not is_found:
            print(f"  {number}: {kind}; {names}: {address:#x} is at {path}")
        ended(running)
    print(f"{found_all} of {tried} planted values are found", flush=True)
    return found_all


def main():
    heapprof = os.path.abspath(sys.argv[1])
    count, plants, seed, part = [*sys.argv[2:], *["200", "100", "1", ""][len(sys.argv) - 2:]][:4]
    count, plants, draw = int(count), int(plants), random.Random(int(seed))
    folder = tempfile.mkdtemp()
    try:
        with open(f"{folder}/living.c", "w") as file:
            file.write(FORGET)
        flags = subprocess.run(["perl", "-MExtUtils::Embed", "-e", "ccopts"], capture_output=True, text=True, check=True)
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", f"{folder}/living.so", f"{folder}/living.c", *flags.stdout.split()], check=True)
        with postgresql(folder):
            have = {name for name, (modules, code) in [*HELD.items(), *INSIDE.items()]
                    if has(modules) and ("CONNECT" not in code or "LIVING_PG" in os.environ)}
            missing = sorted({*HELD, *INSIDE} - have)
            print("left out, because something is missing:", ", ".join(missing) or "nothing", flush=True)
            if not any(part in name for name in have & HELD.keys()):
                sys.exit(f"no part with {part} in its name can be tried")
            wrong = living(heapprof, folder, draw, count, have, part)
            found = planted(heapprof, folder, draw, plants, have)
        sys.exit(wrong != 0 or found < plants * 98 // 100)
    finally:
        if not os.environ.get("LIVING_KEEP"):
            shutil.rmtree(folder, ignore_errors=True)


main()
