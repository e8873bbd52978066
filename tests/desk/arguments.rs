//! Faults of options, arguments and standard streams. Each was found by a user and is fixed.

use heapprof_tests::executables::write_program;
use heapprof_tests::fixtures::{in_use, json};
use heapprof_tests::harness::{heapprof, run};

/// Rules about the share that a filter keeps work in a normalized diff, also with relative
/// percentages.
#[test]
fn a_normalized_diff_with_a_filter_has_totals_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    in_use(folder, "a.pb.gz", &[("main;x", &[100]), ("main;y", &[100])]);
    in_use(folder, "b.pb.gz", &[("main;x", &[300]), ("main;y", &[100])]);
    let rule = ["--fail-if", "inuse_space > +10%"];
    let diff = ["diff", "--normalize", "a.pb.gz", "b.pb.gz"];
    let refused = run(folder, &[&diff[..], &rule].concat());
    assert_eq!(refused.code, 2, "{}", refused.err);
    let focused = [&diff[..], &rule, &["--focus", "^x$"]].concat();
    let broken = run(folder, &focused);
    assert_eq!(broken.code, 1, "{}", broken.err);
    assert!(
        broken.out.contains(
            "totals, not counting the filters, are equal.\nFilters: focus=^x$; left out 100B \
             before, 50B after\n"
        ),
        "{}",
        broken.out
    );
    let found = json(
        folder,
        &["diff", "a.pb.gz", "b.pb.gz", "--focus", "^x$", "-f", "json"],
    );
    assert_eq!(found["left_out"]["after"], 100);
    let relative = run(
        folder,
        &["diff", "--relative-percentages", "a.pb.gz", "b.pb.gz"],
    );
    assert_eq!(relative.code, 2, "{}", relative.err);
}

/// Several columns with the same name all keep their values. The error about an empty argument
/// names the argument.
#[test]
fn columns_and_arguments_have_names() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    in_use(folder, "a.pb.gz", &[("main", &[1])]);
    let sql = run(
        folder,
        &[
            "sql",
            "-p",
            "a.pb.gz",
            "-f",
            "json",
            "SELECT 1 AS a, 2 AS a_2, 3 AS a",
        ],
    );
    assert_eq!(sql.out, "[{\"a\":1,\"a_2\":2,\"a_3\":3}]\n");
    let empty = run(folder, &["top", ""]);
    assert_eq!(empty.code, 2);
    assert!(empty.err.contains("an empty PROFILE"), "{}", empty.err);
}

/// A closed standard output is an error. std opens it as /dev/null, so reports and merged profiles
/// would be lost without a message, and a recorded program would get a standard output that it was
/// not given.
#[test]
fn a_closed_standard_output_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    in_use(folder, "a.pb.gz", &[("main", &[1])]);
    let shell = |line: &str| {
        let mut command = std::process::Command::new("sh");
        let line = format!("{} {line}", heapprof().display());
        command.args(["-c", &line]).current_dir(folder);
        command.output().unwrap()
    };
    let top = shell("top a.pb.gz >&-");
    let err = String::from_utf8_lossy(&top.stderr);
    assert_eq!(top.status.code(), Some(2), "{err}");
    assert!(err.contains("standard output is closed"), "{err}");
    let echo = shell("record -o e.pb.gz -- /bin/echo x >&-");
    assert_eq!(echo.status.code(), Some(1), "{echo:?}");
}

/// Users type these by analogy with other tools. The errors suggest the right form.
#[test]
fn near_misses_are_told_what_was_meant() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    in_use(folder, "a.pb.gz", &[("main", &[1])]);
    let program = |name: &str| {
        write_program(&folder.join(name), b"#!/bin/sh\n");
    };
    program("shop");
    std::fs::write(folder.join("plain"), "").unwrap();
    for (args, code, says) in [
        (
            &["list", "a.pb.gz", "main"][..],
            2,
            "a.pb.gz: is a file; REGEX comes before the profile",
        ),
        (
            &["peek", "a.pb.gz", "main"],
            2,
            "a.pb.gz: is a file; REGEX comes before the profile",
        ),
        (
            &["top", "-o", "no/x", "a.pb.gz"],
            2,
            "no/x: cannot be written: there is no folder no; create it first",
        ),
        (
            &["symbolize", "--debug-dir", "plain", "a.pb.gz"],
            2,
            "plain: is not a folder",
        ),
        (&["record", "shop"], 127, "./shop is one in this folder"),
        (
            &["record", "./shop 1000"],
            127,
            "without quotes ./shop 1000 is a program and its arguments",
        ),
        (
            &["record", "A=1", "./shop"],
            127,
            "set A in front of heapprof, or with env",
        ),
        (&["record", "."], 126, ".: is a folder, not a program"),
        (
            &["record", "-o", "-", "true"],
            2,
            "-o -: a recording is written to files",
        ),
        (
            &["record", "-o", "plain", "true"],
            2,
            "plain: already exists and is not a folder",
        ),
        (
            &["leaks", "--fail-if", "inuse_space > 0", "a.pb.gz"],
            2,
            "objects",
        ),
    ] {
        let run = run(folder, args);
        assert_eq!(run.code, code, "{args:?}: {}", run.err);
        assert!(run.err.contains(says), "{args:?}: {}", run.err);
        assert_eq!(run.err.lines().count(), 1, "{args:?}: {}", run.err);
    }
}

/// Dumps of gperftools have types without a prefix. Their objects are not shown as bytes, and their
/// values may be estimates.
#[test]
fn text_dumps_say_what_their_values_are() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let line = "     3:     3000 [     3:     3000] @";
    let text = format!("heap profile: {line} heapprofile\n{line} 0x55bcf3925203\n");
    let sampled = "# sampled, one in 524288 bytes; values are estimates\n";
    std::fs::write(folder.join("a.heap"), &text).unwrap();
    std::fs::write(folder.join("s.heap"), text + sampled).unwrap();
    let failed = run(
        folder,
        &["leaks", "--fail-if", "inuse_objects > 0", "a.heap"],
    );
    assert!(
        failed.err.ends_with("on inuse_objects: 3\n"),
        "{}",
        failed.err
    );
    let exact = run(folder, &["top", "a.heap"]).out;
    assert!(!exact.contains("estimated"), "{exact}");
    let sampled = run(folder, &["top", "s.heap"]).out;
    assert!(
        sampled.contains("estimated from samples, one every 512KiB"),
        "{sampled}"
    );
    let info = run(folder, &["info", "s.heap"]).out;
    assert!(info.contains("the values are estimates already"), "{info}");
    assert!(!info.contains("every allocation"), "{info}");
}
