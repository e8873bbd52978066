//! The account of a Perl program's memory: each part is compared with another source.

use std::collections::BTreeMap;
use std::path::Path;

use heapprof_profile::Profile;
use heapprof_tests::built::have;
use heapprof_tests::harness::{command, run};

use crate::perl_module::installed;
use crate::scripts::{comments, read};

/// The parts of a program's data, from the profile's comments.
#[derive(Debug)]
struct Account {
    all: i64,
    own: i64,
    parts: BTreeMap<String, i64>,
}

impl Account {
    fn from_profile(profile: &Profile) -> Self {
        let mut account = Self {
            all: 0,
            own: 0,
            parts: BTreeMap::new(),
        };
        for comment in comments(profile) {
            let Some(said) = comment.strip_prefix("memory: ") else {
                continue;
            };
            let (bytes, what) = said.split_once(" bytes ").unwrap();
            let bytes = bytes.parse().unwrap();
            match what.strip_prefix("of ") {
                Some(part) => drop(account.parts.insert(part.to_string(), bytes)),
                None if what.starts_with("more") => account.own = bytes,
                None => account.all = bytes,
            }
        }
        assert_eq!(
            account.parts.values().sum::<i64>(),
            account.all,
            "{account:?}"
        );
        account
    }

    fn part(&self, name: &str) -> i64 {
        *self.parts.get(name).unwrap_or(&0)
    }
}

/// Records a script, and returns its account and its profile.
fn account(folder: &Path, script: &str, options: &[&str]) -> (Account, Profile) {
    let record = ["record", "--exact", "-o", "a.pb.gz"];
    let words = [&record[..], options, &["--", "perl", "-e", script]].concat();
    let done = command(folder)
        .args(words)
        .env("PERL_HASH_SEED", "0")
        .output()
        .unwrap();
    assert!(done.status.success(), "{script}");
    let profile = read(&folder.join("a.pb.gz"));
    (Account::from_profile(&profile), profile)
}

/// Less than 2 % of the memory is unaccounted for, and the total equals the kernel's figure.
#[test]
fn little_is_left() {
    let folder = tempfile::tempdir().unwrap();
    let Some(cache) = installed(folder.path()) else {
        return;
    };
    let script = "use POSIX; use Data::Dumper; use Encode; my @k = map { { n => $_ } } 1 .. 5000;\n\
                  Devel::HeapProf::dump('d.pb.gz') or die $!;\n\
                  open my $f, '<', '/proc/self/status'; print grep { s/^VmData:\\s+(\\d+).*/$1/ } <$f>;";
    let done = command(folder.path())
        .args([
            "record", "--exact", "-o", "a.pb.gz", "--", "perl", "-e", script,
        ])
        .env("XDG_CACHE_HOME", &cache)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let counted = said.trim().parse::<i64>().expect(&said) * 1024;
    let account = Account::from_profile(&read(&folder.path().join("d.pb.gz")));
    // The status file is opened after the dump, and the dump itself needed some memory.
    let differs = (account.all + account.own - counted).abs();
    assert!(differs < 512 << 10, "{account:?}, {counted}");
    let rest = account.part("rest");
    assert!((0..account.all / 50).contains(&rest), "{account:?}");
    for part in [
        "arenas, used",
        "arenas, free",
        "buffers of strings",
        "buffers of arrays",
        "buffers of hashes",
        "op trees",
        "other blocks",
        "malloc, overhead",
        "malloc, free",
        "variables of the program and its libraries",
    ] {
        assert!(account.part(part) > 0, "{part}: {account:?}");
    }
}

/// Strings, arrays and hashes of known sizes are found. The module B gives the sizes of their
/// buffers.
#[test]
fn buffers_are_those_of_the_values() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (planted, part) in [
        (
            "$k[$i] = join q{}, map { $_ } 1 .. 30 + $i % 50",
            "buffers of strings",
        ),
        ("my @a; $#a = 99; $k[$i] = \\@a", "buffers of arrays"),
        ("my %b; keys(%b) = 64; $k[$i] = \\%b", "buffers of hashes"),
    ] {
        let with = |times: i64| {
            let script = format!(
                "use B; our @k; $#k = 4000; for our $i (1 .. {times}) {{ {planted} }} \
                 my $n = 0; for (@k[1 .. {times}]) {{ my $of = B::svref_2object(ref ? $_ : \\$_); \
                 $n += ref ? 8 * ($of->MAX + 1) : $of->LEN }} \
                 open my $f, q{{>}}, q{{said}}; print $f $n"
            );
            let part = account(folder.path(), &script, &[]).0.part(part);
            let said = std::fs::read_to_string(folder.path().join("said")).unwrap();
            (part, said.parse::<i64>().unwrap())
        };
        let (few, many) = (with(100), with(1100));
        let (grown, wanted) = (many.0 - few.0, many.1 - few.1);
        assert!(wanted > 20_000, "{part}: {wanted}");
        // The list of the loop at the end is there, too.
        assert!(
            (grown - wanted).abs() < wanted / 50,
            "{part}: {grown}, {wanted}"
        );
    }
}

/// Op trees have the memory of the function from which Perl takes ops, as native stacks show it.
#[test]
fn op_trees_are_what_slabs_have() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "use POSIX; use Data::Dumper; eval qq{sub s$_ { my (\\$x) = \\@_; \\$x + $_ }} for 1 .. 500";
    let (account, _) = account(folder.path(), script, &[]);
    let words = [
        "record",
        "--exact",
        "--frames=native",
        "-o",
        "n.pb.gz",
        "--",
        "perl",
        "-e",
        script,
    ];
    let done = command(folder.path())
        .args(words)
        .env("PERL_HASH_SEED", "0")
        .output()
        .unwrap();
    assert!(done.status.success());
    let json = run(
        folder.path(),
        &[
            "top",
            "--format",
            "json",
            "--focus",
            "^Perl_Slab_Alloc$",
            "n.pb.gz",
        ],
    );
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    let native = json["rows"].as_array().unwrap().iter();
    let native = native.filter(|row| row["function"] == "Perl_Slab_Alloc");
    let native: i64 = native.map(|row| row["cum"].as_i64().unwrap()).sum();
    assert!(native > 500_000, "{json}");
    // Ops outside subs are allocated one by one, and count as other blocks.
    let ops = account.part("op trees");
    assert!(
        ops <= native && ops > native - native / 50,
        "{ops}, {native}"
    );
}

/// `info` shows the parts, and shows none for a sampled recording.
#[test]
fn info_shows_the_parts() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (account, _) = account(folder.path(), "my @k = (1) x 1000", &[]);
    let shown = run(folder.path(), &["info", "a.pb.gz"]).out;
    assert!(shown.contains(" of data (VmData), without "), "{shown}");
    assert!(shown.contains("  buffers of arrays\n"), "{shown}");
    assert!(!shown.contains("memory: "), "{shown}");
    let json = run(folder.path(), &["info", "--format", "json", "a.pb.gz"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["memory"]["bytes"].as_i64(), Some(account.all));
    let parts = json["memory"]["parts"].as_array().unwrap();
    assert_eq!(parts.len(), account.parts.len());
    let words = ["record", "-o", "s.pb.gz", "--", "perl", "-e1"];
    assert_eq!(run(folder.path(), &words).code, 0);
    let sampled = read(&folder.path().join("s.pb.gz"));
    let said = comments(&sampled);
    assert!(!said.iter().any(|c| c.starts_with("memory:")), "{said:?}");
}
