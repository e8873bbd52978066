//! pprof's paths: each has the numbers that the command line prints with the same settings, and the
//! settings file is changed only by requests that no link can make.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::thread;

use heapprof_tests::harness::{heapprof, ok, run, sample_profiles};

use super::{Reply, Server};

const GO: &str = "valid/go.leaky.after.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";

pub(super) fn sample(name: &str) -> String {
    sample_profiles().join(name).display().to_string()
}

/// Starts a server of `heapprof pprof -http`, whose settings are in `home`.
pub(super) fn serve(home: &Path, words: &[&str]) -> Server {
    let mut command = Command::new(heapprof());
    command
        .args(["pprof", "-http=localhost:", "-no_browser"])
        .args(words)
        .env("XDG_CONFIG_HOME", home);
    Server::spawn(&mut command)
}

/// Returns a text without the escapes of HTML.
pub(super) fn plain(text: &str) -> String {
    let escapes = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ];
    escapes.iter().fold(text.to_string(), |text, (escape, c)| {
        text.replace(escape, c)
    })
}

pub(super) fn page(server: &Server, path: &str, query: &str) -> String {
    let reply = server.get(path, query);
    let text = String::from_utf8(reply.body).unwrap();
    assert_eq!(reply.status, 200, "{path}?{query}: {text}");
    text
}

/// Returns the parts of a text between `before` and `after`.
pub(super) fn parts<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    let rest = text.split(before).skip(1);
    rest.map(|rest| rest.split(after).next().unwrap()).collect()
}

/// Returns the rows of the table of `/top`.
fn rows(page: &str) -> Vec<Vec<String>> {
    let row = |row: &str| parts(row, "<td>", "</td>").into_iter().map(plain).collect();
    parts(page, "<tr><td", "</tr>")
        .into_iter()
        .map(|cells| row(&format!("<td{cells}")))
        .collect()
}

/// Each URL has the rows of the command line with the same settings.
#[test]
fn rows_are_those_of_the_command_line() {
    let (home, go, before) = (tempfile::tempdir().unwrap(), sample(GO), sample(BEFORE));
    let base = format!("-diff_base={before}");
    let one = serve(home.path(), &[&go]);
    let two = serve(home.path(), &[&base, &go]);
    for (query, flags) in [
        ("", &[][..]),
        (
            "f=parse%7Cinsert&si=alloc_objects",
            &["-focus=parse|insert", "-sample_index=alloc_objects"],
        ),
        (
            "i=runtime&sort=cum&nf=0.1",
            &["-ignore=runtime", "-cum", "-nodefraction=0.1"],
        ),
        (
            "g=lines&unit=kb&trim=f",
            &["-lines", "-unit=kb", "-trim=false"],
        ),
        (
            "s=main&rel=t&f=main&noinlines=t",
            &[
                "-show=main",
                "-relative_percentages",
                "-focus=main",
                "-noinlines",
            ],
        ),
        (
            "tf=bytes%3D%3A4kb&dropneg=t",
            &["-tagfocus=bytes=:4kb", "-drop_negative"],
        ),
    ] {
        for (server, own) in [(&one, &[][..]), (&two, &[base.as_str()])] {
            let words = [
                &["pprof", "-top", "-nodecount=500"][..],
                flags,
                own,
                &[go.as_str()],
            ]
            .concat();
            let printed = ok(&words);
            let (_, printed) = printed.split_once("cum%\n").unwrap();
            let mut printed: Vec<Vec<String>> = printed
                .lines()
                .map(|line| {
                    let words: Vec<&str> = line.split_whitespace().collect();
                    let name = words[5..].join(" ");
                    let name = name
                        .trim_end_matches(" (inline)")
                        .trim_end_matches(" (partial-inline)");
                    vec![words[0].to_string(), words[3].to_string(), name.to_string()]
                })
                .collect();
            let shown = rows(&page(server, "/top", query));
            let mut shown: Vec<Vec<String>> = shown
                .into_iter()
                .map(|row| [0, 3, 5].map(|at| row[at].clone()).to_vec())
                .collect();
            printed.sort();
            shown.sort();
            assert_eq!(shown, printed, "{query}");
        }
    }
    let text = page(&one, "/ui/peek", "f=insert");
    let text = plain(parts(&text, "<pre id=\"text\">", "</pre>")[0]);
    let peek = ok(&["pprof", "-peek=insert", "-lines", "-focus=insert", &go]);
    assert_eq!(text, peek);
    let source = page(&one, "/source", "f=insert");
    assert!(source.contains("main.(*tree).insert"), "{source}");
    // The outermost box is the whole profile.
    let flame = page(&one, "/flamegraph", "");
    let title = parts(&flame, "<title>", "</title>")[1];
    assert!(title.starts_with("4.72MB (100%) │ root"), "{title}");
    let pivot = page(&one, "/flamegraph", "p=insert%24");
    assert!(
        pivot.contains("data-name=\"main.(*tree).insert\" data-row=\"0\""),
        "{pivot}"
    );
    assert!(pivot.contains("data-row=\"-1\""), "{pivot}");
}

#[test]
fn the_profile_can_be_downloaded() {
    let (home, go) = (tempfile::tempdir().unwrap(), sample(GO));
    let server = serve(home.path(), &[&go]);
    let reply = server.get("/download", "");
    assert_eq!(
        reply.header("content-type"),
        Some("application/vnd.google.protobuf+gzip")
    );
    let wanted = "attachment; filename=profile.pb.gz";
    assert_eq!(reply.header("content-disposition"), Some(wanted));
    let file = home.path().join("profile.pb.gz");
    fs::write(&file, reply.body).unwrap();
    let file = file.to_str().unwrap();
    for flags in ["-raw", "-top"] {
        assert_eq!(
            ok(&["pprof", flags, file]),
            ok(&["pprof", flags, &go]),
            "{flags}"
        );
    }
}

/// A server is asked once, because its next answer may be another profile.
#[test]
fn a_profile_of_a_server_is_fetched_once() {
    let (home, body) = (tempfile::tempdir().unwrap(), fs::read(sample(GO)).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let source = format!("http://{}/heap", listener.local_addr().unwrap());
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        let mut request = BufReader::new(stream.try_clone().unwrap()).lines();
        while request.next().is_some_and(|line| !line.unwrap().is_empty()) {}
        let head = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all(&[head.as_bytes(), &body].concat())
            .unwrap();
    });
    let mut command = Command::new(heapprof());
    command
        .args(["pprof", "-http=localhost:", "-no_browser", &source])
        .env("PPROF_TMPDIR", home.path())
        .env("XDG_CONFIG_HOME", home.path());
    let server = Server::spawn(&mut command);
    answering.join().unwrap();
    assert!(!rows(&page(&server, "/top", "")).is_empty());
    let own = server.json("top", "");
    assert!(own["rows"].as_array().is_some_and(|rows| !rows.is_empty()));
}

#[test]
fn other_paths_lead_to_the_flame_graph() {
    let (home, go) = (tempfile::tempdir().unwrap(), sample(GO));
    let server = serve(home.path(), &[&go]);
    for (path, query, wanted) in [
        ("/ui", "f=a+b", "/ui/flamegraph"),
        ("/ui/", "f=a+b", "/ui/flamegraph"),
        ("/ui/flamegraph2", "f=a+b", "/ui/flamegraph"),
        ("/flamegraphold", "f=a+b", "/flamegraph"),
        ("/", "f=a+b", "/flamegraph"),
    ] {
        let reply = server.get(path, query);
        let target = format!("{wanted}?token={}&f=a+b", server.token);
        assert_eq!(
            (reply.status, reply.header("location")),
            (307, Some(target.as_str())),
            "{path}"
        );
    }
    // Without parameters, it is heapprof's own page.
    let own = page(&server, "/", "");
    assert!(own.contains("name=\"heapprof-api\""));
    // A server without pprof's flag has none of these paths.
    let web = Server::start(&[&go]);
    for path in ["/top", "/ui/top", "/download", "/saveconfig"] {
        assert_eq!(web.get(path, "").status, 404, "{path}");
    }
}

#[test]
fn what_a_view_cannot_do_is_said() {
    let (home, go) = (tempfile::tempdir().unwrap(), sample(GO));
    let server = serve(home.path(), &["-unit=mb", &go]);
    for (path, query, says) in [
        ("/top", "n=20", "nodecount"),
        ("/top", "f=nobody", "Focus expression matched no samples"),
    ] {
        let text = page(&server, path, query);
        let note = if says == "nodecount" {
            "n: no effect on this view"
        } else {
            says
        };
        assert!(text.contains(note), "{path}?{query}");
    }
    for (path, query, says) in [
        ("/top", "config=x", "this view has no parameter \"config\""),
        ("/top", "p=x", "this view has no parameter \"p\""),
        (
            "/top",
            "n=many",
            "nodecount is a whole number, not \"many\"",
        ),
        ("/top", "f=(", "-focus \"(\": "),
        (
            "/top",
            "si=nothing",
            "sample_index \"nothing\" must be one of",
        ),
        ("/top", "f=a&f=b", "The parameter \"f\" is given twice"),
        ("/peek", "f=nobody", "no matches found for regexp: nobody"),
        ("/flamegraph", "p=(", "p \"(\": "),
    ] {
        let reply = server.get(path, query);
        assert_eq!(reply.status, 400, "{path}?{query}");
        assert!(
            reply.error().contains(says),
            "{path}?{query}: {}",
            reply.error()
        );
    }
    let graph = server.get("/graph", "");
    assert_eq!(
        (graph.status, graph.error().as_str()),
        (404, "This server does not draw the graph")
    );
}

/// The settings file is pprof's. Only a POST with the type of JSON changes it.
#[test]
fn configurations_are_saved() {
    let (home, go) = (tempfile::tempdir().unwrap(), sample(GO));
    let server = serve(home.path(), &[&go]);
    let file = home.path().join("pprof/settings.json");
    let post = |path: &str, query: &str, headers: &str| -> Reply {
        let (host, token) = (&server.host, &server.token);
        let head =
            format!("POST {path}?token={token}&{query} HTTP/1.1\r\nHost: {host}\r\n{headers}\r\n");
        server.raw(head.as_bytes())
    };
    const JSON: &str = "Content-Type: application/json\r\nContent-Length: 0\r\n";
    for (method, status) in [("GET", 405), ("HEAD", 405), ("PUT", 405)] {
        let (host, token) = (&server.host, &server.token);
        let head =
            format!("{method} /saveconfig?token={token}&config=a HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(server.raw(head.as_bytes()).status, status, "{method}");
    }
    let form = "Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 0\r\n";
    let foreign = format!("{JSON}Origin: null\r\n");
    for (headers, status) in [(form, 415), (foreign.as_str(), 403)] {
        assert_eq!(
            post("/saveconfig", "config=a", headers).status,
            status,
            "{headers}"
        );
    }
    assert!(!file.exists());

    assert_eq!(
        post("/saveconfig", "config=a&f=x%3Cy&n=7&trim=f&si=0", JSON).status,
        200
    );
    assert_eq!(
        post("/ui/saveconfig", "config=b&sort=cum", JSON).status,
        200
    );
    let expected = "{\n  \"configs\": [\n    {\n      \"name\": \"a\",\n      \"unit\": \
                    \"minimum\",\n      \"sort\": \"flat\",\n      \"nodecount\": 7,\n      \
                    \"nodefraction\": 0.005,\n      \"edgefraction\": 0.001,\n      \"focus\": \
                    \"x\\u003cy\"\n    },\n    {\n      \"name\": \"b\",\n      \"unit\": \
                    \"minimum\",\n      \"sort\": \"cum\",\n      \"nodecount\": -1,\n      \
                    \"nodefraction\": 0.005,\n      \"edgefraction\": 0.001,\n      \"trim\": \
                    true\n    }\n  ]\n}";
    assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    let text = page(&server, "/top", "sort=cum");
    assert!(text.contains("aria-current=\"page\">b</a>"), "{text}");
    assert!(text.contains("n=7&amp;trim=f&amp;f=x%3Cy"), "{text}");

    assert_eq!(post("/deleteconfig", "config=c", JSON).status, 400);
    assert_eq!(post("/deleteconfig", "config=a", JSON).status, 200);
    assert_eq!(post("/saveconfig", "config=", JSON).status, 400);
    assert_eq!(post("/saveconfig", "config=c&n=x", JSON).status, 400);
    let left = fs::read_to_string(&file).unwrap();
    assert!(left.contains("\"b\"") && !left.contains("\"a\""), "{left}");
    // A damaged file is not overwritten, and does not hide the rows.
    fs::write(&file, "{").unwrap();
    assert_eq!(post("/saveconfig", "config=d", JSON).status, 400);
    assert_eq!(fs::read_to_string(&file).unwrap(), "{");
    let text = page(&server, "/top", "");
    assert!(text.contains("could not parse settings"), "{text}");
}

/// A wrong flag is an error before anything is served.
#[test]
fn flags_are_checked_first() {
    let dir = tempfile::tempdir().unwrap();
    let go = sample(GO);
    for (flag, says) in [
        ("-sample_index=nothing", "must be one of"),
        ("-http=evil.example:80", "heapprof serves this machine only"),
    ] {
        let output = run(dir.path(), &["pprof", "-http=:", "-no_browser", flag, &go]);
        assert_eq!(output.code, 2, "{}", output.err);
        assert!(output.err.contains(says), "{}", output.err);
    }
}
