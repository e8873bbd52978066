//! The database: a loaded profile gives the same results as its file, shares its parts, survives
//! interruption, and can be removed.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use heapprof_analysis::store::{ProfileStore, SCHEMA_VERSION};

use heapprof_tests::built::have;
use heapprof_tests::harness::{command, name, ok, run, sample_profiles, valid};

fn with_db<'a>(db: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    [&["--db", db], args].concat()
}

/// A report of a loaded profile equals the report of its file, for every report and every sample.
#[test]
fn loaded_profiles_read_as_files_do() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let db = db.to_str().unwrap();
    for file in valid() {
        let path = file.to_str().unwrap();
        ok(&with_db(db, &["load", "--as", &name(&file), path]));
    }
    let reports: [&[&str]; 14] = [
        &["top", "-n", "0", "-f", "json"],
        &["top", "-n", "5", "-f", "json", "-t", "0"],
        &["top", "-n", "7", "-f", "json", "--sort", "cum", "--wide"],
        &["top", "-n", "0", "-f", "json", "-g", "lines"],
        &["top", "-n", "0", "-f", "json", "-g", "addresses"],
        &[
            "top",
            "-n",
            "0",
            "-f",
            "json",
            "--focus",
            "main|parse",
            "--no-inlines",
        ],
        &["top", "-n", "0", "-f", "json", "--all-frames"],
        &["tree", "-f", "json", "--min-percent", "0.5"],
        &["tree", "-f", "json", "--reverse"],
        &["peek", "-f", "json", "."],
        &["traces", "-f", "json", "-n", "50"],
        &["tags", "-f", "json"],
        &["list", "-f", "csv", "."],
        &["flame", "-f", "folded"],
    ];
    for file in valid() {
        let path = file.to_str().unwrap();
        for report in reports {
            let mut args = report.to_vec();
            args.push(path);
            let direct = run(folder.path(), &args);
            args.pop();
            let stored_name = name(&file);
            args.push(&stored_name);
            let stored = run(folder.path(), &with_db(db, &args));
            assert_eq!(
                stored.code, direct.code,
                "{args:?} {} {}",
                stored.err, direct.err
            );
            assert_eq!(stored.out, direct.out, "{args:?}");
        }
        // The facts differ only in the name of the profile.
        let direct = run(folder.path(), &["info", "-f", "csv", path]).out;
        let stored = run(
            folder.path(),
            &with_db(db, &["info", "-f", "csv", &name(&file)]),
        )
        .out;
        let facts = |text: &str| {
            let kept = |l: &&str| {
                !["Profile", "Locations", "Functions", "Mapping"]
                    .iter()
                    .any(|f| l.starts_with(f))
            };
            text.lines()
                .filter(kept)
                .map(str::to_string)
                .collect::<Vec<_>>()
        };
        assert_eq!(facts(&stored), facts(&direct), "{path}");
    }
}

/// The views compute flat and cum as `top` does. They cut no frames, so `top` keeps all frames
/// here, too.
#[test]
fn views_add_up_as_top_does() {
    let mut rows = 0;
    for file in valid() {
        // The views follow all stacks of a database.
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("heap.db");
        let db = db.to_str().unwrap();
        let path = file.to_str().unwrap();
        let stored = name(&file);
        ok(&with_db(db, &["load", "--as", &stored, path]));
        let top = ok(&["top", "-n", "0", "--all-frames", "-f", "json", path]);
        let top: serde_json::Value = serde_json::from_str(&top).unwrap();
        let sample_type = &top["sample_type"];
        let mut expected: Vec<(String, i64, i64)> = top["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                let number = |key: &str| row[key].as_i64().unwrap();
                let name = row["function"].as_str().unwrap().to_string();
                (name, number("flat"), number("cum"))
            })
            .collect();
        expected.sort();
        let sql = format!(
            "SELECT function, flat, cum FROM function_report WHERE profile = '{stored}' AND \
             sample_type = {} AND unit = {} AND (flat <> 0 OR cum <> 0)",
            sample_type["type"].to_string().replace('"', "'"),
            sample_type["unit"].to_string().replace('"', "'"),
        );
        let found = ok(&with_db(db, &["sql", "-f", "json", &sql]));
        let found: Vec<serde_json::Value> = serde_json::from_str(&found).unwrap();
        let mut found: Vec<(String, i64, i64)> = found
            .iter()
            .map(|row| {
                let number = |key: &str| row[key].as_i64().unwrap();
                let name = row["function"].as_str().unwrap().to_string();
                (name, number("flat"), number("cum"))
            })
            .collect();
        found.sort();
        expected.retain(|row| row.1 != 0 || row.2 != 0);
        assert_eq!(found, expected, "{path}");
        rows += found.len();
    }
    assert!(rows > 500, "{rows}");
}

#[test]
fn two_loaded_profiles_differ_as_their_files_do() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let db = db.to_str().unwrap();
    let (before, after) = ("valid/go.leaky.before.pb.gz", "valid/go.leaky.after.pb.gz");
    ok(&with_db(db, &["load", before, after]));
    for sort in ["flat", "cum"] {
        let args = |b, a| {
            vec![
                "--db", db, "diff", b, a, "-f", "json", "--sort", sort, "-n", "0",
            ]
        };
        let direct = ok(&args(before, after));
        assert_eq!(ok(&args("go.leaky.before", "go.leaky.after")), direct);
        assert_eq!(ok(&args("go.leaky.before", after)), direct);
        assert_eq!(ok(&args(before, "go.leaky.after")), direct);
    }
    let same = ok(&with_db(
        db,
        &["diff", "go.leaky.after", "go.leaky.after", "-f", "json"],
    ));
    assert!(same.contains("\"rows\":[]"), "{same}");
}

/// A second profile with the same stacks adds only samples and totals.
#[test]
fn stacks_are_shared() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let count = |table: &str| -> String {
        let sql = format!("SELECT count(*) FROM {table}");
        ok(&["--db", db.to_str().unwrap(), "sql", &sql, "-f", "csv"])
    };
    let load = |name: &str| {
        let file = "valid/go.leaky.after.pb.gz";
        ok(&["--db", db.to_str().unwrap(), "load", "--as", name, file]);
    };
    load("one");
    let tables = [
        "stack",
        "location",
        "function",
        "line",
        "mapping",
        "label",
        "sample_type",
    ];
    let first: Vec<String> = tables.iter().map(|t| count(t)).collect();
    load("two");
    let second: Vec<String> = tables.iter().map(|t| count(t)).collect();
    assert_eq!(first, second);
}

/// After `rm`, the database has the contents that it would have without that profile, and its file
/// is as small.
#[test]
fn removing_gives_the_space_back() {
    let folder = tempfile::tempdir().unwrap();
    let (one, both) = (folder.path().join("one.db"), folder.path().join("both.db"));
    let (one, both) = (one.to_str().unwrap(), both.to_str().unwrap());
    let (small, large) = ("valid/made.labels.pb.gz", "valid/go.indexer.indexed.pb.gz");
    ok(&["--db", one, "load", "--as", "small", small]);
    ok(&["--db", both, "load", "--as", "large", large]);
    ok(&["--db", both, "load", "--as", "small", small]);
    let full = std::fs::metadata(both).unwrap().len();
    ok(&["--db", both, "rm", "large"]);
    let size = |db: &str| std::fs::metadata(db).unwrap().len();
    assert!(
        size(both) <= size(one) + 4096,
        "{} {}",
        size(both),
        size(one)
    );
    assert!(full > 10 * size(both));
    for table in [
        "stack",
        "location",
        "function",
        "line",
        "mapping",
        "label",
        "sample",
        "heap_sample",
        "stack_function",
        "sample_type",
        "profile_mapping",
        "profile_total",
        "comment",
    ] {
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(
            ok(&["--db", both, "sql", &sql]),
            ok(&["--db", one, "sql", &sql]),
            "{table}"
        );
    }
    let top = |db| ok(&["--db", db, "top", "small", "-f", "json"]);
    assert_eq!(top(both), top(one));
    let gone = run(&sample_profiles(), &["--db", both, "top", "large"]);
    assert_eq!(gone.code, 2);
    assert!(
        gone.err
            .contains("no profile named \"large\"; it has small"),
        "{}",
        gone.err
    );
}

#[test]
fn names_are_taken_once() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let db = db.to_str().unwrap();
    let file = "valid/made.labels.pb.gz";
    ok(&["--db", db, "load", file]);
    let load = |words: &[&str]| run(&sample_profiles(), &[&["--db", db, "load"], words].concat());
    let again = load(&[file]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(
        again.err.contains("has made.labels already"),
        "{}",
        again.err
    );
    // Another profile does not get the name, and the next profile in the list is loaded.
    let taken = "already has a profile named \"made.labels\"";
    let other = load(&["--as", "made.labels", "valid/made.plain.pb"]);
    assert!(
        other.code == 2 && other.err.contains(taken),
        "{}",
        other.err
    );
    let folder_of_other = folder.path().join("made.labels.pb");
    std::fs::copy(
        sample_profiles().join("valid/made.plain.pb"),
        &folder_of_other,
    )
    .unwrap();
    let both = load(&[
        folder_of_other.to_str().unwrap(),
        "valid/made.negative.pb.gz",
    ]);
    assert_eq!(both.code, 2);
    assert!(both.err.contains(taken), "{}", both.err);
    assert!(both.err.contains("loaded made.negative"), "{}", both.err);
    assert!(
        both.err.contains("1 of 2 profiles were not loaded"),
        "{}",
        both.err
    );
    let twins = run(
        &sample_profiles(),
        &[
            "--db",
            db,
            "load",
            "valid/made.plain.pb",
            "valid/../valid/made.plain.pb",
        ],
    );
    assert_eq!(twins.code, 2);
    assert!(
        twins.err.contains("would be loaded as \"made.plain\""),
        "{}",
        twins.err
    );
}

fn integrity(db: &Path) -> String {
    ok(&[
        "--db",
        db.to_str().unwrap(),
        "sql",
        "SELECT integrity_check FROM pragma_integrity_check",
        "-f",
        "csv",
    ])
}

/// If a load is killed at any moment, the database is as before.
#[test]
fn a_killed_load_leaves_the_database_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let path = db.to_str().unwrap();
    ok(&[
        "--db",
        path,
        "load",
        "--as",
        "first",
        "valid/go.leaky.after.pb.gz",
    ]);
    let top = || ok(&["--db", path, "top", "first", "-f", "json", "-n", "0"]);
    let before = top();
    // The profile is larger than SQLite's cache, so that SQLite writes to the database before the
    // end.
    let large = folder.path().join("large.pb.gz");
    let mut builder = heapprof_profile::ProfileBuilder::new(&[("inuse_space", "bytes")]);
    for i in 0..30_000 {
        let stack = format!(
            "main;a{};b{};c{};d{};e{i}",
            i % 7,
            i % 61,
            i % 997,
            i % 5003
        );
        builder.add_folded(&stack, &[i + 1]);
    }
    heapprof_profile::encode(&builder.finish(), std::fs::File::create(&large).unwrap()).unwrap();
    let large = large.to_str().unwrap();
    let mut killed = 0;
    for millis in [
        0, 20, 50, 100, 150, 200, 300, 400, 600, 800, 1100, 1500, 2000, 3000,
    ] {
        let name = format!("killed-{millis}");
        let mut child = command(&sample_profiles())
            .args(["--db", path, "load", "--as", &name, large])
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(millis));
        let _ = child.kill();
        let finished = child.wait().unwrap().success();
        killed += usize::from(!finished);
        assert!(integrity(&db).ends_with("ok\n"), "{millis}");
        assert_eq!(top(), before, "{millis}");
        let listed = ok(&["--db", path, "ls", "-f", "csv"]).contains(&name);
        // The load may be killed between the last write and its end.
        assert!(listed || !finished, "{millis}: all of it or nothing");
        if listed {
            let sum = |args: &[&str]| ok(&[args, &["-f", "json", "-n", "3"]].concat());
            let stored = sum(&["--db", path, "top", &name]).replace(&name, large);
            assert_eq!(
                stored,
                sum(&["top", large]),
                "{millis}: all of it or nothing"
            );
            ok(&["--db", path, "rm", &name]);
        }
    }
    assert!(killed > 3, "the load was too fast to be killed: {killed}");
    ok(&[
        "--db",
        path,
        "load",
        "--as",
        "second",
        "valid/go.indexer.indexed.pb.gz",
    ]);
}

#[test]
fn processes_that_load_at_once_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let path = db.to_str().unwrap();
    let children: Vec<_> = (0..4)
        .map(|n| {
            command(&sample_profiles())
                .args([
                    "--db",
                    path,
                    "load",
                    "--as",
                    &format!("p{n}"),
                    "valid/go.indexer.parsed.pb.gz",
                ])
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert!(integrity(&db).ends_with("ok\n"));
    let direct = ok(&["top", "-f", "json", "valid/go.indexer.parsed.pb.gz"]);
    for n in 0..4 {
        assert_eq!(
            ok(&["--db", path, "top", "-f", "json", &format!("p{n}")]),
            direct
        );
    }
}

#[test]
fn databases_of_others_and_of_the_future_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let junk = folder.path().join("junk.db");
    std::fs::write(
        &junk,
        "no database, but long enough to be looked at as if it were one\n".repeat(20),
    )
    .unwrap();
    let run_on = |db: &Path, args: &[&str]| {
        let db = db.to_str().unwrap();
        run(&sample_profiles(), &with_db(db, args))
    };
    let refused = |db: &Path, says: &str| {
        for args in [
            &["ls"][..],
            &["load", "valid/made.plain.pb"],
            &["sql", "SELECT 1"],
            &["rm", "x"],
        ] {
            let run = run_on(db, args);
            assert_eq!(run.code, 2, "{args:?}");
            assert!(run.err.contains(says), "{args:?}: {}", run.err);
            assert_eq!(run.err.lines().count(), 1);
        }
    };
    refused(&junk, "is not a heapprof database");
    // This is a database of a future version: the same file with a higher version in its header.
    let future = folder.path().join("future.db");
    assert_eq!(run_on(&future, &["load", "valid/made.plain.pb"]).code, 0);
    let mut bytes = std::fs::read(&future).unwrap();
    bytes[60..64].copy_from_slice(&99u32.to_be_bytes());
    std::fs::write(&future, &bytes).unwrap();
    refused(
        &future,
        &format!("was written by a newer heapprof (schema 99, this one knows {SCHEMA_VERSION})"),
    );
    // This is a database of another application: the same file with another application id.
    bytes[60..64].copy_from_slice(&(SCHEMA_VERSION as u32).to_be_bytes());
    bytes[68..72].copy_from_slice(&7u32.to_be_bytes());
    let other = folder.path().join("other.db");
    std::fs::write(&other, &bytes).unwrap();
    refused(&other, "it holds tables of something else");
    assert_eq!(run_on(&folder.path().join("none.db"), &["ls"]).code, 2);
}

#[test]
fn sql_reads_and_does_not_write() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    let mut store = ProfileStore::open_or_create(&db).unwrap();
    store
        .load(
            "p",
            &std::sync::Arc::new(heapprof_tests::samples::recursion()),
            &mut |_, _| {},
        )
        .unwrap();
    drop(store);
    let path = db.to_str().unwrap();
    for sql in [
        "DELETE FROM sample",
        "CREATE TABLE t (x)",
        "UPDATE profile SET name = 'q'",
    ] {
        let run = run(&sample_profiles(), &["--db", path, "sql", sql]);
        assert_eq!(run.code, 2, "{sql}");
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
    }
    let report = ok(&[
        "--db",
        path,
        "sql",
        "-f",
        "csv",
        "SELECT function, cum FROM function_report WHERE sample_type = 'inuse_space' ORDER BY cum \
         DESC, function",
    ]);
    assert_eq!(
        report,
        "function,cum\nmain,350\nalloc,300\nwalk,300\neven,50\nodd,50\n"
    );
}

/// Plain SQLite can use the views of the schema page without heapprof.
#[test]
fn plain_sqlite_reads_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let db = folder.path().join("heap.db");
    ok(&[
        "--db",
        db.to_str().unwrap(),
        "load",
        "valid/go.leaky.after.pb.gz",
    ]);
    let child = std::process::Command::new("sqlite3")
        .arg(&db)
        .arg("SELECT sum(total) FROM profile_report; SELECT count(*) > 0 FROM function_report;")
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        have(&["sqlite3"]);
        return;
    };
    let mut text = String::new();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    lines.read_line(&mut text).unwrap();
    assert!(text.trim().parse::<i64>().unwrap() > 0);
    lines.read_to_string(&mut text).unwrap();
    assert!(text.ends_with("1\n"), "{text}");
    child.wait().unwrap();
}
