//! No password or token of a URL leaves heapprof: every command is given such a URL, and everything
//! that it prints or writes is searched.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use heapprof_tests::harness::{run, sample_profiles};

/// The password as the user types it, and as a server receives it.
const PASSWORD: [&str; 2] = ["PASSW0RD%40s", "PASSW0RD@s"];
const TOKEN: &str = "T0KENabc";
/// Texts that must not be found anywhere.
const SECRETS: [&str; 3] = ["PASSW0RD", TOKEN, "bWU6UEFTU1cwUk"];

/// Serves a profile to clients that know the password and the token, until the test ends.
fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let body = std::fs::read(sample_profiles().join("valid/go.leaky.after.pb.gz")).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut some = [0; 4096];
                match stream.read(&mut some) {
                    Ok(read) if read > 0 => request.extend(&some[..read]),
                    _ => break,
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let basic = STANDARD.encode(format!("me:{}", PASSWORD[1]));
            let knows = request.contains(&basic) && request.contains(&format!("token={TOKEN}"));
            let (status, body) = match knows {
                true => ("200 OK", &body[..]),
                false => ("401 Unauthorized", &b""[..]),
            };
            let head = format!(
                "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    address
}

/// Fails if a secret occurs in the bytes, compressed or not.
fn assert_clean(bytes: &[u8], of: &str) {
    let mut inflated = Vec::new();
    let _ = flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut inflated);
    for bytes in [bytes, &inflated] {
        for secret in SECRETS {
            let found = memchr(bytes, secret.as_bytes());
            assert!(!found, "{of}: {secret} leaves");
        }
    }
}

fn memchr(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|some| some == wanted)
}

fn assert_clean_folder(folder: &Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            assert_clean_folder(&path);
        } else {
            let shown = path.display().to_string();
            assert_clean(shown.as_bytes(), &shown);
            assert_clean(&std::fs::read(&path).unwrap(), &shown);
        }
    }
}

#[test]
fn no_secret_of_an_address_leaves() {
    let address = serve();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("http://me:{}@{address}/heap?token={TOKEN}", PASSWORD[0]);
    let base = format!("--base={url}");
    let wrong = url.replace("PASSW0RD", "PASSW0RDx");
    let no_host = format!("http://me:{}@/heap?token={TOKEN}", PASSWORD[0]);
    let no_server = format!("http://me:{}@127.0.0.1:1/heap?token={TOKEN}", PASSWORD[0]);
    let without_scheme = url.replace("http://", "");
    let store = format!("clickhouse://me:{}@{address}/db?token={TOKEN}", PASSWORD[0]);
    let objects = format!("https://me:{}@{address}/folder", PASSWORD[0]);
    let part = format!("{url}#2");
    let args = |line: &str| -> Vec<String> {
        let words = line.split_whitespace();
        let of = |word: &str| match word {
            "URL" => url.clone(),
            "WRONG" => wrong.clone(),
            "NOHOST" => no_host.clone(),
            "NOSERVER" => no_server.clone(),
            "BARE" => without_scheme.clone(),
            "BASE" => base.clone(),
            "STORE" => store.clone(),
            "OBJECTS" => objects.clone(),
            "PART" => part.clone(),
            "FRAGMENT" => format!("http://{address}/heap#access={TOKEN}"),
            "-pURL" => format!("-p{url}"),
            "-pNOSERVER" => format!("-p{no_server}"),
            word => word.replace('$', " "),
        };
        words.map(of).collect()
    };
    // The exit code, and the command line.
    let table = [
        (0, "top URL"),
        (0, "top --show-sql URL"),
        (0, "top -f json URL"),
        (0, "top -f csv --wide URL"),
        (0, "tree URL"),
        (0, "tree -f json URL"),
        (0, "peek . URL"),
        (0, "traces URL"),
        (0, "tags URL"),
        (0, "leaks URL"),
        (0, "leaks -f json URL"),
        (0, "leaks --format markdown URL"),
        (0, "info URL"),
        (0, "info -f json URL"),
        (0, "stats URL"),
        (0, "flame -o flame.svg URL"),
        (0, "flame -f folded URL"),
        (0, "report -o page.html URL"),
        (0, "report -o both.html BASE URL"),
        (0, "diff URL URL"),
        (0, "diff --format markdown URL URL"),
        (0, "diff -f json URL URL"),
        (0, "timeline URL URL"),
        (0, "merge -o merged.pb.gz URL URL"),
        (0, "convert --to speedscope -o speedscope.json URL"),
        (0, "convert --to pprof -o converted.pb.gz URL"),
        (0, "convert --to firefox -o firefox.json.gz URL"),
        (0, "symbolize -o symbolized.pb.gz URL"),
        (0, "load --db heapprof.db --as monday URL"),
        (2, "load --db heapprof.db URL"),
        (0, "ls --db heapprof.db"),
        (0, "top --db heapprof.db monday"),
        (0, "info --db heapprof.db monday"),
        (0, "pprof -top URL"),
        (0, "pprof -raw URL"),
        (0, "pprof -text -base URL URL"),
        (0, "pprof -top BARE"),
        (0, "jeprof --text URL"),
        (2, "top WRONG"),
        (2, "top NOHOST"),
        (2, "top NOSERVER"),
        (2, "top PART"),
        (2, "diff NOSERVER URL"),
        (2, "ls URL"),
        (0, "URL"),
        (2, "top --sample-type URL URL"),
        (2, "top --fail-if URL"),
        (2, "top --store STORE x"),
        (2, "top --from OBJECTS x"),
        (2, "pprof -top NOSERVER"),
        (0, "flame -o behind.svg -- URL"),
        (2, "top -- NOSERVER"),
        (2, "top -pNOSERVER"),
        (0, "sql -pURL select$name$from$profile"),
        (2, "top FRAGMENT"),
    ];
    for (code, line) in table {
        let args = args(line);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let run = run(folder.path(), &args);
        assert_clean(run.out.as_bytes(), line);
        assert_clean(run.err.as_bytes(), line);
        let may_be_missing = line.starts_with("jeprof");
        assert!(
            run.code == code || may_be_missing,
            "{line}: {}\n{}",
            run.code,
            run.err
        );
    }
    assert_clean_folder(folder.path());
    // The parts of the URL that are not secret are shown.
    let svg = std::fs::read_to_string(folder.path().join("flame.svg")).unwrap();
    assert!(
        svg.contains(&format!("{address}/heap?token=…")),
        "the title"
    );
}
