//! Sources of profiles: files and their parts, standard input, the newest recording, a server.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Stdio;

use heapprof_profile::{ProfileBuilder, encode};

use heapprof_tests::harness::{Run, command, ok, run, sample_profiles};
use heapprof_tests::wire::gzip;

const AFTER: &str = "valid/go.leaky.after.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";

/// Runs heapprof with a file as standard input and returns its output.
fn with_stdin(file: &str, args: &[&str]) -> String {
    let stdin = std::fs::File::open(sample_profiles().join(file)).unwrap();
    let output = command(&sample_profiles()).args(args).stdin(stdin).output();
    let output = output.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn parts_of_standard_input() {
    const FILE: &str = "foreign/massif/pantry.massif";
    let row = |text: String| {
        text.lines()
            .find(|l| l.contains("label"))
            .map(str::to_string)
    };
    let top = row(ok(&["top", &format!("{FILE}#6")]));
    assert!(top.is_some());
    for args in [
        &["top", "-#6"][..],
        &["top", "-#6", "--color", "never"],
        &["top", "--", "-#6"],
    ] {
        assert_eq!(row(with_stdin(FILE, args)), top, "{args:?}");
    }
    for command in ["pprof", "jeprof"] {
        let last = format!("{FILE}#6");
        let expected = row(ok(&[command, "-text", &last]));
        assert_eq!(row(with_stdin(FILE, &[command, "-text", "-#6"])), expected);
    }
    let wrong = run(&sample_profiles(), &["top", "-#six"]);
    assert_eq!(wrong.code, 2);
}

/// gperftools writes `alloc_*` separately once a block was freed, jemalloc with `prof_accum`. Early
/// and late dumps can still be compared.
#[test]
fn early_dumps_and_late_ones_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).unwrap();
    };
    write(
        "1.heap",
        "heap profile: 3: 3000000 [3: 3000000] @ heapprofile\n3: 3000000 [3: 3000000] @ 0x401001\n",
    );
    write(
        "2.heap",
        "heap profile: 5: 5000000 [7: 7000000] @ heapprofile\n5: 5000000 [7: 7000000] @ 0x401001\n",
    );
    write("1.je", "heap_v2/1\n@ 0x401001\nt*: 3: 3000000 [0: 0]\n");
    write(
        "2.je",
        "heap_v2/1\n@ 0x401001\nt*: 5: 5000000 [7: 7000000]\n",
    );
    let out = |args: &[&str]| {
        let run = run(folder.path(), args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.err);
        run.out
    };
    for [one, two] in [
        ["1.heap", "2.heap"],
        ["2.heap", "1.heap"],
        ["1.je", "2.je"],
        ["2.je", "1.je"],
    ] {
        let total = |args: &[&str]| out(args).lines().next().unwrap().to_string();
        assert_eq!(
            total(&["jeprof", "--show_bytes", one, two]),
            "Total: 8000000 B"
        );
        let base = format!("--base={one}");
        let grown = if one.starts_with('1') {
            "2000000"
        } else {
            "-2000000"
        };
        let expected = format!("Total: {grown} B");
        assert_eq!(total(&["jeprof", "--show_bytes", &base, two]), expected);
        assert!(out(&["jeprof", "--dot", one, two]).contains("Type: inuse_space"));
        assert!(total(&["diff", one, two]).starts_with("inuse_space: "));
        assert!(total(&["top", "--unit", "B", one, two]).contains("inuse_space, total 8000000B"));
        let (a, b) = (format!("{one}.a"), format!("{two}.b"));
        let database = ["--db", "x.db"];
        out(&[&["load", "--as", &a, one][..], &database].concat());
        out(&[&["load", "--as", &b, two][..], &database].concat());
        assert!(total(&[&["diff", &a, &b][..], &database].concat()).starts_with("inuse_space: "));
    }
}

#[test]
fn standard_input_and_several_profiles() {
    let mut child = command(&sample_profiles())
        .args(["top", "-n", "1", "-f", "json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let bytes = std::fs::read(sample_profiles().join(AFTER)).unwrap();
    child.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        ok(&["top", "-n", "1", "-f", "json", AFTER])
    );
    let net = |args: &[&str]| -> i64 {
        let top: serde_json::Value = serde_json::from_str(&ok(args)).unwrap();
        top["net"].as_i64().unwrap()
    };
    let both = net(&["top", "-f", "json", BEFORE, AFTER]);
    assert_eq!(
        both,
        net(&["top", "-f", "json", BEFORE]) + net(&["top", "-f", "json", AFTER])
    );
}

#[test]
fn the_newest_recording_is_meant_when_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let none = run(folder.path(), &["top"]);
    assert_eq!(none.code, 2);
    assert!(
        none.err
            .contains("there is no heapprof recording in this folder"),
        "{}",
        none.err
    );
    let copy = |from: &str, to: &str, age: u64| {
        let path = folder.path().join(to);
        std::fs::copy(sample_profiles().join(from), &path).unwrap();
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(age);
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(time)
            .unwrap();
    };
    copy(BEFORE, "heapprof.old.1.pb.gz", 500);
    copy(AFTER, "heapprof.new.2.pb.gz", 100);
    copy(BEFORE, "other.pb.gz", 0);
    let newest = run(folder.path(), &["top", "-f", "json"]);
    assert_eq!(newest.code, 0);
    assert_eq!(
        newest.err,
        "heapprof: reading heapprof.new.2.pb.gz, the newest recording here\n"
    );
    assert_eq!(newest.out, ok(&["top", "-f", "json", AFTER]));
    // A recording is recognized by our collector's comment, whatever the name of its file. A link
    // is not followed, because it may lead out of the folder.
    moment(folder.path(), "before.pb.gz", 7, 1);
    copy(BEFORE, "newer.pb.gz", 0);
    std::fs::write(folder.path().join("junk.pb.gz"), b"\x1f\x8bno gzip").unwrap();
    // A text that contains the comment is not a recording.
    let text = b"notes.txt: collector: heapprof 0.1.0";
    std::fs::write(folder.path().join("notes.gz"), gzip(text)).unwrap();
    std::os::unix::fs::symlink("before.pb.gz", folder.path().join("heapprof.x.3.pb.gz")).unwrap();
    let newest = run(folder.path(), &["info"]);
    assert_eq!(newest.code, 0);
    assert_eq!(
        newest.err,
        "heapprof: reading before.pb.gz, the newest recording here\n"
    );
}

const SECOND: i64 = 1_000_000_000;

/// Writes a recording of process `pid`, dumped after `seconds` with that number of bytes in use.
fn moment(folder: &Path, name: impl AsRef<Path>, pid: u32, seconds: i64) {
    let mut b = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    b.add_folded("main;grow", &[1, seconds]);
    let pid = format!("pid: {pid}");
    for text in [
        "collector: heapprof 0.1.0",
        "program: server",
        &pid,
        "dump: interval",
    ] {
        let text = b.text(text);
        b.profile.comment.push(text);
    }
    b.profile.duration_nanos = seconds * SECOND;
    b.profile.time_nanos = 1_700_000_000 * SECOND + b.profile.duration_nanos;
    encode(
        &b.finish(),
        std::fs::File::create(folder.join(name)).unwrap(),
    )
    .unwrap();
}

/// Two moments of a process share the same memory, so they are not added up.
#[test]
fn moments_of_one_process_are_a_series_and_no_sum() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    moment(folder, "a.pb.gz", 7, 10);
    moment(folder, "b.pb.gz", 7, 20);
    moment(folder, "child.pb.gz", 8, 20);
    let commands: &[&[&str]] = &[
        &["top", "a.pb.gz", "b.pb.gz"],
        &["top", "child.pb.gz", "a.pb.gz", "b.pb.gz"],
        &["tree", "a.pb.gz", "b.pb.gz"],
        &["peek", ".", "a.pb.gz", "b.pb.gz"],
        &["list", ".", "a.pb.gz", "b.pb.gz"],
        &["traces", "a.pb.gz", "b.pb.gz"],
        &["tags", "a.pb.gz", "b.pb.gz"],
        &["info", "a.pb.gz", "b.pb.gz"],
        &["leaks", "a.pb.gz", "b.pb.gz"],
        &["flame", "-o", "o.svg", "a.pb.gz", "b.pb.gz"],
        &[
            "flame",
            "-o",
            "o.svg",
            "--base",
            "a.pb.gz",
            "--base",
            "b.pb.gz",
            "child.pb.gz",
        ],
        &["merge", "-o", "o.pb.gz", "a.pb.gz", "b.pb.gz"],
        &["convert", "--to", "folded", "a.pb.gz", "b.pb.gz"],
        &[
            "diff",
            "--before",
            "a.pb.gz",
            "--before",
            "b.pb.gz",
            "child.pb.gz",
        ],
        &["load", "--as", "sum", "a.pb.gz", "b.pb.gz"],
    ];
    for args in commands {
        let refused = run(folder, args);
        assert_eq!(
            refused.err,
            "heapprof: a.pb.gz and b.pb.gz are two moments of one process (server, pid 7); adding \
             them up counts the same memory twice: take the last one, use diff, or add --sum\n",
            "{args:?}"
        );
        assert_eq!(refused.code, 2, "{args:?}");
        let summed = run(folder, &[args, &["--sum"][..]].concat());
        assert_eq!(summed.code, 0, "{args:?}: {}", summed.err);
    }
    for args in [
        &["top", "a.pb.gz", "child.pb.gz"][..],
        &["diff", "a.pb.gz", "b.pb.gz"],
        &["pprof", "-top", "a.pb.gz", "b.pb.gz"],
        &["load", "b.pb.gz", "child.pb.gz", "a.pb.gz"],
    ] {
        let run = run(folder, args);
        assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    }
    assert_eq!(run(folder, &["top", "a", "b"]).code, 2);
    std::fs::remove_file(folder.join("o.pb.gz")).unwrap();
    let listed = run(folder, &["ls", "-f", "csv"]).out;
    let listed: Vec<&str> = listed
        .lines()
        .map(|l| l.split_once(',').unwrap().0)
        .collect();
    assert_eq!(listed, ["name", "sum", "a", "b", "child"]);
    let listed = run(folder, &["ls"]).out;
    assert!(listed.contains("20B  2 of 2    server\n"), "{listed}");
    let series = "SELECT profile, snapshot, snapshots, (time_nanos - start_nanos) / 1000000000 AS \
                  after FROM snapshot WHERE profile <> 'sum' ORDER BY pid, snapshot";
    let rows = |a, b, child| {
        format!("profile,snapshot,snapshots,after\n{a},1,2,10\n{b},2,2,20\n{child},1,1,20\n")
    };
    let stored = run(folder, &["sql", "-f", "csv", series]);
    assert_eq!(stored.out, rows("a", "b", "child"), "{}", stored.err);
    let files = [
        "sql",
        "-f",
        "csv",
        "-p",
        "b.pb.gz",
        "-p",
        "a.pb.gz",
        "-p",
        "child.pb.gz",
        series,
    ];
    let asked = run(folder, &files);
    assert_eq!(
        asked.out,
        rows("a.pb.gz", "b.pb.gz", "child.pb.gz"),
        "{}",
        asked.err
    );
    // This query is from docs/database.md, for the growth of one process.
    let growth = "SELECT sum(CASE WHEN m.snapshot = 1 THEN s.value ELSE 0 END) AS first, sum(CASE \
                  WHEN m.snapshot = m.snapshots THEN s.value ELSE 0 END) AS last FROM snapshot m \
                  JOIN sample s ON s.profile = m.id JOIN sample_type t ON t.id = s.type WHERE \
                  t.type = 'inuse_space' AND m.pid = '7' AND m.profile <> 'sum' GROUP BY s.stack";
    let grown = run(folder, &["sql", "-f", "csv", growth]);
    assert_eq!(grown.out, "first,last\n10,20\n", "{}", grown.err);
    // The views of a database exist without a database, too.
    for view in ["profile_report", "function_report"] {
        let sql = format!(
            "SELECT * FROM {view} WHERE profile LIKE 'a%' AND sample_type = 'inuse_space' ORDER \
             BY 1, 4, 5"
        );
        let [file, stored] = [
            &["sql", "-f", "csv", "-p", "a.pb.gz", &sql][..],
            &["sql", "-f", "csv", &sql],
        ]
        .map(|args| run(folder, args).out.replace("a.pb.gz", "a"));
        assert_eq!(file, stored);
        assert!(file.lines().count() > 1, "{file}");
    }
    let info = run(folder, &["info", "b.pb.gz"]).out;
    assert!(
        info.contains("Start            2023-11-14 22:13:20 UTC\n"),
        "{info}"
    );
}

/// A file name is bytes, and may be invalid UTF-8. Every command opens such a file, and prints its
/// name as well as text can show it.
#[test]
fn a_name_that_is_no_text_is_a_name() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let name = OsStr::from_bytes(b"caf\xe9\xff.pb.gz");
    moment(folder, name, 7, 10);
    moment(folder, "b.pb.gz", 8, 20);
    let commands: &[&[&str]] = &[
        &["top", "@"],
        &["top", "@", "b.pb.gz"],
        &["tree", "@"],
        &["peek", "grow", "@"],
        &["list", "grow", "@"],
        &["traces", "@"],
        &["tags", "@"],
        &["info", "@"],
        &["leaks", "@"],
        &["diff", "@", "b.pb.gz"],
        &["diff", "--before", "@", "--after", "b.pb.gz"],
        &["flame", "--base", "@", "-o", "o.svg", "@"],
        &["merge", "-o", "o.pb.gz", "@"],
        &["convert", "--to", "folded", "@"],
        &["convert", "--to", "speedscope", "@"],
        &["symbolize", "-o", "s.pb.gz", "@"],
        &["sql", "-p", "@", "SELECT name FROM profile"],
        &["pprof", "-top", "@"],
        &["pprof", "-top", "-base", "b.pb.gz", "@"],
        &["jeprof", "--text", "@"],
        &["load", "@"],
    ];
    for args in commands {
        let mut command = command(folder);
        command.args(args.iter().map(|&arg| match arg {
            "@" => name,
            arg => OsStr::new(arg),
        }));
        let run: Run = command.output().unwrap().into();
        assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    }
    let top = command(folder).arg("top").arg(name).output().unwrap();
    let top = Run::from(top).out;
    assert!(
        top.starts_with("caf\u{fffd}\u{fffd}.pb.gz: inuse_space, total 10B"),
        "{top}"
    );
    for file in ["b.pb.gz", "o.pb.gz", "s.pb.gz"] {
        std::fs::remove_file(folder.join(file)).unwrap();
    }
    assert_eq!(run(folder, &["top"]).out, top);
}

/// Serves a profile over HTTP, for one request.
fn serve(answer: Vec<u8>) -> (String, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/debug/pprof/heap", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(&answer);
    });
    (url, server)
}

#[test]
fn profiles_come_over_http() {
    let body = std::fs::read(sample_profiles().join(AFTER)).unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let (url, server) = serve([head.into_bytes(), body].concat());
    assert_eq!(
        ok(&["top", "-f", "json", &url]),
        ok(&["top", "-f", "json", AFTER])
    );
    server.join().unwrap();
    let (url, server) =
        serve(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    let missing = run(&sample_profiles(), &["top", &url]);
    server.join().unwrap();
    assert_eq!(missing.code, 2);
    assert!(
        missing.err.contains("the server answered 404"),
        "{}",
        missing.err
    );
    let refused = run(&sample_profiles(), &["top", "http://127.0.0.1:1/heap"]);
    assert_eq!(refused.code, 2);
    assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
}

/// The list of stored profiles shows the program and script of each, so that workers of one program
/// can be distinguished.
#[test]
fn stored_profiles_name_their_program_and_script() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, comments) in [
        ("a", &["program: python3.11", "script: worker.py"][..]),
        ("b", &["program: nginx", "title: nginx: worker process"]),
        ("c", &[]),
    ] {
        let mut profile = heapprof_tests::fixtures::bytes_in_use("main 7");
        for comment in comments {
            let comment = profile.strings.intern(comment);
            profile.comment.push(comment);
        }
        heapprof_tests::fixtures::write(folder, name, &profile);
        assert_eq!(run(folder, &["load", name]).code, 0);
    }
    let listed = run(folder, &["ls"]).out;
    let ends: Vec<&str> = listed
        .lines()
        .map(|line| line.rsplit("7B").next().unwrap().trim())
        .collect();
    assert!(ends[0].ends_with(" program"), "{listed}");
    assert_eq!(
        ends[1..],
        ["python3.11 worker.py", "nginx nginx: worker process", ""],
        "{listed}"
    );
    let listed = run(folder, &["ls", "-f", "json"]).out;
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    let reported = |at: usize| [&listed[at]["program"], &listed[at]["called"]];
    assert_eq!(reported(0), ["python3.11", "worker.py"]);
    assert!(reported(2).iter().all(|value| value.is_null()), "{listed}");
}
