//! Perl's arenas: they are charged to no line, and their contents equal Perl's own counts.

use std::path::Path;

use heapprof_profile::Profile;
use heapprof_tests::built::have;
use heapprof_tests::harness::run;

use crate::scripts::{program, read};

/// Returns the bytes in use of the samples whose innermost function satisfies `is`.
fn in_use(profile: &Profile, is: impl Fn(&str) -> bool) -> i64 {
    let column = profile.find_sample_type("inuse_space").unwrap();
    let of = (0..profile.samples.len()).filter(|&i| {
        let leaf = profile.samples.stack(i).first().copied();
        let lines = leaf.map(|leaf| profile.lines(&profile.location[leaf.index()]));
        let function = lines
            .and_then(|lines| lines.first())
            .map(|line| line.function);
        function.is_some_and(|of| is(profile.text(profile.function[of.index()].name)))
    });
    of.map(|i| profile.samples.values(i)[column]).sum()
}

/// Returns the number of values in arenas, and the number that Perl counts, from the profile's
/// comment.
fn values(profile: &Profile) -> (i64, i64) {
    let comments = profile.comment.iter().map(|&text| profile.text(text));
    let said: Vec<&str> = comments
        .filter(|c| c.starts_with("perl: values: "))
        .collect();
    let numbers = |text: &str| -> Vec<i64> {
        let words = text.split([' ', ',']);
        words.filter_map(|word| word.parse().ok()).collect()
    };
    match said[..] {
        [said] => {
            let all = numbers(said);
            (all[0], all[all.len() - 1])
        }
        _ => panic!("{said:?}"),
    }
}

/// Checks that the used heads equal the values that Perl counts, and that the parts of arenas add
/// up.
pub(crate) fn check_census(profile: &Profile, what: &str) {
    let (in_arenas, counted) = values(profile);
    assert_eq!(in_arenas, counted, "{what}");
    let heads = in_use(profile, |name| name == "SV heads (used)");
    assert_eq!(heads, 24 * counted, "{what}");
    let all = in_use(profile, |name| name.ends_with(" heads (free)"));
    assert_eq!((heads + all) % 4080, 0, "{what}");
}

#[test]
fn used_heads_are_the_values_that_perl_counts() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let scripts: [(&str, Vec<String>); 5] = [
        ("of every kind", vec![program("arenas.pl")]),
        ("in between", vec![program("arenas.pl"), "again".into()]),
        (
            "other modules",
            vec!["-MEncode".into(), "-MStorable=dclone".into(), "-e".into(), "my $d = dclone({a => [1 .. 99]}); local $_ = encode('UTF-8', chr 300); my @l = caller".into()],
        ),
        (
            "modules",
            vec!["-MPOSIX".into(), "-MData::Dumper".into(), "-e1".into()],
        ),
        (
            "deep",
            vec![
                "-e".into(),
                "my $r; $r = [$r] for 1 .. 5000; my %h = map {($_, 1)} 1 .. 3000".into(),
            ],
        ),
    ];
    for (what, words) in scripts {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let options = [
            "record",
            "--exact",
            "--on-signal=USR2",
            "-o",
            "p.pb.gz",
            "--",
            "perl",
        ];
        let done = run(folder.path(), &[&options[..], &words].concat());
        assert_eq!(done.code, 0, "{what}: {}", done.err);
        let mut profiles = 0;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "gz") {
                check_census(&read(&path), &format!("{what}: {}", path.display()));
                profiles += 1;
                std::fs::remove_file(path).unwrap();
            }
        }
        assert_eq!(profiles, if what == "in between" { 2 } else { 1 }, "{what}");
    }
}

/// The line that needs a value when the free list is empty allocates the next arena, but is not
/// charged for it.
#[test]
fn arenas_are_no_lines() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = program("arenas.pl");
    for (options, least) in [(&["--exact"][..], 20_000), (&["--period=4096"], 15_000)] {
        let args = [
            &["record", "-o", "p.pb.gz"],
            options,
            &["--", "perl", &script],
        ]
        .concat();
        let done = run(folder.path(), &args);
        assert_eq!(done.code, 0, "{}", done.err);
        let profile = read(&folder.path().join("p.pb.gz"));
        // The array of that line is in memory from malloc.
        let nothing = in_use(&profile, |name| name == "main::nothing");
        assert!(nothing < 4080, "{options:?}: {nothing}");
        let heads = in_use(&profile, |name| name == "SV heads (used)");
        assert!(heads > 24 * least, "{options:?}: {heads}");
    }
    let tree = run(folder.path(), &["tree", "p.pb.gz"]).out;
    assert!(tree.contains("(perl arenas)"), "{tree}");
    check_stacks(folder.path());
}

/// With both kinds of frames, the parts are below the frame of the arenas, without the frames of
/// the code that allocated the arenas.
fn check_stacks(folder: &Path) {
    let script = program("arenas.pl");
    let args = [
        "record",
        "--exact",
        "--frames=both",
        "-o",
        "b.pb.gz",
        "--",
        "perl",
        &script,
    ];
    let done = run(folder, &args);
    assert_eq!(done.code, 0, "{}", done.err);
    let profile = read(&folder.join("b.pb.gz"));
    check_census(&profile, "both");
    assert!(in_use(&profile, |name| name == "Perl_more_sv") < 4080);
}
