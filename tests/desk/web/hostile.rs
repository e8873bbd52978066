//! Requests that a foreign page, another user or a broken client may send: each gets a refusal of
//! one line, and none costs much.

use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::sync::Arc;

use heapprof_tests::harness::sample_profiles;
use heapprof_tests::waits::HANG_TIMEOUT;

use super::{Reply, Server};

fn server() -> Server {
    let go = sample_profiles().join("valid/go.indexer.indexed.pb.gz");
    Server::start(&[go.to_str().unwrap()])
}

/// Returns a request with any head.
fn head(method: &str, target: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    (head + "\r\n").into_bytes()
}

/// Returns about 200 requests, each with the allowed statuses of its answer.
fn requests(server: &Server) -> Vec<(String, Vec<u8>, &'static [u16])> {
    let (host, token) = (server.host.as_str(), server.token.as_str());
    let port = host.split(':').nth(1).unwrap();
    let report = format!("/api/v1/report?token={token}");
    let mut all: Vec<(String, Vec<u8>, &'static [u16])> = Vec::new();
    let mut add = |what: String, bytes: Vec<u8>, statuses: &'static [u16]| {
        all.push((what, bytes, statuses));
    };
    // Host names that lead to this machine but are not the server's.
    let hosts = [
        "evil.example",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost",
        "localhost.evil:80",
        "0.0.0.0",
        "[::1]",
        "127.0.0.1.evil",
        "",
        " ",
        "127.1",
        "2130706433",
        "LOCALHOST.",
        "user@127.0.0.1",
    ];
    for name in hosts {
        for target in [report.as_str(), "/", "/api/v1/top"] {
            let bytes = head("GET", target, &[("Host", name)]);
            add(format!("host {name:?} {target}"), bytes, &[400, 421]);
        }
        let with_port = format!("{name}:{port}x");
        let bytes = head("GET", &report, &[("Host", &with_port)]);
        add(format!("host {with_port:?}"), bytes, &[400, 421]);
    }
    let twice = head("GET", &report, &[("Host", host), ("Host", "evil.example")]);
    add("two hosts".into(), twice, &[400, 421]);
    add("no host".into(), head("GET", &report, &[]), &[400, 421]);
    let absolute = format!("http://evil.example{report}");
    add(
        "another authority".into(),
        head("GET", &absolute, &[("Host", host)]),
        &[400, 421],
    );

    // Wrong tokens.
    let upper = token.to_uppercase();
    let tokens = [
        String::new(),
        "token".into(),
        "token=".into(),
        format!("token={}", &token[1..]),
        format!("token={token}0"),
        format!("token={token}%00"),
        format!("Token={token}"),
        format!("token={token}&token=x"),
        format!("token=x&token={token}"),
        "token[]=1".into(),
        format!("token={}", "0".repeat(32)),
        format!("x={token}"),
        format!("token=%20{token}"),
    ];
    for query in tokens
        .iter()
        .chain((upper != token).then_some(&format!("token={upper}")))
    {
        for path in ["/", "/api/v1/report", "/api/v1/sql", "/nothing"] {
            let bytes = head("GET", &format!("{path}?{query}"), &[("Host", host)]);
            add(format!("token {query:?} {path}"), bytes, &[403]);
        }
    }
    let bearer = format!("Bearer {token}");
    let bearer = [("Host", host), ("Authorization", bearer.as_str())];
    add(
        "a bearer".into(),
        head("GET", "/api/v1/report", &bearer),
        &[403],
    );

    // Methods, paths and parameters.
    for method in [
        "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PROPFIND", "get", "X",
    ] {
        let bytes = head(method, &report, &[("Host", host), ("Content-Length", "0")]);
        add(format!("method {method}"), bytes, &[405]);
    }
    let connect = head("CONNECT", "evil.example:443", &[("Host", host)]);
    add("connect".into(), connect, &[400, 403, 421]);
    let paths = [
        "/..",
        "/../etc/passwd",
        "/api/v1/../../etc/passwd",
        "/api/v1/%2e%2e%2fpasswd",
        "//evil",
        "/api/v1",
        "/api/v1/",
        "/api/v2/report",
        "/api/v1/report/",
        "/api/v1/report%00",
        "/api/v1/REPORT",
        "/api/v1/rm",
        "/api/v1/load",
        "/api/v1/record",
        "/api/v1/merge",
        "/api/v1/top;x",
        "/favicon.ico",
        "/api/v1/report\\..\\x",
        "/static/page.js",
    ];
    for path in paths {
        let bytes = head("GET", &format!("{path}?token={token}"), &[("Host", host)]);
        add(format!("path {path}"), bytes, &[400, 403, 404]);
    }
    let queries = [
        "output=/tmp/x",
        "profile=/etc/passwd",
        "profile=http://evil.example/",
        "profile=-",
        "base=../x",
        "db=/etc/passwd",
        "fail_if=x",
        "format=csv",
        "sort=sideways",
        "limit=-1",
        "limit=x",
        "focus=(",
        "focus=%28%3F",
        "granularity=atoms",
        "wide=perhaps",
        "a=b",
        "sort=flat&sort=cum",
        "config=x",
        "sample_type=nothing",
        "--output=x",
        "-o=x",
    ];
    for query in queries {
        let target = format!("/api/v1/top?token={token}&{query}");
        add(
            format!("query {query}"),
            head("GET", &target, &[("Host", host)]),
            &[400, 404],
        );
    }
    let many = "a=1&".repeat(500);
    let target = format!("/api/v1/top?token={token}&{many}");
    add(
        "500 parameters".into(),
        head("GET", &target, &[("Host", host)]),
        &[414],
    );
    for size in [9_000, 60_000, 2_000_000] {
        let target = format!("/api/v1/top?token={token}&focus={}", "x".repeat(size));
        let bytes = head("GET", &target, &[("Host", host)]);
        add(format!("a target of {size} bytes"), bytes, &[414, 431]);
        let long = "y".repeat(size);
        let bytes = head(
            "GET",
            &report,
            &[("Host", host), ("X", &long), ("Z", &long)],
        );
        add(format!("headers of {size} bytes"), bytes, &[431]);
    }
    let headers: Vec<(&str, &str)> = std::iter::once(("Host", host))
        .chain((0..200).map(|_| ("X", "y")))
        .collect();
    add("200 headers".into(), head("GET", &report, &headers), &[431]);

    // Headers of foreign pages.
    for (name, value) in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", "https://127.0.0.1"),
        ("Origin", "file://"),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let bytes = head("GET", &report, &[("Host", host), (name, value)]);
        add(format!("{name} {value}"), bytes, &[403]);
    }

    // Bodies.
    let sql = format!("/api/v1/sql?token={token}");
    for (media, length, body, statuses) in [
        ("text/plain", "2", "{}", &[415][..]),
        ("application/x-www-form-urlencoded", "2", "{}", &[415]),
        ("application/json", "2", "{}", &[400]),
        ("application/json", "4", "[1]x", &[400]),
        ("application/json", "99999999999", "", &[413]),
        ("application/json", "x", "", &[400]),
        ("application/json", "-1", "", &[400]),
        ("application/json", "18446744073709551616", "", &[400]),
    ] {
        let headers = [
            ("Host", host),
            ("Content-Type", media),
            ("Content-Length", length),
        ];
        let bytes = [head("POST", &sql, &headers), body.into()].concat();
        add(format!("a body {media} {length} {body:?}"), bytes, statuses);
    }
    let encoded = [
        ("Host", host),
        ("Content-Type", "application/json"),
        ("Content-Encoding", "gzip"),
        ("Content-Length", "2"),
    ];
    add(
        "an encoded body".into(),
        [head("POST", &sql, &encoded), b"{}".to_vec()].concat(),
        &[415],
    );
    let chunked = [
        ("Host", host),
        ("Content-Type", "application/json"),
        ("Transfer-Encoding", "chunked"),
    ];
    let endless = "ffff\r\n".to_string() + &"z".repeat(0xffff) + "\r\n";
    let bytes = [head("POST", &sql, &chunked), endless.repeat(8).into_bytes()].concat();
    add("a body in parts without an end".into(), bytes, &[413]);
    let bytes = [head("POST", &sql, &chunked), b"xyz\r\n".to_vec()].concat();
    add("parts that are no parts".into(), bytes, &[400]);

    // Bytes that are no request.
    let lines: [&[u8]; 9] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
        b"GET / HTTP/1.1\r\n: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n",
    ];
    for line in lines {
        add(
            format!("{:?}", line.escape_ascii().to_string()),
            line.to_vec(),
            &[400, 403, 421, 505],
        );
    }
    all
}

/// Returns about 150 requests to pprof's paths, each with the allowed statuses of its answer.
fn pprof_requests(server: &Server) -> Vec<(String, Vec<u8>, &'static [u16])> {
    let (host, token) = (server.host.as_str(), server.token.as_str());
    let paths = [
        "/top",
        "/ui/flamegraph",
        "/peek",
        "/source",
        "/download",
        "/saveconfig",
        "/ui/",
        "/deleteconfig",
        "/ui/flamegraph2",
    ];
    let mut all: Vec<(String, Vec<u8>, &'static [u16])> = Vec::new();
    let mut add = |method: &str, target: &str, headers: &[(&str, &str)], statuses| {
        let what = format!("{method} {target:.100} {headers:?}");
        all.push((what, head(method, target, headers), statuses));
    };
    for path in paths {
        for name in ["evil.example", "127.0.0.1:1", "localhost", "[::1]", ""] {
            add(
                "GET",
                &format!("{path}?token={token}"),
                &[("Host", name)],
                &[400, 421],
            );
        }
        for query in [
            String::new(),
            "token=".to_string(),
            format!("token={token}0"),
            format!("token={token}&token={token}"),
            format!("f=x&Token={token}"),
        ] {
            add("GET", &format!("{path}?{query}"), &[("Host", host)], &[403]);
        }
        let target = format!("{path}?token={token}&config=x");
        for foreign in [
            ("Origin", "http://evil.example"),
            ("Origin", "null"),
            ("Sec-Fetch-Site", "cross-site"),
        ] {
            add("GET", &target, &[("Host", host), foreign], &[403]);
            add("POST", &target, &[("Host", host), foreign], &[403]);
        }
        for method in ["PUT", "DELETE", "OPTIONS", "X"] {
            add(method, &target, &[("Host", host)], &[405]);
        }
    }
    // Only a POST with the type of JSON changes the settings, and other paths take no POST.
    for (method, path, statuses) in [
        ("GET", "/saveconfig", &[405][..]),
        ("GET", "/ui/deleteconfig", &[405]),
        ("POST", "/saveconfig", &[415]),
        ("POST", "/deleteconfig", &[415]),
        ("POST", "/top", &[405]),
        ("POST", "/download", &[405]),
    ] {
        let target = format!("{path}?token={token}&config=x");
        add(method, &target, &[("Host", host)], statuses);
    }
    let large = [
        ("Host", host),
        ("Content-Type", "application/json"),
        ("Content-Length", "9"),
    ];
    add(
        "POST",
        &format!("/saveconfig?token={token}&config=x"),
        &large,
        &[413],
    );
    for path in [
        "/top/",
        "/top/..",
        "/ui/../top",
        "/ui//top",
        "//top",
        "/ui/ui/top",
        "/%74op",
        "/top%00",
        "/TOP",
        "/ui/%2e%2e/etc/passwd",
        "/download/../../etc/passwd",
        "/settings.json",
        "/uix",
    ] {
        add(
            "GET",
            &format!("{path}?token={token}"),
            &[("Host", host)],
            &[400, 404],
        );
    }
    for query in [
        "x=1",
        "output=/tmp/x",
        "source_path=/",
        "trim_path=/",
        "symbolize=local",
        "config=x",
        "f=(",
        "f=%28%3F",
        "f=%FF(",
        "n=x",
        "n=99999999999999999999",
        "nf=NaN",
        "ef=inf",
        "trim=2",
        "g=atoms",
        "sort=name",
        "si=9",
        "si=-1",
        "tf=99999999999999999999",
        "h=*",
        "f=a&f=b",
        "f=a%7B99999%7D",
        "unit=x&%00=1",
        "prunefrom=%5B",
    ] {
        let target = format!("/top?token={token}&{query}");
        add("GET", &target, &[("Host", host)], &[400]);
    }
    for size in [9_000, 1_000_000] {
        for key in ["f", "tf", "unit", "x"] {
            let target = format!("/top?token={token}&{key}={}", "x".repeat(size));
            add("GET", &target, &[("Host", host)], &[414, 431]);
        }
    }
    let many = format!("/top?token={token}{}", "&f=1".repeat(500));
    add("GET", &many, &[("Host", host)], &[414]);
    all
}

#[test]
fn two_hundred_hostile_requests_get_a_line_each() {
    let server = server();
    let requests = requests(&server);
    assert!(requests.len() >= 200, "{}", requests.len());
    send_all(&server, &requests);
}

#[test]
fn hostile_requests_to_the_paths_of_pprof_get_a_line_each() {
    let home = tempfile::tempdir().unwrap();
    let go = sample_profiles().join("valid/go.indexer.indexed.pb.gz");
    let server = super::pprof::serve(home.path(), &[go.to_str().unwrap()]);
    let requests = pprof_requests(&server);
    assert!(requests.len() >= 150, "{}", requests.len());
    send_all(&server, &requests);
    // Nothing was saved.
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Sends each request, and checks that it gets one of its statuses and a short line.
fn send_all(server: &Server, requests: &[(String, Vec<u8>, &'static [u16])]) {
    let before = server.most_memory();
    for (what, bytes, statuses) in requests {
        let reply = server.raw(bytes);
        assert!(
            statuses.contains(&reply.status),
            "{what}: {} {}",
            reply.status,
            reply.head
        );
        let reason = reply.error();
        let body = String::from_utf8(reply.body).unwrap();
        if body.starts_with("<!doctype html>") {
            // A client that has the token gets a page with the views and the reason.
            assert!(what.contains(&server.token), "{what}");
            assert!(!reason.is_empty() && reason.len() < 1000, "{what}: {body}");
            assert_eq!(body.matches("<script").count(), 1, "{what}: {body}");
        } else {
            // Bytes that are not HTTP get a status without a body.
            assert!(body.lines().count() <= 1, "{what}: {body}");
            assert!(body.len() < 1000, "{what}: {body}");
            assert!(!body.contains(&server.token), "{what}: {body}");
        }
        assert!(
            !reply.head.to_lowercase().contains("access-control"),
            "{what}: {}",
            reply.head
        );
    }
    assert_eq!(server.get("/", "").status, 200, "it goes on");
    let grown = server.most_memory() - before;
    assert!(grown < 32 << 20, "{grown} bytes more");
}

/// Clients that send half a request are disconnected, and keep no other client out, however many
/// they are.
#[test]
fn slow_clients_are_sent_away() {
    let server = server();
    let keeps_out = || {
        let mut slow: Vec<TcpStream> = (0..150)
            .map(|_| TcpStream::connect(&server.host).unwrap())
            .collect();
        for stream in &mut slow {
            stream.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
        }
        assert_eq!(server.get("/", "").status, 200);
        let waits = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            let found = stream.peek(&mut [0]);
            stream.set_nonblocking(false).unwrap();
            found.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        let is_early = slow.iter().any(waits);
        for stream in slow {
            stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
            let reply = Reply::read(stream);
            assert_eq!(reply.status, 408, "{}", reply.head);
        }
        !is_early
    };
    // On a busy machine, an answer may be seen later than it was sent, but not every time.
    assert!((0..10).any(|_| !keeps_out()), "others are kept out");
}

/// Ten clients and two pages at once get the same answers as a single client.
#[test]
fn ten_clients_get_the_same() {
    let server = Arc::new(server());
    let top = server.json("top", "limit=5");
    let focused = server.json("top", "focus=index");
    let report = server.get("/api/v1/report", "").body;
    let clients = (0..12).map(|n| {
        let (server, top, focused, report) =
            (server.clone(), top.clone(), focused.clone(), report.clone());
        std::thread::spawn(move || {
            for _ in 0..10 {
                match n % 3 {
                    0 => assert_eq!(server.json("top", "limit=5"), top),
                    1 => assert_eq!(server.json("top", "focus=index"), focused),
                    _ => assert_eq!(server.get("/api/v1/report", "").body, report),
                }
            }
        })
    });
    let clients: Vec<_> = clients.collect();
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
}

/// Every answer has headers that restrict it to this page.
#[test]
fn answers_are_for_this_page_only() {
    let server = server();
    let page = server.get("/", "");
    let policy = page.header("content-security-policy").unwrap();
    for part in [
        "default-src 'none'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.contains(part), "{policy}");
    }
    for path in ["/", "/api/v1/top", "/api/v1/nothing"] {
        let reply = server.get(path, "");
        for (name, value) in [
            ("cache-control", "no-store"),
            ("referrer-policy", "no-referrer"),
            ("x-content-type-options", "nosniff"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{path} {name}");
        }
    }
    let host = &server.host;
    let asked = format!(
        "HEAD /?token={} HTTP/1.1\r\nHost: {host}\r\n\r\n",
        server.token
    );
    let head = server.raw(asked.as_bytes());
    assert_eq!((head.status, head.body.len()), (200, 0));
}
