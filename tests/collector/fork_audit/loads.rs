//! Files that forked children of a Perl program load, compared with a hook in @INC, with %INC, and
//! with strace.

use std::collections::BTreeSet;
use std::path::Path;

use heapprof_tests::built::have;
use heapprof_tests::harness::{Run, command};
use serde_json::Value;

use super::{audited_with, check, number, rows};
use crate::perl_module::installed;

/// A daemon with three workers. A hook in @INC, as Perl programmers write it, prints the files that
/// a worker searches, and each worker prints at its end the entries of %INC that are new since the
/// fork.
const DAEMON: &str = r#"
use strict; use warnings;
my $parent = $$;
unshift @INC, sub { my (undef, $file) = @_; print "looked $file\n" if $$ != $parent; return };
$| = 1;
my @big = map { "$_" . '0' x 20 } 1 .. 50_000;
my %before = %INC;
for my $worker (1 .. 3) {
    my $pid = fork;
    next if $pid;
    require POSIX;
    eval { require JSON::XS::Missing };
    eval { require Storable };
    eval { require './broken.pm' };
    do './some.pl';
    if ($worker == 2) { require Text::Balanced; my $sum = 0; $sum += length $_ for @big }
    if ($worker == 3) { no warnings; my @n = map { $_ + 0 } @big }
    print "loaded $_\n" for sort grep { !exists $before{$_} && defined $INC{$_} } keys %INC;
    exit 0;
}
1 while wait > 0;
"#;

fn audited(folder: &Path, cache: &Path, words: &[&str]) -> (Run, Value) {
    let mut command = command(folder);
    command.env("XDG_CACHE_HOME", cache);
    audited_with(command, &["-n", "0"], words)
}

/// Returns the rest of the lines that begin with a word.
fn said<'o>(out: &'o str, word: &str) -> BTreeSet<&'o str> {
    let lines = out.lines().filter_map(|line| line.strip_prefix(word));
    lines.map(str::trim).collect()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
}

#[test]
fn loads_are_what_the_children_say() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let Some(cache) = installed(here) else { return };
    write(here, "daemon.pl", DAEMON);
    write(here, "broken.pm", "package broken; sub f { ; 1;\n");
    write(here, "some.pl", "our $some = 1;\n");
    let (done, report) = audited(here, &cache, &["perl", "daemon.pl"]);
    assert_eq!(done.code, 0, "{}", done.err);
    check(&report);
    let is_file = |row: &&Value| row["kind"] == "require" || row["kind"] == "do";
    let all = || {
        rows(&report, "loads")
            .iter()
            .chain(rows(&report, "missing"))
            .filter(is_file)
    };
    let names = |outcome: Option<&str>| -> BTreeSet<&str> {
        let wanted = all().filter(|row| outcome.is_none_or(|outcome| row["outcome"] == outcome));
        wanted.map(|row| row["name"].as_str().unwrap()).collect()
    };
    // The hook is not called for files that are named by a path.
    let attempts: BTreeSet<&str> = names(None)
        .into_iter()
        .filter(|n| !n.starts_with("./"))
        .collect();
    assert_eq!(attempts, said(&done.out, "looked "), "{}", done.err);
    assert_eq!(names(Some("loaded")), said(&done.out, "loaded "));
    assert_eq!(names(Some("failed")), BTreeSet::from(["./broken.pm"]));
    assert!(names(Some("not found")).contains("JSON/XS/Missing.pm"));
    let row = |name: &str| all().find(|row| row["name"] == name).unwrap();
    assert_eq!(number(row("POSIX.pm"), "children"), 3);
    assert_eq!(number(row("Text/Balanced.pm"), "children"), 1);
    assert_eq!(row("Text/Balanced.pm")["before"], "use Text::Balanced;");
    assert!(
        number(row("POSIX.pm"), "each") > 300_000,
        "{}",
        row("POSIX.pm")
    );
    assert!(number(row("Storable.pm"), "micros") > 0);
    let site = row("POSIX.pm")["site"][0].as_str().unwrap();
    assert_eq!(site, "daemon.pl:11");
    let xs = rows(&report, "loads")
        .iter()
        .filter(|row| row["kind"] == "XS");
    let xs: Vec<&str> = xs.map(|row| row["name"].as_str().unwrap()).collect();
    assert!(xs.iter().any(|name| name.ends_with("/POSIX.so")), "{xs:?}");

    // Values that were used as numbers are charged to the line that made them.
    let line = 6;
    let third = rows(&report, "children")
        .iter()
        .map(|child| number(child, "unshared_space"));
    let most = third.max().unwrap();
    let of_line = |kind: &str| -> i64 {
        let mine = rows(&report, "unshared")
            .iter()
            .filter(|row| row["kind"] == kind);
        let mine = mine.filter(|row| row["file"] == "daemon.pl" && row["line"] == line);
        mine.map(|row| number(row, "each")).max().unwrap_or(0)
    };
    // A head has 24 bytes, and the former body of a string had 16.
    assert!(of_line("SV heads") > 50_000 * 24 * 95 / 100, "{report}");
    assert!(of_line("SV bodies") > 50_000 * 16 * 95 / 100, "{report}");
    assert!(of_line("SV heads") + of_line("SV bodies") + of_line("data") > most * 6 / 10);
}

/// Without the module, the stacks still give the memory that loading has taken.
#[test]
fn stacks_alone_say_what_loads_take() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    write(here, "daemon.pl", DAEMON);
    let none = here.join("none");
    let (done, report) = audited(here, &none, &["perl", "daemon.pl"]);
    assert_eq!(done.code, 0, "{}", done.err);
    check(&report);
    let row = |name: &str| {
        let found = rows(&report, "loads")
            .iter()
            .find(|row| row["name"] == name);
        found.unwrap_or_else(|| panic!("{name}: {report}"))
    };
    assert!(number(row("POSIX.pm"), "each") > 300_000);
    assert_eq!(number(row("Text/Balanced.pm"), "children"), 1);
    assert!(row("POSIX.pm")["micros"].is_null());
    assert!(rows(&report, "missing").is_empty());
}

/// The number of system calls of a search is the one that strace counts.
#[test]
fn searches_cost_what_strace_sees() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    if !have(&["strace"]) {
        return;
    }
    let Some(cache) = installed(here) else { return };
    let script = "my $pid = fork; if (!$pid) { eval { require JSON::XS::Missing }; \
                  require Text::Balanced; exit 0 } waitpid $pid, 0;";
    let (done, report) = audited(here, &cache, &["perl", "-e", script]);
    assert_eq!(done.code, 0, "{}", done.err);
    let mut bare = std::process::Command::new("strace");
    let words = [
        "-f",
        "-qq",
        "-e",
        "trace=stat,newfstatat,open,openat",
        "perl",
        "-e",
        script,
    ];
    let traced = bare.args(words).current_dir(here).output().unwrap();
    let traced = String::from_utf8_lossy(&traced.stderr).into_owned();
    let count = |call: &str, file: &str| {
        let lines = traced.lines().filter(|line| line.contains(call));
        let named = lines.filter(|line| line.contains(&format!("/{file}")));
        named.count() as i64
    };
    for name in ["JSON/XS/Missing.pm", "Text/Balanced.pm"] {
        let all = rows(&report, "loads")
            .iter()
            .chain(rows(&report, "missing"));
        let row = all.into_iter().find(|row| row["name"] == name).unwrap();
        assert!(count("stat", name) > 0, "{traced}");
        assert_eq!(number(row, "stats"), count("stat", name), "{name}");
        assert_eq!(number(row, "opens"), count("open", name), "{name}");
    }
}
