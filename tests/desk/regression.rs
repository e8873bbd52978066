//! Regression tests for bugs, each with the smallest input that showed the bug.

use std::process::Stdio;

use heapprof_profile::{FrameText, LabelSetIndex, ProfileBuilder};
use heapprof_tests::fixtures::{in_use, json, profile, write};

use heapprof_tests::built::have;
use heapprof_tests::harness::{command, run};

/// A diff of a stored profile in kilobytes and a file in bytes has both sides in one unit.
#[test]
fn both_sides_of_a_diff_are_in_one_unit_stored_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(
        folder,
        "kb.pb.gz",
        &profile(&[("inuse_space", "kilobytes")], &[("main;a", &[10])]),
    );
    write(
        folder,
        "b.pb.gz",
        &profile(&[("inuse_space", "bytes")], &[("main;a", &[2048])]),
    );
    assert_eq!(run(folder, &["load", "kb.pb.gz", "b.pb.gz"]).code, 0);
    for (before, after) in [
        ("kb.pb.gz", "b.pb.gz"),
        ("kb", "b.pb.gz"),
        ("kb.pb.gz", "b"),
        ("kb", "b"),
    ] {
        let diff = json(folder, &["diff", before, after, "-f", "json"]);
        assert_eq!(diff["total"]["before"], 10240, "{before} {after}");
        assert_eq!(diff["total"]["after"], 2048, "{before} {after}");
        assert_eq!(diff["rows"][0]["delta"], -8192, "{before} {after}");
    }
    assert_eq!(
        run(folder, &["flame", "--base", "kb", "b", "-o", "d.svg"]).code,
        0
    );
}

/// Units are compared by type: lists of units that look equal may hide that each type has another
/// unit.
#[test]
fn units_are_compared_by_type_not_by_position() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (bytes, kilobytes) = ("bytes", "kilobytes");
    let a = profile(
        &[("inuse_space", bytes), ("alloc_space", kilobytes)],
        &[("main", &[2048, 4])],
    );
    let b = profile(
        &[("alloc_space", bytes), ("inuse_space", kilobytes)],
        &[("main", &[4096, 2])],
    );
    write(folder, "a.pb.gz", &a);
    write(folder, "b.pb.gz", &b);
    for t in ["inuse_space", "alloc_space"] {
        let diff = json(
            folder,
            &["diff", "a.pb.gz", "b.pb.gz", "-t", t, "-f", "json"],
        );
        assert_eq!(diff["total"]["delta"], 0, "{t}");
        assert_eq!(diff["sample_type"]["unit"], "bytes");
    }
}

/// A broken rule ends with its exit code, even if the reader closes the pipe.
#[test]
fn a_closed_pipe_does_not_open_the_gate() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let stacks: Vec<(String, i64)> = (0..5000).map(|i| (format!("main;f{i}"), 1)).collect();
    let stacks: Vec<(&str, Vec<i64>)> =
        stacks.iter().map(|(s, v)| (s.as_str(), vec![*v])).collect();
    let stacks: Vec<(&str, &[i64])> = stacks.iter().map(|(s, v)| (*s, &v[..])).collect();
    let types = [("inuse_space", "bytes")];
    write(folder, "a.pb.gz", &profile(&types, &stacks[..1]));
    write(folder, "b.pb.gz", &profile(&types, &stacks));
    let mut child = command(folder)
        .args([
            "diff",
            "a.pb.gz",
            "b.pb.gz",
            "--fail-if",
            "inuse_space > +1%",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

/// A restored profile has only its own functions, not every function of the database.
#[test]
fn a_stored_profile_holds_nothing_of_others() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    in_use(folder, "mine.pb.gz", &[("main;mine", &[1])]);
    in_use(folder, "other.pb.gz", &[("main;secret", &[1])]);
    assert_eq!(run(folder, &["load", "mine.pb.gz", "other.pb.gz"]).code, 0);
    assert_eq!(
        run(
            folder,
            &["convert", "--to", "pprof", "mine", "-o", "out.pb.gz"]
        )
        .code,
        0
    );
    let restored =
        heapprof_profile::decode(std::fs::File::open(folder.join("out.pb.gz")).unwrap()).unwrap();
    assert!(restored.strings.iter().all(|text| text != "secret"));
}

/// Normalizing uses whole totals. With filtered totals, it would hide what the filter is meant to
/// show.
#[test]
fn normalizing_is_by_whole_totals() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = [("inuse_space", "bytes")];
    write(
        folder,
        "a.pb.gz",
        &profile(&types, &[("main;a", &[100]), ("main;b", &[900])]),
    );
    write(
        folder,
        "b.pb.gz",
        &profile(&types, &[("main;a", &[400]), ("main;b", &[600])]),
    );
    let args = [
        "diff",
        "a.pb.gz",
        "b.pb.gz",
        "--focus",
        ";?^a$",
        "--normalize",
        "-f",
        "json",
    ];
    let diff = json(folder, &args);
    assert_eq!(
        (
            diff["total"]["before"].as_i64(),
            diff["total"]["after"].as_i64()
        ),
        (Some(100), Some(400))
    );
    let negative = profile(&types, &[("a", &[-1]), ("b", &[-1]), ("c", &[-1])]);
    write(folder, "n.pb.gz", &negative);
    let diff = json(
        folder,
        &[
            "diff",
            "a.pb.gz",
            "n.pb.gz",
            "--normalize",
            "-f",
            "json",
            "-n",
            "0",
        ],
    );
    let after: i64 = diff["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["after"].as_i64().unwrap())
        .sum();
    assert_eq!(Some(after), diff["total"]["after"].as_i64());
}

/// Trees are cut relative to what a filter keeps. Relative to the whole profile, a narrow filter
/// would leave only `(other)`.
#[test]
fn trees_are_cut_by_what_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = [("inuse_space", "bytes")];
    write(
        folder,
        "p.pb.gz",
        &profile(
            &types,
            &[("main;large", &[1_000_000]), ("main;small", &[5])],
        ),
    );
    let tree = run(folder, &["tree", "--focus", "small", "p.pb.gz"]);
    assert!(tree.out.contains("  main → small\n"), "{}", tree.out);
}

/// Deep stacks and many labels take linear time and memory. Quadratic algorithms took minutes or
/// gigabytes.
#[test]
fn deep_stacks_and_many_labels_cost_linear_time() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut deep = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    let mut stack = Vec::new();
    for i in 0..50_000 {
        let name = format!("f{}", i % 20_000);
        stack.push(deep.frame(&[FrameText {
            name: &name,
            ..FrameText::default()
        }]));
    }
    deep.profile.samples.push(stack, &[7], LabelSetIndex(0));
    write(folder, "deep.pb.gz", &deep.finish());
    let mut labels = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    for i in 0..30_000 {
        let mut label = [labels.text_label("request", &i.to_string())];
        labels.add_folded_with_labels("main", &[1], &mut label);
    }
    write(folder, "labels.pb.gz", &labels.finish());
    // With quadratic algorithms, each of these took minutes or gigabytes. Each takes seconds, even
    // unoptimized.
    for args in [
        &["tree", "deep.pb.gz"][..],
        &["peek", ".", "-n", "3", "deep.pb.gz"],
        &["traces", "deep.pb.gz"],
        &["flame", "-f", "folded", "deep.pb.gz"],
        &[
            "flame",
            "--base",
            "deep.pb.gz",
            "deep.pb.gz",
            "-f",
            "folded",
        ],
        &["convert", "--to", "folded", "deep.pb.gz"],
        &["tags", "labels.pb.gz"],
        &["traces", "-n", "3", "labels.pb.gz"],
    ] {
        let run = run(folder, args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.err);
        assert!(
            run.out.len() < 50_000_000,
            "{args:?} printed {} bytes",
            run.out.len()
        );
    }
}

/// The name of a sample type may have control characters. The width of the table must not
/// underflow.
#[test]
fn odd_names_of_sample_types() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let odd = profile(
        &[("a\nb", "\u{1b}[31m"), ("z\u{ffff}", "count")],
        &[("main", &[1, 2])],
    );
    write(folder, "odd.pb.gz", &odd);
    for args in [
        &["top", "--wide"][..],
        &["top"],
        &["tree"],
        &["info"],
        &["flame"],
        &["top", "-f", "markdown"],
    ] {
        let mut args = args.to_vec();
        args.push("odd.pb.gz");
        let run = run(folder, &args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.err);
        assert!(
            !run.out.contains('\u{1b}') && !run.out.contains('\u{ffff}'),
            "{args:?}"
        );
    }
    let twice = profile(&[("x", "bytes"), ("x", "bytes")], &[("main", &[1, 2])]);
    write(folder, "twice.pb.gz", &twice);
    assert_eq!(
        json(folder, &["top", "-f", "json", "-t", "0", "twice.pb.gz"])["net"],
        1
    );
    assert_eq!(
        json(folder, &["top", "-f", "json", "-t", "1", "twice.pb.gz"])["net"],
        2
    );
    let load = run(folder, &["load", "twice.pb.gz"]);
    assert_eq!(load.code, 2);
    assert!(
        load.err.contains("two sample types named x"),
        "{}",
        load.err
    );
}

/// SQL reads without writing: text that stands for a number, a statement that creates files, and an
/// empty file as a database.
#[test]
fn sql_is_read_only_and_compares_as_sqlite_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(
        folder,
        "p.pb.gz",
        &profile(&[("inuse_space", "bytes")], &[("main;a", &[1])]),
    );
    let sql = |sql: &str| run(folder, &["sql", "-p", "p.pb.gz", "-f", "csv", sql]);
    for key in ["1", "'1'", "' 1 '", "1.0"] {
        let counted = sql(&format!(
            "SELECT count(*) FROM function_total WHERE profile = {key}"
        ));
        assert_eq!(counted.out, "count(*)\n2\n", "{key}");
    }
    for key in ["'x'", "NULL", "1.5", "-1", "x'31'"] {
        let counted = sql(&format!(
            "SELECT count(*) FROM function_total WHERE profile = {key}"
        ));
        assert_eq!(counted.out, "count(*)\n0\n", "{key}");
    }
    assert_eq!(sql("ATTACH 'made.db' AS made").code, 2);
    assert!(!folder.join("made.db").exists());
    std::fs::write(folder.join("empty.db"), "").unwrap();
    let empty = run(folder, &["--db", "empty.db", "ls"]);
    assert_eq!(empty.code, 2);
    assert!(
        empty
            .err
            .contains("it is empty, and heapprof db load fills it"),
        "{}",
        empty.err
    );
    assert_eq!(
        run(folder, &["--db", ":memory:", "load", "p.pb.gz"]).code,
        0
    );
    assert!(folder.join(":memory:").exists(), "a file like any other");
}

/// `-o` keeps links and permissions.
#[cfg(unix)]
#[test]
fn output_files_stay_what_they_were() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(
        folder,
        "p.pb.gz",
        &profile(&[("inuse_space", "bytes")], &[("main;a", &[1])]),
    );
    std::fs::write(folder.join("private.txt"), "old").unwrap();
    std::fs::set_permissions(
        folder.join("private.txt"),
        std::fs::Permissions::from_mode(0o600),
    )
    .unwrap();
    symlink("private.txt", folder.join("link.txt")).unwrap();
    assert_eq!(run(folder, &["top", "p.pb.gz", "-o", "link.txt"]).code, 0);
    assert!(folder.join("link.txt").is_symlink());
    let private = std::fs::metadata(folder.join("private.txt")).unwrap();
    assert_eq!(private.permissions().mode() & 0o777, 0o600);
    assert!(
        std::fs::read_to_string(folder.join("private.txt"))
            .unwrap()
            .contains("inuse_space, total")
    );
}

/// The rules of `diff --fail-if` accept the name inuse_space as `diff -t` and `leaks --fail-if` do.
#[test]
fn rules_know_sample_types_by_the_names_that_options_know() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = [("objects", "count"), ("space", "bytes")];
    write(
        folder,
        "a.pb.gz",
        &profile(&types, &[("main;a", &[1, 100])]),
    );
    write(
        folder,
        "b.pb.gz",
        &profile(&types, &[("main;a", &[1, 300])]),
    );
    for rule in ["inuse_space > +10%", "space > +10%"] {
        let found = run(folder, &["diff", "a.pb.gz", "b.pb.gz", "--fail-if", rule]);
        let expected =
            format!("heapprof: failed: {rule} on space: 100B to 300B (+200B, +200.0%)\n");
        assert_eq!((found.code, found.err), (1, expected));
    }
}

/// If two sample types have one name, `ls` chooses the same one as `top`.
#[test]
fn a_stored_profile_shows_what_its_file_shows() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = [("inuse_space", "bytes"), ("inuse_space", "count")];
    write(
        folder,
        "two.pb.gz",
        &profile(&types, &[("main", &[1000, 7])]),
    );
    assert_eq!(run(folder, &["load", "two.pb.gz"]).code, 0);
    let listed = run(folder, &["ls", "-f", "csv"]).out;
    assert!(listed.contains(",1000"), "{listed}");
    for of in ["two", "two.pb.gz"] {
        let top = run(folder, &["top", of]).out;
        assert!(
            top.starts_with(&format!("{of}: inuse_space, total 1000B")),
            "{top}"
        );
    }
}

/// If a user changes the numbers of stacks and locations by hand, heapprof reports damage and does
/// not panic.
#[test]
fn a_database_changed_by_hand_is_damaged() {
    if !have(&["sqlite3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    in_use(folder, "a.pb.gz", &[("main;a", &[1]), ("main;b", &[2])]);
    for (change, expected) in [
        ("INSERT INTO stack VALUES (4611686018427387904, 0, 1)", 0),
        ("INSERT INTO stack VALUES (-5, 0, 1)", 0),
        (
            "UPDATE heap_sample SET stack = 8589934592 WHERE inuse_space = 1",
            2,
        ),
        ("UPDATE stack SET location = -7 WHERE id = 1", 2),
        ("UPDATE stack SET parent = 9 WHERE id = 2", 2),
        (
            "UPDATE heap_sample SET label_set = 5 WHERE inuse_space = 1",
            2,
        ),
        (
            "PRAGMA foreign_keys = OFF; UPDATE location SET mapping = 5",
            2,
        ),
    ] {
        let db = folder.join("heapprof.db");
        let _ = std::fs::remove_file(&db);
        assert_eq!(run(folder, &["load", "a.pb.gz"]).code, 0);
        let mut sqlite = std::process::Command::new("sqlite3");
        assert!(sqlite.arg(&db).arg(change).status().unwrap().success());
        let tree = run(folder, &["tree", "a"]);
        assert_eq!(tree.code, expected, "{change}: {}", tree.err);
        assert_eq!(tree.code == 2, tree.err.contains("damaged"), "{}", tree.err);
        let removed = run(folder, &["rm", "a"]);
        assert_eq!(removed.code, 0, "{change}: {}", removed.err);
    }
}

/// Errors about several profiles name them, and errors about wide tables do not name SQLite's
/// limit.
#[test]
fn errors_say_which_profiles_they_speak_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let big = i64::MAX / 2 + 1;
    write(
        folder,
        "b.pb.gz",
        &profile(&[("space", "bytes")], &[("main", &[big])]),
    );
    write(
        folder,
        "kb.pb.gz",
        &profile(&[("space", "kilobytes")], &[("main", &[big])]),
    );
    write(
        folder,
        "n.pb.gz",
        &profile(&[("space", "count")], &[("main", &[1])]),
    );
    let names: Vec<String> = (0..70).map(|n| format!("type{n}")).collect();
    let types: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "count")).collect();
    write(
        folder,
        "wide.pb.gz",
        &profile(&types, &[("main", &[1; 70])]),
    );
    for (args, begins) in [
        (
            &["merge", "-o", "o.pb.gz", "b.pb.gz", "b.pb.gz"][..],
            "b.pb.gz + b.pb.gz: ",
        ),
        (
            &["merge", "-o", "o.pb.gz", "b.pb.gz", "n.pb.gz"],
            "b.pb.gz + n.pb.gz: ",
        ),
        (&["diff", "kb.pb.gz", "b.pb.gz"], "kb.pb.gz and b.pb.gz: "),
        (
            &["flame", "--base", "kb.pb.gz", "b.pb.gz", "-o", "o.svg"],
            "kb.pb.gz and b.pb.gz: ",
        ),
        (
            &["top", "--wide", "wide.pb.gz"],
            "wide.pb.gz: a table can show at most 60 sample types side by side, but there are 70",
        ),
    ] {
        let found = run(folder, args);
        assert_eq!(found.code, 2, "{args:?}");
        assert!(
            found.err.starts_with(&format!("heapprof: {begins}")),
            "{args:?}: {}",
            found.err
        );
    }
}

/// Sample types with the same name are separate members of the JSON object.
#[test]
fn wide_json_keeps_types_of_one_name_apart() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let types = [("space", "bytes"), ("space", "count"), ("space", "bytes")];
    write(folder, "a.pb.gz", &profile(&types, &[("main", &[1, 2, 3])]));
    let top = json(folder, &["top", "--wide", "-f", "json", "a.pb.gz"]);
    let values = top["rows"][0]["values"].as_object().unwrap();
    let flats: Vec<i64> = values
        .values()
        .map(|v| v["flat"].as_i64().unwrap())
        .collect();
    assert_eq!(values.len(), 3, "{values:?}");
    assert_eq!(flats.iter().sum::<i64>(), 6, "{values:?}");
}

/// `rm` does not turn an empty file into a database, and removes all given names or none.
#[test]
fn rm_removes_all_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("empty.db"), "").unwrap();
    assert_eq!(run(folder, &["--db", "empty.db", "rm", "x"]).code, 2);
    assert_eq!(std::fs::metadata(folder.join("empty.db")).unwrap().len(), 0);
    for name in ["a", "b", "c"] {
        let stack = format!("main;{name}");
        let file = format!("{name}.pb.gz");
        write(
            folder,
            &file,
            &profile(&[("space", "bytes")], &[(stack.as_str(), &[1])]),
        );
        assert_eq!(run(folder, &["load", &file]).code, 0);
    }
    assert_eq!(run(folder, &["rm", "a", "nothing", "b"]).code, 2);
    assert_eq!(run(folder, &["ls", "-f", "csv"]).out.lines().count(), 4);
    let removed = run(folder, &["rm", "c", "a", "a"]);
    assert_eq!((removed.code, removed.err.as_str()), (0, ""));
    let left = run(folder, &["ls", "-f", "csv"]).out;
    assert!(left.lines().count() == 2 && left.contains("\nb,"), "{left}");
    assert!(run(folder, &["top", "b"]).out.contains("b"));
}
