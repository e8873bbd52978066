//! Compares `perl-heap` with a sweep from within the program, and checks its findings on planted
//! objects.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use heapprof_tests::built::have;
use heapprof_tests::harness::{ok, run};
use heapprof_tests::needs::perl_module;
use serde_json::Value;

use crate::perl_hazards::{compile, embed_options};
use crate::process::{json, number};
use crate::scripts::{has_threads, program};

/// A script that waits. It is killed at the end of the test.
struct Waiting {
    child: Child,
    out: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Waiting {
    /// Starts a script. Returns `None` without a perl with headers, or without a compiler.
    fn start(script: &str) -> Option<Self> {
        let options = embed_options()?;
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("sweep.so");
        let before = format!("-shared -fPIC -w -o {}", library.display());
        compile(folder.path(), &before, "sweep.c", &options);
        std::fs::copy(program("Sweep.pm"), folder.path().join("Sweep.pm")).unwrap();
        let path = folder.path().join("script.pl");
        std::fs::write(&path, format!("{script}\nSweep::wait();\n")).unwrap();
        let mut child = Command::new("perl")
            .arg(format!("-I{}", folder.path().display()))
            .arg("-MSweep")
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, out, folder })
    }

    /// Returns the next sweep, which is a line of JSON about a waiting interpreter.
    fn sweep(&mut self) -> Value {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
    }

    fn target(&self) -> String {
        format!("pid:{}", self.child.id())
    }

    fn ask(&self, words: &[&str]) -> Value {
        let target = self.target();
        json(&ok(&[
            &["perl-heap", &target, "-f", "json", "-n", "0"],
            words,
        ]
        .concat()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Largest number of bytes that Perl itself loses in a program with some modules.
const LOST_BY_PERL: i64 = 1000;

/// Returns the counts of an interpreter, in the order of Perl's types.
fn types(interpreter: &Value) -> Vec<i64> {
    const NAMES: [&str; 17] = [
        "NULL", "IV", "NV", "PV", "INVLIST", "PVIV", "PVNV", "PVMG", "REGEXP", "PVGV", "PVLV",
        "PVAV", "PVHV", "PVCV", "PVFM", "PVIO", "PVOBJ",
    ];
    let of = |name: &&str| number(&interpreter["types"][*name]);
    NAMES.iter().map(of).collect()
}

fn swept(sweep: &Value) -> Vec<i64> {
    sweep["types"]
        .as_array()
        .unwrap()
        .iter()
        .map(number)
        .collect()
}

/// Rings of three kinds, values that are reachable, and values that must not be taken for leaked.
const PLANTED: &str = r#"
use strict; use warnings;
use Scalar::Util 'weaken';
package Node { sub new { my ($class, %a) = @_; bless {%a}, $class } }
for (1 .. 100) { my $n = Node->new(id => $_, payload => "y" x 500); $n->{self} = $n; }
for (1 .. 100) { my ($a, $b) = ([], {}); push @$a, $b; $b->{back} = $a; }
for (1 .. 100) { my $code; my $n = $_; $code = sub { $n ? $code : undef }; }
our @kept = map { my $n = Node->new; $n->{self} = $n; $n } 1 .. 50;
our @weak = map { my $n = Node->new; $n->{self} = $n; weaken $n->{self}; $n } 1 .. 50;
sub keep { my $big = "k" x (1 << 20); length $big } keep();
sub deep { my ($left) = @_; my $buffer = "d" x (1 << 20); $left ? deep($left - 1) : 0 } deep(49);
tie our %tied, 'Tied'; package Tied { sub TIEHASH { bless [ 1 .. 10 ] } }
local our $saved = [ "kept by local" ]; local $saved = 1;
our $anonymous = do { my $inner = 7; sub { $inner++ } };
format STDERR =
@<<< @>>>
$main::saved, $main::saved
.
"2026-11" =~ /(?<year>\d+)-(?<month>\d+)/;
"#;

#[test]
fn values_and_bytes_are_those_from_within() {
    let Some(mut waiting) = Waiting::start(PLANTED) else {
        return;
    };
    let sweep = waiting.sweep();
    let found = waiting.ask(&[]);
    let interpreter = &found["interpreters"][0];
    assert_eq!(types(interpreter), swept(&sweep));
    assert_eq!(interpreter["sv_count"], sweep["count"]);
    assert_eq!(found["bytes"], found["malloc"]);
    // malloc counts its thread caches as allocated.
    let given = number(&found["bytes"]) + number(&found["malloc_cached"]);
    let said = number(&sweep["malloc"]);
    let apart = (given - said).abs() * 100;
    assert!(apart <= said, "{given} and {said}");
    let part = |name: &str| {
        let parts = found["parts"].as_array().unwrap();
        let part = parts.iter().find(|part| part["name"] == name);
        part.map_or(0, |part| number(&part["bytes"]))
    };
    let leaked = part("(leaked)");
    assert!((100_000..250_000).contains(&leaked), "{leaked}");
    assert!(part("(not Perl's)") * 20 < given, "{found}");
}

#[test]
fn planted_cycles_are_found_and_no_other() {
    let Some(mut waiting) = Waiting::start(PLANTED) else {
        return;
    };
    waiting.sweep();
    let cycles = waiting.ask(&["--cycles"]);
    assert_eq!(cycles["cycles"], 300, "{cycles}");
    let rows = cycles["rows"].as_array().unwrap().iter();
    let mut rows: Vec<_> = rows
        .map(|row| (number(&row["count"]), row["closed_by"].as_str().unwrap()))
        .collect();
    rows.sort_unstable();
    assert_eq!(rows, [(100, "[0]"), (100, "my $code"), (100, "{self}")]);
}

/// Values kept by the variables of a sub are listed by its recursion depth.
#[test]
fn pads_keep_what_a_sub_had() {
    let Some(mut waiting) = Waiting::start(PLANTED) else {
        return;
    };
    waiting.sweep();
    let pads = waiting.ask(&["--pads"]);
    let rows = pads["rows"].as_array().unwrap();
    let of = |sub: &str| {
        let rows = rows.iter().filter(|row| row["sub"] == sub);
        let depths = rows.map(|row| {
            assert!(number(&row["retained"]) >= 1 << 20, "{row}");
            number(&row["depth"])
        });
        let mut depths: Vec<i64> = depths.collect();
        depths.sort_unstable();
        depths
    };
    assert_eq!(of("main::;&keep"), [1]);
    let depths = of("main::;&deep");
    assert_eq!(depths, (1..=50).collect::<Vec<_>>());
    let found = waiting.ask(&[]);
    let variables = found["variables"].as_array().unwrap().iter();
    let paths: Vec<&str> = variables.filter_map(|row| row["path"].as_str()).collect();
    assert!(paths.contains(&"main::;&deep;<pad depth 50>;my $buffer"));
    assert!(paths.contains(&"main::;&keep;<pad depth 1>;my $big"));
}

/// Each thread has its own interpreter.
#[test]
fn threads_have_interpreters() {
    const THREADS: &str = r#"
use threads;
pipe my $from_threads, my $to_main or die;
my @threads = map { my $n = $_; threads->create(sub {
    my @own = map { { id => $_ } } 1 .. 100 * $n; syswrite $to_main, 'x'; Sweep::wait() }) } 1 .. 3;
sysread $from_threads, my $byte, 1 for 1 .. 3;
"#;
    if !has_threads() {
        return;
    }
    let Some(mut waiting) = Waiting::start(THREADS) else {
        return;
    };
    let mut within: Vec<Vec<i64>> = (0..4).map(|_| swept(&waiting.sweep())).collect();
    let found = waiting.ask(&[]);
    let interpreters = found["interpreters"].as_array().unwrap();
    let mut from_outside: Vec<Vec<i64>> = interpreters.iter().map(types).collect();
    within.sort();
    from_outside.sort();
    assert_eq!(from_outside, within);
}

/// Texts do not leave the process, and with --anonymize keys do not either.
#[test]
fn secrets_are_not_told() {
    const SECRETS: &str = r#"
our $text = "secret-1-of-text"; our @list = ("secret-2-of-list") x 3;
our %hash = (plain => "secret-3-of-hash", "topkey-1-of-hash" => { "topkey-2-of-hash" => 1 });
my $lexical = "secret-4-of-my"; my $code = sub { my $inner = "secret-5-constant"; $lexical };
our $object = bless { name => "secret-6-of-object" }, 'Safe'; our $copy = $text;
our $pattern = qr/secret-7-pattern/; $main::object->{name} =~ $pattern; $ENV{HIDDEN} = "secret-8-of-env";
our $ring = { name => "secret-9-of-ring" }; $ring->{self} = $ring; undef $ring; $code->();
our $utf = "secret-10-\x{263a}"; open our $handle, '<', \ "secret-11-in-memory"; our $chopped = "xxsecret-12"; $chopped =~ s/^xx//;
"#;
    let Some(mut waiting) = Waiting::start(SECRETS) else {
        return;
    };
    waiting.sweep();
    let target = waiting.target();
    let written = waiting.folder.path().join("h.pb.gz");
    let written = written.to_str().unwrap();
    let found = waiting.ask(&["--size", "$text"]);
    let address = found["value"]["address"].as_str().unwrap();
    let questions: [&[&str]; 10] = [
        &["-o", written],
        &["-f", "json"],
        &["-f", "csv"],
        &["--cycles"],
        &["--pads", "-f", "json"],
        &["--size", "$text"],
        &["--size", "%hash", "-f", "json"],
        &["--identify", address],
        &["--who", address],
        &["--leaked"],
    ];
    for words in questions {
        for more in [&[][..], &["--anonymize"]] {
            let words = [&["perl-heap", &target, "-n", "0"], words, more].concat();
            let done = run(waiting.folder.path(), &words);
            assert_eq!(done.code, 0, "{words:?}: {}", done.err);
            let mut said = done.out + &done.err;
            if words.contains(&written) {
                said += &ok(&["convert", "--to", "folded", written]);
                said += &ok(&["traces", "-n", "0", written]);
            }
            assert!(!said.contains("secret-"), "{words:?}: {said}");
            if !more.is_empty() {
                assert!(!said.contains("topkey-"), "{words:?}: {said}");
            }
        }
    }
    let shown = ok(&["perl-heap", &target, "--size", "$text", "--contents"]);
    assert!(shown.contains("secret-1-of-text"), "{shown}");
    let cut = ok(&["perl-heap", &target, "--identify", address, "--contents=8"]);
    assert!(
        cut.contains("contents: secret-1…") && !cut.contains("of-text"),
        "{cut}"
    );
}

/// A core file gives the same answers as the process.
#[test]
fn a_core_file_has_the_same_values() {
    if !have(&["gcore"]) {
        return;
    }
    let Some(mut waiting) = Waiting::start(PLANTED) else {
        return;
    };
    waiting.sweep();
    let core = waiting.folder.path().join("core");
    let made = Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(waiting.child.id().to_string())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let core = core.with_extension(waiting.child.id().to_string());
    let target = format!("core:{}", core.display());
    let of_core = json(&ok(&["perl-heap", &target, "-f", "json", "-n", "0"]));
    let of_process = waiting.ask(&[]);
    for part in [
        "interpreters",
        "bytes",
        "malloc",
        "types",
        "parts",
        "variables",
    ] {
        assert_eq!(of_core[part], of_process[part], "{part}");
    }
}

/// Cases found by attacks: none of these values is leaked, and each has its own name.
#[test]
fn what_is_held_in_unusual_ways_has_not_leaked() {
    const HELD: &str = r#"
package A1; our %DATA = map { $_ => "x" x 100 } 1 .. 500;
package B1; our %DATA = map { $_ => "y" x 100 } 1 .. 500;
package main;
our $code = \&Foo::bar; sub Foo::bar { 1 }
open FH, "<", "/etc/passwd"; our @FH = map { [$_] } 1 .. 5000; my $line = <FH>; local *FH;
require Storable;
our ($one, $two); $one = join ",", 1 .. 20000; $two = $one;
our $closure = do { my @log = map { "line $_" } 1 .. 500; sub { scalar @log } };
our %many = map { ("k$_" => "v$_") } 1 .. 20000; our @sparse; $sparse[5] = "five"; $#sparse = 9;
our $pattern = qr/(\d+)(?{ $main::count++ })/; "7" =~ $pattern;
*{"Anon1::m"} = sub { 1 }; @{"Anon1::DATA"} = (1 .. 5000); our $o = bless {}, "Anon1"; delete $main::{"Anon1::"};
package TH; sub TIEHASH { bless {} } sub FETCH { [ 1 .. 1000 ] } package main;
tie our %tied, "TH"; our $element = \$tied{x}; my $fetched = $$element;
my @r = map { my $x; $x = \$x; \$x } 1 .. 100; undef @r;
"#;
    let Some(mut waiting) = Waiting::start(HELD) else {
        return;
    };
    waiting.sweep();
    let found = waiting.ask(&[]);
    let variables = found["variables"].as_array().unwrap();
    let held = |path: &str| {
        let row = variables.iter().find(|row| row["path"] == path);
        row.map_or(0, |row| number(&row["retained"]))
    };
    assert!(held("main::;A1::;%DATA") > 50_000 && held("main::;B1::;%DATA") > 50_000);
    // A text that two variables share is retained by neither.
    assert!(held("main::;$one") < 1000 && held("main::;$two") < 1000);
    assert_eq!(waiting.ask(&["--cycles"])["cycles"], 100);
    let leaked = waiting.ask(&["--leaked"]);
    let rings = 100 * 24;
    let lost = number(&leaked["retained"]) - rings;
    assert!(lost < LOST_BY_PERL, "{leaked}");
    let size = |variable: &str| waiting.ask(&["--size", variable, "--contents"]);
    assert_eq!(size("&Foo::bar")["value"]["path"], "main::;Foo::;&bar");
    assert_eq!(size("$many{k17}")["contents"], "v17");
    assert_eq!(size("$sparse[-5]")["contents"], "five");
    assert!(number(&size("$closure my @log")["retained"]["given"]) > 10_000);
    assert!(number(&size("$one")["total_size"]["given"]) > 100_000);
    let none = run(
        waiting.folder.path(),
        &["perl-heap", &waiting.target(), "--size", "$many{\"\"}"],
    );
    assert!(none.err.contains("%many has no {}"), "{}", none.err);
}

/// C structures in the texts of scalars, as modules keep them, made by Perl alone. Bytes after the
/// end of a text, and bytes from before it was emptied, are old. No address may be left as a
/// number, as in an operator's result.
const STRUCTURES: &str = r#"
use strict; $| = 1;
our ($held, $pointed, $cut, $emptied);
sub number { my $text = shift; pack "J", hex $text }
sub lost {
    my $value = shift;
    Internals::SvREFCNT(@$value, 1 + Internals::SvREFCNT(@$value));
    "$value" =~ /0x(\w+)/ or die;
    "$1";
}
my @lost = map { lost([1 .. 10]) } 1 .. 3;
$held = number("7") . number($lost[0]);
$cut = number("7") . number("8") . number($lost[1]);
substr($cut, 8) = "";
$emptied = "somewhat" . number("8") . number("9") . number($lost[2]);
number("1");
open my $nothing, "<", \"" or die;
read $nothing, $emptied, 100;
print "@lost\n";
"#;

#[test]
fn a_structure_in_a_text_holds_values_and_its_rest_does_not() {
    let Some(mut waiting) = Waiting::start(STRUCTURES) else {
        return;
    };
    let mut line = String::new();
    waiting.out.read_line(&mut line).unwrap();
    let lost: Vec<String> = line
        .split_whitespace()
        .map(|one| format!("0x{one}"))
        .collect();
    waiting.sweep();
    let asked = |at: usize| waiting.ask(&["--identify", &lost[at]]);
    let held = asked(0);
    assert_eq!(held["is_leaked"], false, "{held}");
    assert_eq!(held["value"]["path"], "main::;$held;->");
    for at in [1, 2] {
        let leaked = asked(at);
        assert_eq!(leaked["is_leaked"], true, "{leaked}");
    }
    let leaked = waiting.ask(&["--leaked"]);
    let rows = leaked["rows"].as_array().unwrap();
    let arrays = rows.iter().find(|row| row["type"] == "ARRAY");
    assert_eq!(arrays.map(|row| number(&row["count"])), Some(2), "{leaked}");
}

/// Structures that modules keep in C: each with a program in which everything is alive.
const OF_MODULES: [(&str, &str); 5] = [
    (
        "DBD::SQLite",
        r#"use DBI; our $d = DBI->connect("dbi:SQLite:dbname=:memory:");
           $d->do("create table t(a)");
           our @h = map { $d->prepare("select a + $_ from t where a = ?") } 1 .. 100;"#,
    ),
    (
        "JSON::XS",
        r#"use JSON::XS; our $j = JSON::XS->new; $j->incr_parse('["' . "x" x 100_000);
           { my @big = map { { a => $_ } } 1 .. 100; our $f = JSON::XS->new;
             $f->filter_json_object(sub { $big[0]; $_[0] }); }"#,
    ),
    (
        "XML::Parser",
        r#"use XML::Parser; our @p = map { my $n = { n => $_ };
               my $p = XML::Parser->new(Handlers => { Start => sub { $n->{a}++ } })->parse_start;
               $p->parse_more("<a><b>x"); $p } 1 .. 20;"#,
    ),
    (
        "Storable",
        r#"use Storable; our @s = map { Storable::dclone({ a => [1 .. 10] }) } 1 .. 50;"#,
    ),
    (
        "Coro",
        r#"use Coro; our @c = map { my $n = $_; async { my @x = (1 .. 10); Coro::cede();
               sub { Coro::schedule() }->(@x, { n => $n }) } } 1 .. 20; Coro::cede() for 1 .. 3;"#,
    ),
];

#[test]
fn what_modules_hold_in_c_has_not_leaked() {
    for (module, script) in OF_MODULES {
        if !perl_module(module) {
            continue;
        }
        let Some(mut waiting) = Waiting::start(script) else {
            return;
        };
        waiting.sweep();
        let leaked = waiting.ask(&["--leaked"]);
        // Coro loses a constant when it is loaded.
        assert!(number(&leaked["retained"]) < 150, "{module}: {leaked}");
    }
}

/// Variables shared by threads are in a separate interpreter, and the threads' variables lead
/// there.
#[test]
fn shared_variables_have_not_leaked() {
    const SHARED: &str = r#"
use threads; use threads::shared;
our %h :shared; $h{$_} = "x" x 1000 for 1 .. 1000;
"#;
    if !has_threads() {
        return;
    }
    let Some(mut waiting) = Waiting::start(SHARED) else {
        return;
    };
    waiting.sweep();
    let leaked = waiting.ask(&["--leaked"]);
    assert!(number(&leaked["retained"]) < LOST_BY_PERL, "{leaked}");
    let size = waiting.ask(&["--size", "%h"]);
    assert!(number(&size["retained"]["given"]) > 1_000_000, "{size}");
}
