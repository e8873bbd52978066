#!/usr/bin/env python3
"""Holds values in each way that Perl knows, and asks perl-heap what has leaked: no more than of a bare
program. What one finds missing in the walk stands here.
usage: oracle/perl_heap_held.py HEAPPROF [ROOT...]   (ROOTs of oracle/prove-perls.sh; they need root)
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

from perl_heap_peers import HOME, build, inside

# More than a bare program's by so much is a value that was lost.
ROOM = 150
# Perl itself loses these, or they are only on C's stack: what DESTROY has shifted, a method order that was changed.
KNOWN = {"destroyscope", "mro"}
PROGRAMS = {
    'base': r'''''',
    'overload': r'''package Ov; use overload q("")=>sub{"ov"}, "+"=>\&plus; sub plus{1} package main; our $ov=bless {},"Ov"; my $s="$ov"; undef *{"Ov::plus"}; delete $Ov::{plus};''',
    'state': r'''use feature "state"; sub st { state $v = { x=>[1..30] }; state @l = (1..20); $v } st();''',
    'lexsub': r'''use feature "state"; our $k; { my sub lx { my $z=[1..10]; $z } lx(); $k=\&lx; } sub outer { my $q=[1..9]; my sub in { $q } in() } outer();''',
    'eachdel': r'''our %h = map { $_ => { v=>$_ } } 1..20; my ($k) = each %h; delete $h{$k};''',
    'lv': r'''our $big="abc" x 100; our $lv=\substr($big,1,2); our $lp=\pos($big); our $lvv=\vec($big,1,8); sub f { \$_[0] } our %T; our $de=f($T{nk}); $$de={deferred=>[1..10]}; delete $T{nk}; our $de2=f($T{z});''',
    'regex': r'''our $qr = qr/(?<y>\d+)(?{ $main::cnt++ })x/; our $qr2 = qr/$qr|foo(?:bar|baz|quux)+/i; "12x" =~ $qr2; our @c = map { qr/abc$_/ } 1..3;''',
    'weak': r'''use Scalar::Util qw(weaken); our $s={a=>1}; our @w = map { my $r=$s; weaken $r; $r } 1..5; weaken($_) for @w;''',
    'handles': r'''open(our $fh,"<",$0); open(my $l,"<",$0); our $g=\*STDOUT; our $io=*STDOUT{IO}; opendir(our $dh,"."); open(our $m,">",\our $buf); print $m "zzz"; open(our $u,"<:utf8",$0); our $line=<$u>; open(our $p,"-|","true");''',
    'sym': r'''our $anon = do { local *FH; *FH }; use Symbol; our $sym=gensym; @{*$sym}=([1..10]);''',
    'const': r'''use constant { A=>[1,2,3], B=>"b" }; sub proto($$;@) { } $main::{CR}=\"constant"; sub lst () { (1,2,3) }''',
    'tiedarr': r'''package TA; sub TIEARRAY { bless { d=>[1..10]} } sub FETCH { $_[0]{d}[$_[1]] } sub FETCHSIZE { 10 } package main; tie our @ta,"TA"; our $tae=\$ta[3]; my $x=$ta[2];''',
    'tiedref': r'''package TH; sub TIEHASH { bless {} } sub FETCH { [1..100] } package main; tie our %t,"TH"; our $r=\$t{x}; my $z=$$r;''',
    'local': r'''our $L={orig=>[1..20]}; our %T; sub lo { local $L={new=>1}; local $T{k}=[5]; local $T{[]}=1; local @ENV{qw(A B)}=(1,2); local $_={u=>1}; local $SIG{ALRM}=sub{1}; local @main::arr=([1..100]); local $/=undef; Sweep::wait() } lo();''',
    'subst': r'''my $s="aXbXc"; my $d=0; $s =~ s{X}{ if (!$d++) { my $t=[1..5]; Sweep::wait() } "y" }ge;''',
    'substkeep': r'''sub g { my $s=shift; $s =~ s{(X)}{ my $t=[1..5]; Sweep::wait(); "y" }gre } my $o=g("aXbXc");''',
    'evalstr': r'''eval q{ my $q={e=>[1..50]}; Sweep::wait(); 1 } or die $@;''',
    'foreach': r'''for my $x (map { {a=>[$_]} } 1..3) { for my $y ("a".."c") { for our $z ([1],[2]) { for (my $i=0;$i<3;$i++) { Sweep::wait() } } } }''',
    'sort': r'''my @s = sort { Sweep::wait(); $a <=> $b } map { 0+$_ } 3,1,2;''',
    'sortsub': r'''sub by { my $t={q=>1}; Sweep::wait(); $a <=> $b } my @s = sort by map { $_*2 } 3,1,2;''',
    'mapgrep': r'''my @s = map { my $r=[$_]; Sweep::wait() if $_==2; $r } 1..3;''',
    'args': r'''sub f { my $x=shift; shift; Sweep::wait() } f([1],{a=>1},"tmp".$$,[3]);''',
    'goto': r'''sub g { Sweep::wait() } sub f { @_=([1],[2]); goto &g } f(1);''',
    'autoload': r'''sub AUTOLOAD { our $AUTOLOAD; Sweep::wait() unless $AUTOLOAD =~ /DESTROY/ } nosuch([1..5]);''',
    'destroy': r'''package D; sub DESTROY { Sweep::wait() } package main; { my $x=bless {big=>[1..50]},"D"; undef $x; }''',
    'destroyscope': r'''package D; sub DESTROY { my $s=shift; Sweep::wait() } package main; sub f { my $x=bless {big=>[1..50], o=>{}},"D"; my @y=([1],[2]); 1 } f();''',
    'require': r'''open(my $o,">","/tmp/rv/Req.pm"); print $o "package Req; our \$x=[1..10]; my \$lex={a=>1}; Sweep::wait(); 1;"; close $o; push @INC,"/tmp/rv"; require Req;''',
    'BEGIN': r'''BEGIN { my $x=[1..10]; Sweep::wait() } print 1;''',
    'usewait': r'''BEGIN { open(my $o,">","/tmp/rv/Req.pm"); print $o "package Req; use strict; sub import { Sweep::wait() } sub xx { my \$a=[1]; 1 } 1;"; close $o; push @INC,"/tmp/rv"; } sub before { my $q=1; my %h=(a=>[1..5]); \%h } use Req; sub after {1}''',
    'sigdie': r'''local $SIG{__DIE__}=sub { my $e=shift; Sweep::wait() }; sub f { my $c={ctx=>1}; die {code=>[1..5]} } f();''',
    'signal': r'''$SIG{USR1}=sub { Sweep::wait() }; my $z=[1..5]; kill USR1=>$$; for(1..1e6){}''',
    'magicpos': r'''our $x="aab"; $x =~ /a/g; our $tainted=$ENV{PATH}; our @isa=("X"); @Foo::ISA=("Bar"); our $sub=sub {1}; bless $sub,"Foo"; our $v=v1.2.3; our $ver=version->new("1.2");''',
    'utf8': r'''our $u="\x{263a}" x 1000; my $i=index($u,"\x{263a}",500); my $p=pos($u); our $sv=substr($u,300,1);''',
    'fieldhash': r'''use Hash::Util::FieldHash "fieldhash"; fieldhash our %fh; our $o={}; $fh{$o}={data=>[1..10]};''',
    'stored': r'''use Storable; our $c=Storable::dclone({a=>[1..5]}); use Data::Dumper; my $d=Dumper($c); use POSIX; my $t=POSIX::strftime("%Y",localtime);''',
    'json': r'''use JSON::PP; our $j=JSON::PP->new; my $x=$j->decode(q({"a":[1,2]}));''',
    'encode': r'''use Encode; our $e=find_encoding("UTF-16"); my $b=encode("UTF-16","x"); our $l=find_encoding("latin1");''',
    'select4': r'''use IO::Select; use IO::Socket::INET; our $s=IO::Socket::INET->new(Listen=>1); our $sel=IO::Select->new($s);''',
    'sprintf': r'''our @x=map { sprintf "%vd %s", "1.2.3", $_ } 1..3; our $re=join "|", 1..100; our $m="50" =~ /^(?:$re)$/o; our @sp=split /(?<=,)/, "a,b,c"; my $tr="abc"; $tr =~ tr/a-c/\x{100}-\x{102}/; $tr =~ tr/\x{100}-\x{200}//cd;''',
    'stringevalsub': r'''for (1..3) { eval "sub es$_ { my \$x=[1..5]; \$x } 1" } our @cl = map { my $n=$_; sub { eval q{$n} } } 1..3; $_->() for @cl;''',
    'undefsub': r'''sub gone { my $x=[1..100]; $x } gone(); our $ref=\&gone; undef &gone; sub two {1} { no warnings; *two = sub { 2 }; } delete $main::{two};''',
    'stashdel': r'''eval q(package Foo; @BIG=(1..2000); sub m { 1 } 1); our $o=bless [], "Foo"; delete $main::{"Foo::"};''',
    'mro': r'''@A::ISA=(); @B::ISA=("A"); @C::ISA=("A"); @D::ISA=("B","C"); use mro; mro::set_mro("D","c3"); sub A::m {1} sub D::m { $_[0]->next::method } D->m; D->can("zip"); D->isa("A"); eval { D->nometh };''',
    'hint': r'''sub h { BEGIN { $^H{myhint}="val"; $^H |= 0x20000; $^H{other}=[1..5] } Sweep::wait() } h();''',
    'srcfilter': r'''use Filter::Simple (); 1;''',
    'heredoc': r'''my $x = <<"E" . join ",", map { [1] } 1..3;
abc
E
''',
    'listconst': r'''our @a; for (1..3) { push @a, [(1,"two",[3])] } my ($p,$q)=@{$a[0]}[0,1]; our %s=(a=>1,b=>2); my @v=@s{qw(a b)}; our $mc="Foo"; sub Foo::bar {1} Foo->bar; $mc->bar; my $meth="bar"; Foo->$meth;''',
    'given': r'''no warnings; use feature "switch"; given ([1..5]) { when (1) {} default { Sweep::wait() } }''',
    'dieineval': r'''our $e; for(1..10){ eval { my $x=[1..5]; die {c=>$_} }; $e=$@ } eval { eval { die "inner\n" }; die "outer\n" };''',
    'refaddrint': r'''our $r={own=>1}; our $n=0+$r; our %io=($r=>{x=>1});''',
    "anonymous_class": r'''*{"Anon1::m"} = sub { 1 }; @{"Anon1::DATA"} = (1 .. 5000); our $o = bless {}, "Anon1"; delete $main::{"Anon1::"};''',
}


def leaked(heapprof, root, work, program):
    """Bytes that have leaked, or what went wrong."""
    place = work[len(root):]
    with open(f"{work}/held.pl", "w") as file:
        file.write(program + "\nSweep::wait();\n")
    out = open(f"{work}/out", "w+")
    running = subprocess.Popen(inside(root, "env", f"SWEEP_FD={out.fileno()}", "perl", f"-I{place}", "-MSweep",
                                      f"{place}/held.pl"), stdout=subprocess.DEVNULL,
                               stderr=open(f"{work}/err", "w"), pass_fds=[out.fileno()])
    try:
        for _ in range(100):
            time.sleep(0.05)
            if os.path.getsize(f"{work}/out") or running.poll() is not None:
                break
        swept = open(f"{work}/out").read().splitlines()
        if not swept:
            return None, open(f"{work}/err").read().strip().split("\n")[0]
        pid = json.loads(swept[0])["pid"]
        done = subprocess.run([heapprof, "perl-heap", f"pid:{pid}", "--leaked", "-f", "json", "-n0"],
                              capture_output=True, text=True)
        if done.returncode:
            return None, done.stderr.strip()
        found = json.loads(done.stdout)
        rows = [f"{row['retained']} B {row['type']} {row['path']} {row['example']}" for row in found["rows"]]
        return found["retained"], rows
    finally:
        running.kill()
        running.wait()


def main():
    heapprof, bad = sys.argv[1], 0
    for root in ["", *sys.argv[2:]]:
        root = root.rstrip("/")
        work = tempfile.mkdtemp(dir=f"{root}/tmp")
        os.chmod(work, 0o755)
        try:
            for file in ("sweep.c", "Sweep.pm"):
                shutil.copy(f"{HOME}/tests/perl/{file}", work)
            build(root, work)
            bare, _ = leaked(heapprof, root, work, "")
            right, skipped = 0, []
            for name, program in PROGRAMS.items():
                found, rows = leaked(heapprof, root, work, program)
                if found is None:
                    skipped.append(name)
                elif found <= bare + ROOM or name in KNOWN:
                    right += 1
                else:
                    bad += 1
                    print(f"  {name}: {found} B have leaked, {bare} B of a bare program")
                    print("\n".join(f"    {row}" for row in rows))
            print(f"{root or '/'}: {right} of {len(PROGRAMS)} hold what they hold; skipped: {', '.join(skipped) or 'none'}",
                  flush=True)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    sys.exit(bad != 0)


main()
