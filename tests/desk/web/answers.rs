//! Answers of the server.

use std::process::Command;

use heapprof_tests::harness::{heapprof, ok, sample_profiles};
use heapprof_tests::waits::wait_for;
use serde_json::{Value, json};

use super::Server;

const GO: &str = "valid/go.indexer.indexed.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";
const AFTER: &str = "valid/go.leaky.after.pb.gz";
const WAVES: &str = "valid/c.waves.pb.gz";

fn sample(name: &str) -> String {
    sample_profiles().join(name).display().to_string()
}

/// Returns the output of a command as JSON.
fn printed(words: &[&str]) -> Value {
    let output = ok(words);
    serde_json::from_str(&output).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Each command's answer equals its output, with its options as parameters.
#[test]
fn answers_are_what_the_commands_print() {
    let go = sample(GO);
    let server = Server::start(&[&go]);
    for (path, query, words) in [
        ("top", "", &["top"][..]),
        (
            "top",
            "sort=cum&limit=7",
            &["top", "--sort", "cum", "-n", "7"],
        ),
        (
            "top",
            "wide=1&granularity=lines",
            &["top", "--wide", "-g", "lines"],
        ),
        (
            "top",
            "focus=index&own_code=1",
            &["top", "--focus", "index", "--own-code"],
        ),
        (
            "top",
            "focus=&ignore=a%2Bb%7Cc",
            &["top", "--ignore", "a+b|c"],
        ),
        (
            "tree",
            "min_percent=5&reverse=1",
            &["tree", "--min-percent", "5", "--reverse"],
        ),
        (
            "tree",
            "sample_type=alloc_space",
            &["tree", "-t", "alloc_space"],
        ),
        ("peek", "regex=main", &["peek", "main"]),
        ("traces", "limit=3", &["traces", "-n", "3"]),
        ("tags", "", &["tags"]),
        ("stats", "", &["stats"]),
        ("info", "", &["info"]),
        ("leaks", "limit=5", &["leaks", "-n", "5"]),
    ] {
        let mut words = words.to_vec();
        words.extend(["--format", "json", go.as_str()]);
        assert_eq!(server.json(path, query), printed(&words), "{path}?{query}");
    }
    let schema = server.get("/api/v1/schema", "");
    let printed = ok(&["schema"]);
    assert_eq!(String::from_utf8(schema.body).unwrap(), printed);
}

/// Source lines are found where `--source-path` says, and only with `--source`.
#[test]
fn lines_have_their_source_in_the_folders_of_the_server() {
    let after = sample(AFTER);
    let folder = sample_profiles().join("programs");
    let places = ["--source-path", folder.to_str().unwrap()];
    let open = Server::start(&[&["--source"], &places[..], &[&after]].concat());
    let words = ["list", "--format", "json", "main.remember$", &after];
    let found = open.json("list", "regex=main.remember$");
    assert_eq!(found, printed(&[&words[..], &places].concat()));
    let line = &found["rows"][0]["lines"][0];
    assert_eq!(line["source"], "\tcache[o.id] = o");
    let closed = Server::start(&[&places[..], &[&after]].concat());
    let found = closed.json("list", "regex=main.remember$");
    let why = "source files are read with --source only";
    assert_eq!(found["rows"][0]["no_source"], why);
}

#[test]
fn two_profiles_are_compared_and_several_are_a_series() {
    let (before, after, waves) = (sample(BEFORE), sample(AFTER), sample(WAVES));
    let pair = Server::start(&["--base", &before, &after]);
    let diff = printed(&["diff", "--format", "json", &before, &after]);
    assert_eq!(pair.json("diff", ""), diff);
    let top = printed(&["top", "--format", "json", &after]);
    assert_eq!(pair.json("top", ""), top);
    let shown = pair.json("profiles", "")["shown"].clone();
    assert_eq!(shown, json!({ "profile": after, "base": before }));

    let series = Server::start(&[&before, &after]);
    let line = printed(&["timeline", "--format", "json", &before, &after]);
    assert_eq!(series.json("timeline", ""), line);
    let named = format!("base={before}&profile={after}");
    assert_eq!(series.json("diff", &named), diff);
    let unknown = series.get("/api/v1/top", &format!("profile={waves}"));
    assert_eq!(unknown.status, 404, "a file that was not named is not read");
    assert_eq!(
        unknown.error(),
        format!("There is no profile {waves:?} here")
    );

    let one = Server::start(&[&waves]);
    let history = printed(&["timeline", "--format", "json", &waves]);
    assert_eq!(one.json("timeline", ""), history);
}

#[test]
fn a_database_offers_all_of_its_profiles() {
    let dir = tempfile::tempdir().unwrap();
    let (before, after) = (sample(BEFORE), sample(AFTER));
    assert_eq!(
        heapprof_tests::harness::run(dir.path(), &["load", "--as", "monday", &before]).code,
        0
    );
    assert_eq!(
        heapprof_tests::harness::run(dir.path(), &["load", "--as", "tuesday & <b>", &after]).code,
        0
    );
    // A file with the name of a profile in the database is a different source.
    std::fs::copy(&after, dir.path().join("monday")).unwrap();
    let mut command = Command::new(heapprof());
    command
        .args(["web", "--no-open", "heapprof.db"])
        .current_dir(dir.path());
    let server = Server::spawn(&mut command);
    let monday = printed(&["top", "--format", "json", &before]);
    assert_eq!(server.json("top", "profile=monday")["rows"], monday["rows"]);
    let profiles = server.json("profiles", "");
    let names: Vec<&Value> = profiles["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|p| &p["name"])
        .collect();
    assert_eq!(names, ["monday", "tuesday & <b>"]);
    let compared = server.json("diff", "base=monday&profile=tuesday+%26+%3Cb%3E");
    let mut wanted = printed(&["diff", "--format", "json", &before, &after]);
    for (side, name) in [("before", "monday"), ("after", "tuesday & <b>")] {
        if wanted[side]["profile"].is_string() {
            wanted[side]["profile"] = json!(name);
        }
    }
    assert_eq!(compared["rows"], wanted["rows"]);

    // Profiles that are loaded, removed or replaced later appear in the next answer.
    let run = |words: &[&str]| assert_eq!(heapprof_tests::harness::run(dir.path(), words).code, 0);
    run(&["rm", "monday"]);
    run(&["load", "--as", "monday", &after]);
    run(&["load", "--as", "wednesday", &before]);
    let tuesday = printed(&["top", "--format", "json", &after]);
    assert_eq!(
        server.json("top", "profile=monday")["rows"],
        tuesday["rows"]
    );
    assert_eq!(
        server.json("top", "profile=wednesday")["rows"],
        monday["rows"]
    );
    run(&["rm", "wednesday"]);
    assert_eq!(server.get("/api/v1/top", "profile=wednesday").status, 404);

    let sql = "SELECT name FROM profile ORDER BY name";
    let wrong = server.post(
        "sql",
        "database=perhaps",
        "application/json",
        b"{\"sql\": \"SELECT 1\"}",
    );
    assert_eq!(wrong.status, 400);
    let body = json!({ "sql": sql }).to_string();
    let reply = server.post("sql", "database=1", "application/json", body.as_bytes());
    let rows: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(
        rows,
        json!([{ "name": "monday" }, { "name": "tuesday & <b>" }])
    );
}

#[test]
fn statements_only_read_and_end() {
    let go = sample(GO);
    let server = Server::start(&[&go]);
    let ask = |sql: &str| {
        let body = json!({ "sql": sql }).to_string();
        server.post("sql", "", "application/json", body.as_bytes())
    };
    let sql = "SELECT f.name, t.flat FROM function_total t JOIN function f ON f.id = t.function \
               WHERE t.flat > 0 ORDER BY 2 DESC, 1";
    let rows: Value = serde_json::from_slice(&ask(sql).body).unwrap();
    assert_eq!(rows, printed(&["sql", "--format", "json", "-p", &go, sql]));

    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    let cut = ask(&format!("{endless} SELECT i FROM n"));
    let rows: Value = serde_json::from_slice(&cut.body).unwrap();
    assert_eq!(rows.as_array().unwrap().len(), 10_000);
    let notes = cut.header("heapprof-notes").unwrap();
    assert!(notes.contains("only the first rows"), "{notes}");

    let late = ask(&format!("{endless} SELECT count(*) FROM n"));
    assert_eq!(
        (late.status, late.error().contains("ran longer than 10 s")),
        (400, true),
        "{}",
        late.error()
    );
    for (sql, wanted) in [
        ("DELETE FROM function", "the statement"),
        ("ATTACH 'x.db' AS x", "the statement"),
        ("SELECT zeroblob(100000000)", "more than 64 KiB"),
        ("SELECT 1; SELECT 2", "more than one statement"),
        ("", "is empty"),
        ("PRAGMA hard_heap_limit=100000", "not authorized"),
        ("PRAGMA writable_schema=1", "not authorized"),
        (
            "SELECT instr(hex(zeroblob(2000000)), '1')",
            "more than 64 KiB",
        ),
    ] {
        let refused = ask(sql);
        assert_eq!(refused.status, 400, "{sql}");
        assert!(
            refused.error().contains(wanted),
            "{sql}: {}",
            refused.error()
        );
    }
}

/// The report has a tag, and with it an unchanged report is not sent again.
#[test]
fn reports_have_tags_and_paths() {
    let go = sample(GO);
    let server = Server::start(&[&go]);
    let report = server.get("/api/v1/report", "");
    assert_eq!(report.status, 200);
    let tag = report.header("etag").unwrap().to_string();
    let (host, token) = (&server.host, &server.token);
    let again = |path: &str| {
        let head = format!(
            "GET /api/v1/{path}token={token} HTTP/1.1\r\nHost: {host}\r\n\
             If-None-Match: {tag}\r\n\r\n"
        );
        server.raw(head.as_bytes())
    };
    let same = again("report?");
    assert_eq!((same.status, same.body.len()), (304, 0));
    assert_eq!(
        again("report?focus=main&").status,
        200,
        "another question, another tag"
    );
    for (path, status) in [("[%22nobody%22]", 404), ("main", 400), ("[1]", 400)] {
        let refused = server.get("/api/v1/subtree", &format!("path={path}"));
        assert_eq!(refused.status, status, "{path}");
    }
    // A page with few nodes leaves out the nodes that are opened here.
    let few = Server::start(&["--max-nodes", "5", &go]);
    assert_eq!(few.get("/api/v1/report", "").status, 200);
    // A list of one path means that path.
    let below = ["[]", "[[]]"].map(|path| {
        let below = few.get("/api/v1/subtree", &format!("path={path}"));
        assert_eq!(below.status, 200, "{path}: {}", below.error());
        below.body
    });
    assert_eq!(below[0], below[1]);
    for path in ["[[\"nobody\"],[]]", "[[],[\"nobody\"]]"] {
        let nothing = few.get(
            "/api/v1/subtree",
            &format!("path={}", path.replace('"', "%22")),
        );
        assert_eq!(nothing.status, 404, "{path}");
    }
    let deep = format!("path=[{}[]]", "[],".repeat(64));
    assert_eq!(few.get("/api/v1/subtree", &deep).status, 400);
    let twice = few.get("/api/v1/report", "focus=a&focus=b");
    assert_eq!(
        (twice.status, twice.error().as_str()),
        (400, "The parameter \"focus\" is given twice")
    );
    let wrong = server.get("/api/v1/report", "focus=(");
    assert_eq!(wrong.status, 400);
    assert!(
        wrong.error().contains("--focus") || wrong.error().contains('('),
        "{}",
        wrong.error()
    );
}

#[test]
fn profiles_are_taken_only_if_that_was_asked_for() {
    let (before, after) = (sample(BEFORE), sample(AFTER));
    let closed = Server::start(&[&before]);
    let bytes = std::fs::read(&after).unwrap();
    let refused = closed.post("upload", "name=x", "application/octet-stream", &bytes);
    assert_eq!(
        (refused.status, refused.error().as_str()),
        (403, "This server does not accept profiles")
    );

    let open = Server::start(&["--upload", &before]);
    for name in ["after", "after (2)"] {
        let taken = open.post("upload", "name=after", "application/octet-stream", &bytes);
        let taken: Value = serde_json::from_slice(&taken.body).unwrap();
        assert_eq!(taken, json!({ "name": name }));
    }
    let top = printed(&["top", "--format", "json", &after]);
    assert_eq!(open.json("top", "profile=after")["rows"], top["rows"]);
    // A name is never used as the name of a file, whatever it looks like.
    for name in ["-", "/etc", "."] {
        let taken = open.post(
            "upload",
            &format!("name={name}"),
            "application/octet-stream",
            &bytes,
        );
        assert_eq!(taken.status, 200, "{}", taken.error());
        open.json("timeline", &format!("profile={name}"));
    }
    open.json("diff", "base=-&profile=-");
    let broken = open.post(
        "upload",
        "name=b",
        "application/octet-stream",
        b"no profile at all",
    );
    assert_eq!(broken.status, 400, "{}", broken.error());
}

/// A recording that is overwritten is read again.
#[test]
fn a_file_that_changes_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.pb.gz");
    std::fs::copy(sample(BEFORE), &file).unwrap();
    let server = Server::start(&[file.to_str().unwrap()]);
    let total = |server: &Server| server.json("top", "")["total"].clone();
    let (first, tag) = (
        total(&server),
        server
            .get("/api/v1/report", "")
            .header("etag")
            .map(str::to_string),
    );
    let next = dir.path().join("next");
    std::fs::copy(sample(AFTER), &next).unwrap();
    std::fs::rename(next, &file).unwrap();
    assert_ne!(total(&server), first);
    assert_ne!(
        server
            .get("/api/v1/report", "")
            .header("etag")
            .map(str::to_string),
        tag
    );
}

/// The token is in no argument of a process: the browser gets a file that only the user can read.
#[test]
fn the_browser_gets_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let (browser, seen) = (dir.path().join("browser"), dir.path().join("seen"));
    let script = "#!/bin/sh\nstat -c %a \"$1\" > \"$0.mode\"\ncat \"$1\" > \"$0.part\"\n\
                  mv \"$0.part\" \"$(dirname \"$0\")/seen\"\n";
    std::fs::write(&browser, script).unwrap();
    let made = Command::new("chmod")
        .arg("755")
        .arg(&browser)
        .status()
        .unwrap();
    assert!(made.success());
    let mut command = Command::new(heapprof());
    command
        .args(["web", &sample(GO)])
        .env("BROWSER", &browser)
        .env("XDG_RUNTIME_DIR", dir.path());
    let server = Server::spawn(&mut command);
    let text = wait_for("the browser's page", || std::fs::read_to_string(&seen).ok());
    assert!(text.contains(&format!(
        "0;url=http://{}/?token={}",
        server.host, server.token
    )));
    let mode = std::fs::read_to_string(dir.path().join("browser.mode")).unwrap();
    assert_eq!(mode.trim(), "600");
    assert_eq!(server.interrupt(), Some(0));
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().collect();
    assert!(
        left.iter()
            .all(|entry| !entry.file_name().to_string_lossy().ends_with(".html"))
    );
}

#[test]
fn what_cannot_be_served_is_said_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    for (words, wanted) in [
        (
            &["web", "--no-open", "nobody.pb.gz"][..],
            "nobody.pb.gz: there is no such file",
        ),
        (&["web", "--no-open", "--port", "70000"], "70000"),
    ] {
        let output = heapprof_tests::harness::run(dir.path(), words);
        let said = output.err;
        assert_eq!(output.code, 2, "{said}");
        assert!(said.contains(wanted) && said.lines().count() == 1, "{said}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let words = ["web", "--no-open", "--port", &port, &sample(GO)];
    let output = heapprof_tests::harness::run(dir.path(), &words);
    let said = output.err;
    assert!(
        said.contains(&format!("port {port}: cannot listen on it")),
        "{said}"
    );
}

/// pprof's own flag serves the same page, for the sum of profiles.
#[test]
fn pprof_serves_the_page() {
    let (before, after) = (sample(BEFORE), sample(AFTER));
    let mut command = Command::new(heapprof());
    let words = [
        "pprof",
        "-http=localhost:",
        "-no_browser",
        "-focus=a&b",
        "-unit=mb",
        &after,
    ];
    command.args(words);
    let mut server = Server::spawn(&mut command);
    let (token, state) = server.token.split_once('#').unwrap();
    assert_eq!(state, "focus=a%26b");
    server.token = token.to_string();
    let top = printed(&["top", "--format", "json", &after]);
    assert_eq!(server.json("top", ""), top);

    let mut command = Command::new(heapprof());
    let base = format!("-diff_base={before}");
    command.args(["pprof", "-http=:", "-no_browser", &base, &after]);
    let server = Server::spawn(&mut command);
    let diff = printed(&["diff", "--format", "json", &before, &after]);
    assert_eq!(server.json("diff", ""), diff);
}
