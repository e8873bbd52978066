//! The wiretap with real processes: listeners, senders, and reports.

use std::net::UdpSocket;
use std::path::Path;

use heapprof_tests::harness::{Run, command, run};
use heapprof_tests::listener::Listener;

fn alive(folder: &Path, address: &str, words: &[&str]) -> Run {
    let output = command(folder)
        .env("HEAPPROF_WIRETAP", address)
        .env_remove("HEAPPROF_WIRETAP_KEY_FILE")
        .arg("alive")
        .args(words)
        .output();
    output.unwrap().into()
}

#[test]
fn what_ran_and_what_never_did() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let listener = Listener::start(here, &[]);
    for _ in 0..3 {
        let sent = alive(here, &listener.address, &["a.code", "--site", "a.sh:1"]);
        assert_eq!((sent.code, sent.err.as_str()), (0, ""));
    }
    let summary = listener.end("TERM");
    assert!(
        summary.contains("received 3, lost 0, senders 3, 0 of them with unknown end;"),
        "{summary}"
    );
    std::fs::write(here.join("codes"), "a.code\nb.code # old\n\n# c.code\n").unwrap();
    let found = run(here, &["wiretap", "--expect", "codes", "--fail-if-unseen"]);
    assert_eq!(found.code, 1, "{}", found.err);
    assert!(
        found.out.starts_with("3 datagrams of 3 senders, 0 lost\n"),
        "{}",
        found.out
    );
    assert!(
        found
            .out
            .ends_with("never seen: 1 of 2 expected\n  b.code\n"),
        "{}",
        found.out
    );
    assert!(found.out.contains("a.sh:1"), "{}", found.out);
    let json = run(here, &["wiretap", "-f", "json", "--by", "pid"]).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 3);
    assert_eq!(json["senders"]["ended"], 3);
}

#[test]
fn malformed_datagrams_change_a_counter_only() {
    let folder = tempfile::tempdir().unwrap();
    let listener = Listener::start(folder.path(), &[]);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for i in 0..2000u32 {
        let text = format!("heapprof wiretap 1\nkind=alive\nseq={i}\n");
        socket.send_to(text.as_bytes(), &listener.address).unwrap();
    }
    let summary = listener.end("TERM");
    assert!(
        summary.contains("received 0, lost 0, senders 0,"),
        "{summary}"
    );
    let found = run(folder.path(), &["wiretap"]).out;
    assert!(
        found.starts_with("0 datagrams of 0 senders, 0 lost; "),
        "{found}"
    );
    assert!(found.contains("refused: not understood"), "{found}");
    assert!(found.contains("nothing was received"), "{found}");
}

#[test]
fn nobody_has_to_listen() {
    let folder = tempfile::tempdir().unwrap();
    // If the command waited, it would wait forever.
    for address in ["127.0.0.1:9", ""] {
        let sent = alive(folder.path(), address, &["a.code"]);
        assert_eq!((sent.code, sent.err.as_str()), (0, ""));
    }
}

#[test]
fn addresses_and_keys() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for (address, expected) in [
        ("localhost:4711", "expected IP:PORT"),
        ("127.0.0.1", "expected IP:PORT"),
        ("192.0.2.1:4711", "is not a loopback address"),
    ] {
        let sent = alive(here, address, &["a.code"]);
        assert_eq!(sent.code, 2);
        assert!(sent.err.contains(expected), "{}", sent.err);
    }
    let open = run(here, &["listen", "--udp", "0.0.0.0:0"]);
    assert_eq!(open.code, 2);
    assert!(
        open.err.contains("give a key with --key-file"),
        "{}",
        open.err
    );
    assert_eq!(run(here, &["listen", "--udp", "localhost:1"]).code, 2);
    std::fs::write(here.join("key"), "secret\n").unwrap();
    let listener = Listener::start(here, &["--key-file", "key"]);
    assert_eq!(alive(here, &listener.address, &["unsigned"]).code, 0);
    let signed = command(here)
        .env("HEAPPROF_WIRETAP", &listener.address)
        .env("HEAPPROF_WIRETAP_KEY_FILE", here.join("key"))
        .args(["alive", "signed"])
        .status();
    assert!(signed.unwrap().success());
    let summary = listener.end("TERM");
    assert!(
        summary.contains("received 1, lost 0, senders 1,"),
        "{summary}"
    );
    assert!(summary.contains("2 with a wrong signature"), "{summary}");
}
