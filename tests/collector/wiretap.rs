//! The wiretap of programs in C: nothing is unaccounted for, and a program that was killed is
//! known.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, preloaded, run};

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    void (*alive)(const char *, const char *) = (void (*)(const char *, const char *))dlsym(RTLD_DEFAULT, "heapprof_alive_at");
    int processes = atoi(argv[1]), calls = atoi(argv[2]), killed = argc > 3;
    if (!alive) return 3;
    for (int i = 0; i < processes; i++) {
        if (fork()) continue;
        errno = 77;
        for (int n = 0; n < calls; n++) alive("work", "program.c:1");
        if (killed) raise(SIGKILL);
        return errno == 77 ? 0 : 4;
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= !killed && status != 0;
    return failed;
}
"#;

/// Runs the program with these words while somebody listens. Returns the report as JSON.
fn heard(words: &[&str]) -> serde_json::Value {
    let built = build(PROGRAM, "gcc -O1 -Wl,--no-as-needed -ldl");
    let folder: &Path = built.folder.path();
    let mut child = command(folder)
        .args(["listen", "--udp", "127.0.0.1:0"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut err = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    err.read_line(&mut line).unwrap();
    let address = line.split(' ').nth(3).unwrap_or_default();
    let status = preloaded(&built.program)
        .args(words)
        .env("HEAPPROF_WIRETAP", address)
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
    let id = child.id().to_string();
    let ended = Command::new("kill").args(["-INT", &id]).status();
    assert!(ended.unwrap().success());
    let mut said = String::new();
    err.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    let report = run(folder, &["wiretap", "-f", "json"]);
    assert_eq!(report.code, 0, "{}", report.err);
    serde_json::from_str(&report.out).unwrap()
}

/// What was received and what was lost is what was sent, by each process that could say its end.
/// The word of an end may be lost, too; then that is said.
#[test]
fn a_hundred_thousand_datagrams_of_fifty_processes() {
    if !have(&["gcc"]) {
        return;
    }
    let report = heard(&["50", "2000"]);
    let number = |value: &serde_json::Value| value.as_i64().unwrap_or(0);
    let ended = number(&report["senders"]["ended"]);
    let unknown = number(&report["senders"]["end unknown"]);
    assert!(ended + unknown <= 50 && ended > 0, "{report}");
    let known = number(&report["received"]) + number(&report["lost"]);
    assert!(
        known >= 2000 * ended && known <= 2000 * (ended + unknown),
        "{report}"
    );
    assert_eq!(report["rows"][0]["count"], report["received"]);
    assert_eq!(report["rows"][0]["places"][0], "program.c:1");
}

#[test]
fn a_killed_program_has_an_unknown_end() {
    if !have(&["gcc"]) {
        return;
    }
    let report = heard(&["2", "5", "killed"]);
    assert_eq!(report["senders"]["end unknown"], 2, "{report}");
    assert_eq!(report["received"], 10);
    assert_eq!(report["lost"], 0);
}
