//! Names that the server of a profile knows: which addresses it is asked for, and what becomes of
//! its answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use heapprof_tests::harness::command;

/// A dump of gperftools without names.
const DUMP: &str = "heap profile: 3: 96 [3: 96] @ heapprofile\n\
                    2: 64 [2: 64] @ 0x401010 0x401020\n\
                    1: 32 [1: 32] @ 0x401030\n\n\
                    MAPPED_LIBRARIES:\n\
                    00401000-00402000 r-xp 00001000 00:00 0 /srv/shop-of-nobody\n";

/// Answers two requests, one for the profile and one for names, and returns them.
fn serve(answer: &'static str) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let bodies = [DUMP, answer];
        let answered = bodies.iter().map(|body| {
            let (stream, _) = listener.accept().unwrap();
            answer_one(stream, body)
        });
        answered.collect()
    });
    (address, server)
}

/// Reads a request and answers it. Returns its first line and its body.
fn answer_one(mut stream: TcpStream, body: &str) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut first, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line == "\r\n" {
            break;
        }
        if first.is_empty() {
            first = line.trim_end().to_string();
        }
    }
    let mut sent = vec![0; length];
    reader.read_exact(&mut sent).unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    format!("{first} {}", String::from_utf8(sent).unwrap())
}

#[test]
fn a_server_names_the_addresses_of_its_profile() {
    let answer = "num_symbols: 1\n0x40100f\tcart put\n0x40101f\tserve\n0x40102f idle\n0x1";
    let (address, server) = serve(answer);
    let folder = tempfile::tempdir().unwrap();
    let run = command(folder.path())
        .env("PPROF_TMPDIR", folder.path())
        .args(["pprof", "-symbolize=remote", "-top", "-compact_labels"])
        .arg(format!("http://{address}/pprof/heap"))
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&run.stdout);
    let asked = server.join().unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert_eq!(asked[0], "GET /pprof/heap HTTP/1.1 ");
    let (line, addresses) = asked[1].rsplit_once(' ').unwrap();
    assert_eq!(line, "POST /pprof/symbol HTTP/1.1");
    let mut addresses: Vec<&str> = addresses.split('+').collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["0x40100f", "0x40101f", "0x40102f"]);
    for row in ["cart put", "serve", "idle"] {
        assert!(printed.contains(row), "{printed}");
    }
}
