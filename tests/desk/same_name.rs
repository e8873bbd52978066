//! Functions with one name in several files: each has its own row in every report, and the row
//! shows the file.

use std::path::Path;

use heapprof_tests::fixtures::{self, profile, rows_of, write};
use heapprof_tests::harness::run;
use serde_json::{Value, json};

/// Stacks of Python modules that import each other. Two other functions share one name, and the
/// name `once` is unique.
const STACKS: [(&str, &[i64]); 4] = [
    (
        "<module>@/srv/app/main.py:1;<module>@/srv/app/models.py:3;load@/srv/app/io.py:8",
        &[1, 100],
    ),
    (
        "<module>@/srv/app/main.py:1;<module>@/srv/shop/models.py:5;load@/srv/shop/io.py:8",
        &[1, 40],
    ),
    (
        "<module>@/srv/app/main.py:2;<module>@/srv/shop/models.py:6",
        &[1, 7],
    ),
    (
        "<module>@/srv/app/main.py:2;once@/srv/app/main.py:9",
        &[1, 3],
    ),
];

/// Writes a profile of objects and space in use.
fn in_use(folder: &Path, name: &str, stacks: &[(&str, &[i64])]) {
    let types = [("inuse_objects", "count"), ("inuse_space", "bytes")];
    write(folder, name, &profile(&types, stacks));
}

/// Returns a report as JSON.
fn json(folder: &Path, args: &[&str]) -> Value {
    fixtures::json(folder, &[args, &["-f", "json"]].concat())
}

fn out(folder: &Path, args: &[&str]) -> String {
    let run = run(folder, args);
    assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    run.out
}

/// Makes a folder with the profile `p`.
fn with_profile() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    in_use(folder.path(), "p", &STACKS);
    folder
}

/// Returns the values of rows under these keys.
fn cells(rows: &Value, keys: &[&str]) -> Value {
    let rows = rows.as_array().unwrap().iter();
    let cells = |row: &Value| keys.iter().map(|&key| row[key].clone()).collect::<Value>();
    rows.map(cells).collect()
}

/// Returns the rows of the statement for other engines that a report of stored profiles prints.
fn stored(folder: &Path, args: &[&str]) -> Vec<Value> {
    let printed = out(folder, &[args, &["--all-code", "--show-sql"]].concat());
    let mut statements = printed.lines().filter(|line| line.contains("heap_sample"));
    let statement = statements.next_back().expect("a statement");
    let rows = json(folder, &["sql", statement]);
    rows.as_array().unwrap().clone()
}

/// Flat values add up to the total, and cum counts a sample once for each function, even if two
/// functions with one name call each other.
#[test]
fn top_has_a_row_for_each_file() {
    let folder = with_profile();
    let top = json(folder.path(), &["top", "p"]);
    assert_eq!(
        cells(&top["rows"], &["function", "file", "flat", "cum"]),
        json!([
            ["load", "/srv/app/io.py", 100, 100],
            ["load", "/srv/shop/io.py", 40, 40],
            ["<module>", "/srv/shop/models.py", 7, 47],
            ["once", "/srv/app/main.py", 3, 3],
            ["<module>", "/srv/app/main.py", 0, 150],
            ["<module>", "/srv/app/models.py", 0, 100],
        ])
    );
    let text = out(folder.path(), &["top", "p"]);
    let table = text.lines().filter(|line| !line.ends_with('.'));
    let names: Vec<&str> = table.filter_map(|line| line.get(37..)).collect();
    assert_eq!(
        names,
        [
            "function",
            "load app/io.py",
            "load shop/io.py",
            "<module> shop/models.py",
            "once",
        ],
        "{text}"
    );
    assert!(
        text.ends_with("2 more functions hold nothing themselves; --sort cum shows them.\n"),
        "{text}"
    );
    let csv = out(folder.path(), &["top", "-f", "csv", "-n", "1", "p"]);
    assert_eq!(
        csv.lines().nth(1),
        Some("100,100,load,,,,,,,/srv/app/io.py")
    );
    // A filter by name finds both functions.
    let text = out(
        folder.path(),
        &["top", "--focus", "^load$", "-f", "csv", "p"],
    );
    assert_eq!(text.lines().filter(|line| line.contains("load")).count(), 2);
}

#[test]
fn peek_shows_each_function_with_its_own_neighbours() {
    let folder = with_profile();
    let peek = json(folder.path(), &["peek", "^load$", "p"]);
    assert_eq!(
        cells(&peek["rows"], &["file", "cum", "callers"]),
        json!([
            ["/srv/app/io.py", 100, [
                {"function": "<module>", "file": "/srv/app/models.py", "value": 100}
            ]],
            ["/srv/shop/io.py", 40, [
                {"function": "<module>", "file": "/srv/shop/models.py", "value": 40}
            ]],
        ])
    );
    let text = out(folder.path(), &["peek", "^load$", "p"]);
    for line in ["caller <module> app/models.py", "load shop/io.py"] {
        assert!(text.contains(line), "{text}");
    }
}

/// CSV rows have a separate column for the file.
#[test]
fn csv_has_files_beside_names() {
    let folder = with_profile();
    let tree = out(folder.path(), &["tree", "-f", "csv", "p"]);
    assert_eq!(
        tree,
        "total,depth,self,function,file\n\
         150,0,0,<module>,/srv/app/main.py\n\
         100,1,0,<module>,/srv/app/models.py\n\
         100,2,100,load,/srv/app/io.py\n\
         47,1,7,<module>,/srv/shop/models.py\n\
         40,2,40,load,/srv/shop/io.py\n\
         3,1,3,once,/srv/app/main.py\n"
    );
    let peek = out(folder.path(), &["peek", "-f", "csv", "^load$", "p"]);
    assert_eq!(
        peek,
        "function,side,neighbour,value,file,neighbour_file\n\
         load,caller,<module>,100,/srv/app/io.py,/srv/app/models.py\n\
         load,callee,(itself),100,/srv/app/io.py,/srv/app/io.py\n\
         load,caller,<module>,40,/srv/shop/io.py,/srv/shop/models.py\n\
         load,callee,(itself),40,/srv/shop/io.py,/srv/shop/io.py\n"
    );
}

/// Functions with one name are distinguished in stacks.
#[test]
fn trees_and_flame_graphs_keep_files_apart() {
    let folder = with_profile();
    let tree = out(folder.path(), &["tree", "--full", "p"]);
    let names: Vec<&str> = tree.lines().filter_map(|line| line.get(22..)).collect();
    assert_eq!(
        names[names.len() - 6..],
        [
            "<module> main.py",
            "  <module> app/models.py",
            "    load app/io.py",
            "  <module> shop/models.py",
            "    load shop/io.py",
            "  once",
        ],
        "{tree}"
    );
    let svg = out(folder.path(), &["flame", "p"]);
    for frame in [
        "&lt;module&gt; app/models.py (100 bytes",
        "load shop/io.py (40 bytes",
    ] {
        assert!(svg.contains(frame), "{frame}");
    }
    let folded = out(folder.path(), &["convert", "--to", "folded", "p"]);
    assert!(folded.contains("<module> main.py;<module> shop/models.py 7\n"));
}

/// Functions are matched by name and file. A name with one file on each side is one function,
/// because a program may have been built in another folder.
#[test]
fn diff_matches_by_name_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let before: [(&str, &[i64]); 3] = [
        ("main@/one/main.c;init@/one/a.c", &[1, 10]),
        ("main@/one/main.c;init@/one/b.c", &[1, 20]),
        ("main@/one/main.c;only@/one/a.c", &[1, 5]),
    ];
    let after: [(&str, &[i64]); 3] = [
        ("main@/two/main.c;init@/two/a.c", &[1, 12]),
        ("main@/two/main.c;init@/one/b.c", &[1, 21]),
        ("main@/two/main.c;only@/two/a.c", &[1, 9]),
    ];
    in_use(folder, "before", &before);
    in_use(folder, "after", &after);
    let flat = json(folder, &["diff", "before", "after"]);
    assert_eq!(
        cells(
            &flat["rows"],
            &["function", "file", "before", "after", "status"]
        ),
        json!([
            ["init", "/two/a.c", 0, 12, "new"],
            ["init", "/one/a.c", 10, 0, "gone"],
            ["only", "/one/a.c", 5, 9, "grown"],
            ["init", "/one/b.c", 20, 21, "grown"],
        ])
    );
    let cum = json(
        folder,
        &["diff", "-s", "cum", "--focus", "main", "before", "after"],
    );
    let [main] = rows_of(&cum, "main")[..] else {
        panic!("{cum}");
    };
    assert_eq!((&main["before"], &main["after"]), (&json!(35), &json!(42)));
    let text = out(folder, &["diff", "before", "after"]);
    for name in ["init two/a.c", "init one/a.c", "init b.c"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(text.lines().any(|line| line.ends_with(" only")), "{text}");
    // In a picture of both sides, matched functions share one frame.
    let svg = out(folder, &["flame", "--base", "before", "after"]);
    assert!(svg.contains("main (35B before, 42B after"), "{svg}");
    // The statement for other engines gives the same result.
    for name in ["before", "after"] {
        let label = format!("side={name}");
        out(folder, &["load", "--label", &label, "--as", name, name]);
    }
    let keys = [
        "name",
        "file",
        "before_flat",
        "after_flat",
        "before_cum",
        "after_cum",
    ];
    let rows = stored(folder, &["diff", "side=before", "side=after"]);
    assert_eq!(
        cells(&rows.into(), &keys),
        json!([
            ["init", "/two/a.c", 0, 12, 0, 12],
            ["init", "/one/a.c", 10, 0, 10, 0],
            ["only", "/one/a.c", 5, 9, 5, 9],
            ["init", "/one/b.c", 20, 21, 20, 21],
        ])
    );
    // With a granularity that has files, they stay separate.
    let files = json(folder, &["diff", "-g", "filefunctions", "before", "after"]);
    assert_eq!(files["rows"].as_array().unwrap().len(), 5, "{files}");
}

#[test]
fn stats_and_leaks_keep_files_apart() {
    let folder = with_profile();
    let stats = json(folder.path(), &["stats", "p"]);
    let types = stats["sample_types"].as_array().unwrap().iter();
    let mut space = types.filter(|of| of["sample_type"]["type"] == "inuse_space");
    assert_eq!(
        cells(
            &space.next().unwrap()["first"],
            &["function", "file", "flat"]
        ),
        json!([
            ["load", "/srv/app/io.py", 100],
            ["load", "/srv/shop/io.py", 40],
            ["<module>", "/srv/shop/models.py", 7],
            ["once", "/srv/app/main.py", 3],
        ])
    );
    let text = out(folder.path(), &["stats", "p"]);
    assert!(text.contains("load app/io.py"), "{text}");
    let leaks = out(folder.path(), &["leaks", "-g", "functions", "p"]);
    for line in ["load shop/io.py\n", " <module> main.py\n"] {
        assert!(leaks.contains(line), "{leaks}");
    }
    // A rule is checked for each function.
    for granularity in ["functions", "filefunctions", "lines"] {
        for (rule, broken) in [
            ("flat(^load$) > 99", "load"),
            ("cum(<module>) > 149", "main.py"),
            ("flat(^load$) > 100", ""),
        ] {
            let args = ["leaks", "-g", granularity, "--fail-if", rule, "p"];
            let run = run(folder.path(), &args);
            assert_eq!(run.code, i32::from(!broken.is_empty()), "{args:?}");
            let failed = run.out.lines().filter(|line| line.starts_with("Failed: "));
            let failed: Vec<&str> = failed.collect();
            assert!(
                failed.len() == usize::from(!broken.is_empty())
                    && failed.iter().all(|line| line.contains(broken)),
                "{args:?} {failed:?}"
            );
        }
    }
}

/// Moments are matched like two profiles: a program that moves to another folder at the third
/// moment has one row, if its name has one file at each moment.
#[test]
fn growth_matches_moments_by_name_and_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let names: Vec<String> = (0..5).map(|at| format!("{at}.pb.gz")).collect();
    for (at, name) in (0..).zip(&names) {
        let home = if at < 2 { "/one" } else { "/two" };
        let types = [("inuse_objects", "count"), ("inuse_space", "bytes")];
        let stacks = [
            (format!("main@{home}/m.c;leak@{home}/l.c"), 100 * (at + 1)),
            (format!("main@{home}/m.c;init@{home}/a.c"), 10),
            ("init@/one/b.c".to_string(), 20 * (at + 1)),
        ];
        let values: Vec<[i64; 2]> = stacks.iter().map(|(_, space)| [1, *space]).collect();
        let stacks: Vec<(&str, &[i64])> = stacks
            .iter()
            .zip(&values)
            .map(|((stack, _), values)| (&stack[..], &values[..]))
            .collect();
        let mut profile = profile(&types, &stacks);
        for comment in ["collector: heapprof 0.2.0", "program: shop", "pid: 7"] {
            let comment = profile.strings.intern(comment);
            profile.comment.push(comment);
        }
        profile.duration_nanos = 60_000_000_000 * (at + 1);
        profile.time_nanos = 1_795_132_800_000_000_000 + profile.duration_nanos;
        write(folder, name, &profile);
    }
    let files: Vec<&str> = names.iter().map(String::as_str).collect();
    out(folder, &[&["load"], &files[..]].concat());
    let growth = json(folder, &["growth", "pid=7"]);
    let mut rows = cells(&growth["rows"], &["function", "file", "values"]);
    rows.as_array_mut().unwrap().sort_by_key(Value::to_string);
    let expected = json!([
        ["init", "/one/a.c", [10, 10, 0, 0, 0]],
        ["init", "/one/b.c", [20, 40, 60, 80, 100]],
        ["init", "/two/a.c", [0, 0, 10, 10, 10]],
        ["leak", "/one/l.c", [100, 200, 300, 400, 500]],
    ]);
    assert_eq!(rows, expected);
    let text = out(folder, &["growth", "pid=7"]);
    assert!(
        text.contains("init b.c") && text.contains("init one/a.c"),
        "{text}"
    );
    let stacks = json(folder, &["growth", "--stacks", "pid=7"]);
    let rows = stacks["rows"].as_array().unwrap();
    let leak = rows
        .iter()
        .find(|row| row["stack"][0]["function"] == "leak");
    assert_eq!(leak.unwrap()["values"], json!([100, 200, 300, 400, 500]));
    let cum = json(folder, &["growth", "-s", "cum", "--focus", "main", "pid=7"]);
    assert_eq!(rows_of(&cum, "main").len(), 1, "{cum}");
    // In the statement for other engines, `leak` has one row for each moment, with that moment's
    // file.
    let mut rows = stored(folder, &["growth", "pid=7"]);
    rows.retain(|row| row["name"] == "leak" || row["moment"] == "3");
    assert_eq!(
        cells(&rows.into(), &["moment", "name", "flat", "file"]),
        json!([
            ["0", "leak", 100, "/one/l.c"],
            ["1", "leak", 200, "/one/l.c"],
            ["2", "leak", 300, "/one/l.c"],
            ["3", "init", 80, "/one/b.c"],
            ["3", "init", 10, "/two/a.c"],
            ["3", "leak", 400, "/one/l.c"],
            ["4", "leak", 500, "/one/l.c"],
        ])
    );
}

/// The tables of a profile have a function for each file, and so do the views of a database and the
/// statements for other engines.
#[test]
fn sql_has_files_and_says_what_reports_say() {
    let folder = with_profile();
    let folder = folder.path();
    let sql = "SELECT f.name, substr(f.filename, -f.file_end) AS file, t.cum FROM function_total t \
               JOIN function f ON f.id = t.function JOIN sample_type s ON s.id = t.type WHERE \
               s.type = 'inuse_space' AND f.file_end > 0 ORDER BY t.cum DESC, file";
    let rows = json(folder, &["sql", "-p", "p", sql]);
    assert_eq!(
        cells(&rows, &["name", "file", "cum"]),
        json!([
            ["<module>", "main.py", 150],
            ["load", "app/io.py", 100],
            ["<module>", "app/models.py", 100],
            ["<module>", "shop/models.py", 47],
            ["load", "shop/io.py", 40],
        ])
    );
    out(folder, &["load", "--label", "of=p", "--as", "stored", "p"]);
    let top = json(folder, &["top", "p"])["rows"].clone();
    assert_eq!(json(folder, &["top", "stored"])["rows"], top);
    let top = cells(&top, &["function", "file", "flat", "cum"]);
    let view = "SELECT function, file, flat, cum FROM function_report WHERE profile = 'stored' AND \
                sample_type = 'inuse_space' ORDER BY flat DESC, cum DESC, function, file";
    let rows = json(folder, &["sql", view]);
    assert_eq!(cells(&rows, &["function", "file", "flat", "cum"]), top);
    let rows = stored(folder, &["top", "of=p"]);
    assert_eq!(cells(&rows.into(), &["name", "file", "flat", "cum"]), top);
}
