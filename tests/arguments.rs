//! Faults of options, arguments and standard streams, each found by a user and mended.

use crate::harness::{heapprof, run};
use crate::regression::{in_use, json};

/// Rules about a share that a filter keeps were refused; relative percentages were taken and did nothing.
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
            "totals, filters aside, are equal.\nFilters: focus=^x$; left out 100B before, 50B after\n"
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

/// Columns of one name lost all values but the last; an empty argument had an error without a subject.
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

/// std opens a closed standard output as /dev/null: reports and merged profiles went nowhere without a word, and a recorded program
/// had one that it was not given.
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
