//! A `heapprof listen` that runs during a test, on a free port of the loopback interface.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::Value;

use crate::harness::{command, run};

pub struct Listener {
    folder: PathBuf,
    child: Child,
    err: BufReader<ChildStderr>,
    /// The listener's address, as a value for HEAPPROF_WIRETAP.
    pub address: String,
}

impl Listener {
    /// Starts a listener with the database of a folder.
    #[must_use]
    pub fn start(folder: &Path, more: &[&str]) -> Self {
        let mut child = command(folder)
            .args(["listen", "--udp", "127.0.0.1:0"])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        err.read_line(&mut line).unwrap();
        assert!(line.contains("listening on 127.0.0.1:"), "{line}");
        let address = line.split(' ').nth(3).unwrap_or_default().to_string();
        Self {
            folder: folder.to_path_buf(),
            child,
            err,
            address,
        }
    }

    /// Sends the listener a signal.
    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }

    /// Ends the listener by a signal, and returns its summary.
    #[must_use]
    pub fn end(mut self, signal: &str) -> String {
        self.signal(signal);
        let mut text = String::new();
        self.err.read_to_string(&mut text).unwrap();
        assert!(self.child.wait().unwrap().success(), "{text}");
        text
    }

    /// Ends the listener, and returns its report as JSON.
    #[must_use]
    pub fn report(self) -> Value {
        let folder = self.folder.clone();
        let _ = self.end("INT");
        let report = run(&folder, &["wiretap", "-f", "json"]);
        assert_eq!(report.code, 0, "{}", report.err);
        serde_json::from_str(&report.out).unwrap()
    }
}
