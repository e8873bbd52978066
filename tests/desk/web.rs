//! `heapprof web`: which requests are allowed, and that its answers equal the output of the
//! commands.

mod answers;
mod assembly;
mod code;
mod hostile;
mod pprof;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use heapprof_tests::harness::heapprof;
use heapprof_tests::waits::HANG_TIMEOUT;
use serde_json::Value;

/// A server that runs until it is dropped.
struct Server {
    child: Child,
    /// The address `127.0.0.1:PORT`.
    host: String,
    token: String,
}

/// An answer of the server.
struct Reply {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Server {
    fn start(words: &[&str]) -> Self {
        let mut command = Command::new(heapprof());
        command.args(["web", "--no-open"]).args(words);
        Self::spawn(&mut command)
    }

    fn spawn(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        let Some((host, token)) = url.trim().split_once("/?token=") else {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            panic!("no address: {url:?} {said}");
        };
        Self {
            host: host.strip_prefix("http://").unwrap().to_string(),
            token: token.to_string(),
            child,
        }
    }

    /// Sends bytes, and reads the whole answer.
    fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(HANG_TIMEOUT)).unwrap();
        // The server may refuse a request that it has not read to the end.
        let _ = stream.write_all(bytes);
        Reply::read(stream)
    }

    /// Sends a GET request with the token.
    fn get(&self, path: &str, query: &str) -> Reply {
        let (host, token) = (&self.host, &self.token);
        let head = format!("GET {path}?token={token}&{query} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        self.raw(head.as_bytes())
    }

    fn json(&self, path: &str, query: &str) -> Value {
        let reply = self.get(&format!("/api/v1/{path}"), query);
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(reply.status, 200, "{path}?{query}: {text}");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}: {text}"))
    }

    fn post(&self, path: &str, query: &str, media: &str, body: &[u8]) -> Reply {
        let (host, token, length) = (&self.host, &self.token, body.len());
        let head = format!(
            "POST /api/v1/{path}?token={token}&{query} HTTP/1.1\r\nHost: {host}\r\n\
             Content-Type: {media}\r\nContent-Length: {length}\r\n\r\n"
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    /// Returns the server's peak memory in bytes.
    fn most_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        kib << 10
    }

    /// Ends the server as Ctrl-C does. Returns its exit code.
    fn interrupt(mut self) -> Option<i32> {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args(["-INT", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reply {
    fn read(mut stream: TcpStream) -> Self {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .map_or(0, |at| at + 4);
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            status: status.unwrap_or(0),
            body: bytes[end..].to_vec(),
            head,
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut found = lines.filter(|(key, _)| key.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value)
    }

    /// Returns the reason of a refusal, from JSON or from a page.
    fn error(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        if let Some((_, notes)) = text.split_once("<ul id=\"notes\"><li>") {
            return pprof::plain(notes.split("</li>").next().unwrap_or_default());
        }
        let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        body["error"]["what"]
            .as_str()
            .unwrap_or_default()
            .to_string()
    }
}
