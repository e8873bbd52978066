//! Laws of the command line: exit codes, one-line errors, complete files or none, data on stdout
//! and messages on stderr.

use std::io::Read;
use std::process::Stdio;

use heapprof_tests::harness::{Run, command, commands, heapprof, ok, run, sample_profiles};

const AFTER: &str = "valid/go.leaky.after.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";

#[test]
fn errors_are_one_line_and_exit_2() {
    let cases: [(&[&str], &str); 24] = [
        (
            &["top", "-t", "bananas", AFTER],
            "has no sample type \"bananas\"; it has alloc_objects, alloc_space, inuse_objects, \
             inuse_space",
        ),
        (
            &["top", "--focus", "(", AFTER],
            "--focus \"(\": not a regular expression",
        ),
        (
            &["top", "--tag-focus", "99999999999999999999", AFTER],
            "--tag-focus",
        ),
        (
            &["top", "--unit", "bananas", AFTER],
            "--unit \"bananas\": is not a unit",
        ),
        (&["top", "--unit", "ms", AFTER], "the values are in bytes"),
        (
            &["peek", "nothing_like_this", AFTER],
            "no function that has inuse_space (after filters) matches",
        ),
        (&["peek", "(", AFTER], "\"(\": not a regular expression"),
        (
            &["list", "nothing_like_this", AFTER],
            "no function that has inuse_space (after filters) matches",
        ),
        (&["diff", AFTER], "only valid/go.leaky.after.pb.gz is given"),
        (&["diff"], "give BEFORE and AFTER"),
        (&["diff", "-", "-"], "stdin) can be read only once"),
        (
            &["diff", AFTER, "nowhere"],
            "nowhere: there is no such file",
        ),
        (
            &["diff", BEFORE, "valid/go.leaky.cpu.pb.gz"],
            "choose one that both have with --sample-type",
        ),
        (
            &["diff", BEFORE, AFTER, "--fail-if", "bananas > 5"],
            "bananas is not a sample type of both profiles",
        ),
        (
            &["diff", BEFORE, AFTER, "--fail-if", "inuse_space > 5s"],
            "compares time with a value in bytes",
        ),
        (
            &["diff", BEFORE, AFTER, "--fail-if", "what"],
            "--fail-if \"what\": needs a >",
        ),
        (&["sql", "-p", AFTER, "SELEC 1"], "syntax error"),
        (&["sql", "-p", AFTER, "SELECT 1; SELECT 2"], "one at a time"),
        (&["sql", "-p", AFTER, "SELECT ?1"], "has parameters"),
        (
            &["sql", "-p", AFTER, "SELECT * FROM functions"],
            "no such table: functions; heapprof db schema lists the tables",
        ),
        (
            &["sql", "-p", AFTER, "SELECT size FROM function"],
            "no such column: size, at character 8; heapprof db schema lists the tables",
        ),
        (
            &["convert", "--to", "csv", "-t", "inuse_space", AFTER],
            "--sample-type is for --to folded",
        ),
        (&["man", "bananas"], "there is no such command"),
        (
            &["merge", AFTER, "valid/go.leaky.cpu.pb.gz"],
            "share no sample type",
        ),
    ];
    for (args, says) in cases {
        let run = run(&sample_profiles(), args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.err);
        assert_eq!(run.out, "", "{args:?}");
        assert_eq!(run.err.lines().count(), 1, "{args:?}: {}", run.err);
        assert!(run.err.starts_with("heapprof: "), "{args:?}: {}", run.err);
        assert!(run.err.contains(says), "{args:?}: {}", run.err);
    }
}

#[test]
fn usage_errors_exit_2_and_help_exits_0() {
    for args in [
        &["bananas"][..],
        &["top", "--bananas"],
        &["top", "-n", "x"],
        &["top", "-g", "x", AFTER],
        &[],
    ] {
        let run = run(&sample_profiles(), args);
        assert_eq!(run.code, 2, "{args:?}");
        if !args.is_empty() {
            assert!(
                run.err.starts_with("heapprof: ") && run.err.lines().count() == 1,
                "{}",
                run.err
            );
        }
    }
    for command in commands() {
        let words: Vec<&str> = command.split(' ').collect();
        let help = ok(&[&words[..], &["--help"]].concat());
        assert!(help.contains("Example: heapprof "), "{command}");
        assert!(help.contains("Usage: heapprof "), "{command}");
        let man = ok(&[&["setup", "man"], &words[..]].concat());
        assert!(man.contains(".TH"), "{command}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(ok(&["completions", shell]).contains("heapprof"));
    }
}

#[test]
fn rules_decide_the_exit_code() {
    let rule = |rule: &str| {
        run(
            &sample_profiles(),
            &["diff", BEFORE, AFTER, "--fail-if", rule, "-n", "3"],
        )
    };
    let broken = [
        "inuse_space > +10%",
        "inuse_space > +1MiB",
        "inuse_space > 1MiB",
        "alloc_objects > +1000",
        "flat(tree.*insert) > +100KiB",
        "cum(main.serve) > +20%",
        "new > 1KiB",
    ];
    for text in broken {
        let run = rule(text);
        assert_eq!(run.code, 1, "{text}: {}", run.err);
        assert!(
            run.err.contains(&format!("heapprof: failed: {text} on ")),
            "{}",
            run.err
        );
        assert!(run.out.contains("(total)"), "the report is still written");
    }
    for text in [
        "inuse_space > +1000%",
        "inuse_space > 1TiB",
        "new > 1GiB",
        "cum(main.serve) >= +1GiB",
    ] {
        let run = rule(text);
        let said = (run.code, run.err.as_str());
        assert_eq!(said, (0, "heapprof: passed: 1 rule\n"), "{text}");
    }
    let nothing = rule("flat(no_such_function) > +0%");
    assert_eq!(nothing.code, 0);
    for line in [
        "matches no function on either side\n",
        "heapprof: neither failed nor passed: 1 rule\n",
    ] {
        assert!(nothing.err.contains(line), "{}", nothing.err);
    }
    // Most memory is freed before the end of this program.
    let freed = "python/orders.pb.gz";
    let end = "inuse_space > +10%";
    let words = [
        "diff",
        freed,
        freed,
        "--fail-if",
        end,
        "--fail-if",
        "new > 1MiB",
    ];
    let run_of_end = run(&sample_profiles(), &words);
    assert_eq!(run_of_end.code, 0);
    for line in [
        "then; -t peak --fail-if \"peak_space > +10%\" compares the peaks\n",
        "heapprof: passed: 2 rules\n",
    ] {
        assert!(run_of_end.err.contains(line), "{}", run_of_end.err);
    }
    let words = [
        "diff",
        freed,
        freed,
        "-t",
        "peak",
        "--fail-if",
        "peak_space > +10%",
    ];
    let run_of_peaks = run(&sample_profiles(), &words);
    assert!(
        !run_of_peaks.err.contains("freed by then"),
        "{}",
        run_of_peaks.err
    );
    let json = run(
        &sample_profiles(),
        &[
            "diff",
            BEFORE,
            AFTER,
            "--fail-if",
            "inuse_space > +10%",
            "-f",
            "json",
        ],
    );
    assert_eq!(json.code, 1);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(json["failed"][0]["rule"], "inuse_space > +10%");
}

#[test]
fn sides_of_a_diff_can_be_merged() {
    let sums = ok(&["diff", BEFORE, AFTER, "--before", BEFORE, "-f", "json"]);
    let sums: serde_json::Value = serde_json::from_str(&sums).unwrap();
    let single = ok(&["diff", BEFORE, AFTER, "-f", "json"]);
    let single: serde_json::Value = serde_json::from_str(&single).unwrap();
    assert_eq!(
        sums["total"]["before"].as_i64().unwrap(),
        2 * single["total"]["before"].as_i64().unwrap()
    );
    assert_eq!(sums["total"]["after"], single["total"]["after"]);
}

#[test]
fn json_has_the_promised_shape() {
    let top: serde_json::Value =
        serde_json::from_str(&ok(&["top", "-n", "2", "-f", "json", "--wide", AFTER])).unwrap();
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&top), ["sample_type", "total", "net", "rows", "other"]);
    assert_eq!(keys(&top["sample_type"]), ["type", "unit"]);
    assert_eq!(
        keys(&top["rows"][0]),
        ["function", "file", "flat", "cum", "values"]
    );
    assert_eq!(
        keys(&top["rows"][0]["values"]),
        [
            "alloc_objects",
            "alloc_space",
            "inuse_objects",
            "inuse_space"
        ]
    );
    assert_eq!(keys(&top["other"]), ["flat", "rows"]);
    let at: serde_json::Value = serde_json::from_str(&ok(&[
        "top",
        "-n",
        "1",
        "-f",
        "json",
        "-g",
        "addresses",
        AFTER,
    ]))
    .unwrap();
    assert_eq!(
        keys(&at["rows"][0]),
        ["function", "file", "line", "address", "flat", "cum"]
    );
    assert!(at["rows"][0]["address"].as_str().unwrap().starts_with("0x"));
    let diff: serde_json::Value =
        serde_json::from_str(&ok(&["diff", BEFORE, AFTER, "-f", "json"])).unwrap();
    assert_eq!(keys(&diff), ["sample_type", "total", "rows"]);
    assert_eq!(keys(&diff["total"]), ["before", "after", "delta"]);
    assert_eq!(
        keys(&diff["rows"][0]),
        [
            "function", "file", "before", "after", "delta", "growth", "status"
        ]
    );
    let new = diff["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|r| r["status"] == "new")
        .unwrap();
    assert!(new["growth"].is_null());
}

#[test]
fn output_files_are_whole_or_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let samples = sample_profiles();
    let path = |name: &str| samples.join(name).to_str().unwrap().to_string();
    let written = run(folder.path(), &["top", &path(AFTER), "-o", "top.txt"]);
    assert_eq!((written.code, written.out.as_str()), (0, ""));
    assert_eq!(
        std::fs::read_to_string(folder.path().join("top.txt")).unwrap(),
        run(folder.path(), &["top", &path(AFTER)]).out
    );
    let failed = run(
        folder.path(),
        &[
            "flame",
            &path("valid/made.empty-stacks.pb.gz"),
            "-t",
            "inuse_space",
            "--focus",
            "nothing",
            "-o",
            "out.svg",
        ],
    );
    assert_eq!(failed.code, 2, "{}", failed.err);
    let nowhere = run(
        folder.path(),
        &["top", &path(AFTER), "-o", "no/such/folder/top.txt"],
    );
    assert_eq!(nowhere.code, 2);
    assert!(
        nowhere
            .err
            .contains("no/such/folder/top.txt: cannot be written"),
        "{}",
        nowhere.err
    );
    let names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert_eq!(names, ["top.txt"], "nothing half-written is left");
}

#[test]
fn a_dash_is_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    let profile = sample_profiles().join(AFTER).display().to_string();
    for command in ["top", "merge", "info"] {
        let plain = run(folder.path(), &[command, &profile]);
        let dash = run(folder.path(), &[command, &profile, "-o", "-"]);
        assert_eq!((plain.code, dash.code), (0, 0), "{command}: {}", dash.err);
        assert!(plain.out == dash.out, "{command}");
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "no file of that name");
}

#[test]
fn what_cannot_be_written_is_named() {
    let full = "cannot be written: No space left on device (os error 28)";
    let profile = sample_profiles().join(AFTER).display().to_string();
    for (args, name) in [
        (&["top", &profile][..], "standard output"),
        (&["merge", &profile], "standard output"),
        (&["pprof", "-top", &profile], "standard output"),
        (
            &["convert", "--to", "speedscope", &profile],
            "standard output",
        ),
        (&["merge", &profile, "-o", "/dev/full"], "/dev/full"),
        (&["flame", &profile, "-o", "/dev/full"], "/dev/full"),
        (&["--help"], "standard output"),
        (&["top", "--help"], "standard output"),
        (&["--version"], "standard output"),
    ] {
        let output = command(&sample_profiles())
            .args(args)
            .stdout(std::fs::File::create("/dev/full").unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said, format!("heapprof: {name}: {full}\n"), "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

/// A limit of a file's size is an error of the file, which is not left half-written, and no death
/// by a signal.
#[test]
fn a_file_over_its_limit_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let profile = sample_profiles().join(AFTER).display().to_string();
    let heapprof = heapprof().display().to_string();
    for (command, file) in [("report", "r.html"), ("flame", "f.svg")] {
        let script = format!("ulimit -f 1; exec '{heapprof}' {command} -o {file} '{profile}'");
        let mut shell = std::process::Command::new("/bin/sh");
        shell.args(["-c", &script]).current_dir(folder.path());
        let found = Run::from(shell.output().unwrap());
        let expected =
            format!("heapprof: {file}: cannot be written: File too large (os error 27)\n");
        assert_eq!((found.code, found.err), (2, expected), "{command}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command(&sample_profiles())
        .args(["traces", "valid/go.indexer.indexed.pb.gz"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 10];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn merge_and_convert_keep_everything() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.pb.gz");
    let out = out.to_str().unwrap();
    for file in heapprof_tests::harness::valid() {
        let path = file.to_str().unwrap();
        ok(&["convert", "--to", "pprof", path, "-o", out]);
        let read = |p: &str| heapprof_profile::decode(std::fs::File::open(p).unwrap()).unwrap();
        let (mut written, own) = (read(out), read(path));
        if !own.samples.has_spread() {
            // The spread of Go's values is computed when the file is read, and is written, too.
            written.samples.forget_spread();
        }
        assert_eq!(written, own, "{path}");
        let json: serde_json::Value =
            serde_json::from_str(&ok(&["convert", "--to", "json", path])).unwrap();
        assert_eq!(
            json["samples"].as_array().unwrap().len(),
            read(path).samples.len()
        );
        let csv = ok(&["convert", "--to", "csv", path]);
        assert!(csv.lines().count() > read(path).samples.len());
        let net: i64 = serde_json::from_str::<serde_json::Value>(&ok(&["top", "-f", "json", path]))
            .unwrap()["net"]
            .as_i64()
            .unwrap();
        let folded = ok(&["convert", "--to", "folded", path]);
        let sum: i64 = folded
            .lines()
            .map(|l| l.rsplit_once(' ').unwrap().1.parse::<i64>().unwrap())
            .sum();
        assert_eq!(sum, net, "{path}");
    }
}

/// A table with eight sample types has at most the requested width.
#[test]
fn wide_tables_are_as_wide_as_they_may_be() {
    let file = "valid/go.leaky.after.pb.gz";
    let all = ok(&["top", "--wide", file]);
    assert_eq!(ok(&["top", "--wide", "--width", "0", file]), all);
    assert_eq!(ok(&["top", "--wide", "--width", "300", file]), all);
    for (width, out) in [
        (140, Some("alloc_objects, alloc_space")),
        (100, Some("alloc_objects, alloc_space, inuse_objects")),
        (60, Some("alloc_objects, alloc_space, inuse_objects")),
        (20, Some("alloc_objects, alloc_space, inuse_objects")),
    ] {
        let text = ok(&["top", "--wide", "--width", &width.to_string(), file]);
        let said =
            out.map(|out| format!("Left out at a width of {width}: {out}; --width 0 shows all"));
        // The head is folded to the width.
        let head = text.lines().take_while(|line| !line.contains(" flat"));
        let head = head.collect::<Vec<_>>().join(" ");
        assert!(said.is_none_or(|said| head.contains(&said)), "{text}");
        let rows = text.lines().skip_while(|line| !line.contains(" flat"));
        let widest = rows.map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= width.max(90), "{width}: {text}");
        assert!(text.contains("inuse_space flat"), "{text}");
    }
}

#[test]
fn shown_sql_is_what_was_asked() {
    for report in [
        &["top", "-n", "5"][..],
        &["top", "-n", "5", "--wide"],
        &["tree", "--min-percent", "0"],
        &["tags"],
        &["traces", "-n", "2"],
        &["peek", "insert"],
        &["info"],
    ] {
        let mut args = report.to_vec();
        args.extend(["--show-sql", AFTER]);
        let shown = ok(&args);
        assert!(shown.contains("SELECT"), "{report:?}");
        for statement in shown.lines() {
            ok(&["sql", "-p", AFTER, statement.trim_end_matches(';')]);
        }
    }
    let sql = ok(&["top", "-n", "3", "--show-sql", AFTER]);
    let statement = sql
        .lines()
        .find(|l| l.contains("LIMIT 3"))
        .unwrap()
        .trim_end_matches(';');
    let rows: serde_json::Value =
        serde_json::from_str(&ok(&["sql", "-f", "json", "-p", AFTER, statement])).unwrap();
    let top: serde_json::Value =
        serde_json::from_str(&ok(&["top", "-n", "3", "-f", "json", AFTER])).unwrap();
    for at in 0..3 {
        assert_eq!(rows[at]["name"], top["rows"][at]["function"]);
        assert_eq!(rows[at]["flat"], top["rows"][at]["flat"]);
    }
}

#[test]
fn empty_answers_say_why() {
    let elsewhere = ok(&[
        "top",
        "-t",
        "inuse_space",
        "valid/made.empty-stacks.pb.gz",
        "--focus",
        "alloc",
    ]);
    assert!(
        elsewhere.contains("No sample passes the filters."),
        "{elsewhere}"
    );
    let other = run(&sample_profiles(), &["top", "--focus", "no_such", AFTER]);
    assert_eq!(
        other.err,
        "heapprof: --focus \"no_such\" matches no frame\n"
    );
}

#[test]
fn colour_only_when_wanted() {
    let plain = ok(&["diff", BEFORE, AFTER]);
    assert!(!plain.contains('\u{1b}'));
    let painted = ok(&["--color", "always", "diff", BEFORE, AFTER]);
    assert!(painted.contains("\u{1b}["));
    let never = ok(&["--color", "always", "top", "valid/made.odd-names.pb.gz"]);
    assert!(
        !never.contains("\u{1b}[31m"),
        "a name can't colour the terminal"
    );
}
