//! The wiretap of C programs: every datagram is accounted for, and a killed program is detected.

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, preloaded};
use heapprof_tests::listener::Listener;
use heapprof_tests::waits::ended;
use serde_json::Value;

const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* Waits until nothing is left in the socket of the listener. */
static void drained(void) {
    const char *address = getenv("HEAPPROF_WIRETAP");
    unsigned port = atoi(strrchr(address, ':') + 1), local, waiting;
    for (int is_empty = 0; !is_empty; usleep(10000)) {
        char line[300];
        FILE *sockets = fopen("/proc/net/udp", "r");
        while (fgets(line, sizeof line, sockets))
            if (sscanf(line, " %*d: %*x:%x %*x:%*x %*x %*x:%x", &local, &waiting) == 2 && local == port)
                is_empty = waiting == 0;
        fclose(sockets);
    }
}
int main(int argc, char **argv) {
    typedef void (*at)(const char *, const char *);
    at alive = (at)dlsym(RTLD_DEFAULT, "heapprof_alive_at");
    int processes = atoi(argv[1]), calls = atoi(argv[2]), killed = argc > 3 && *argv[3] == 'k';
    if (!alive) return 3;
    for (int i = 0; i < processes; i++) {
        if (fork()) continue;
        errno = 77;
        for (int n = 0; n < calls; n++) alive("work", "program.c:1");
        if (killed) raise(SIGKILL);
        /* The listener reads what waits before it is told the end. */
        if (calls > 1000 && argc == 3) drained();
        return errno == 77 ? 0 : 4;
    }
    int status, failed = 0;
    while (wait(&status) > 0) failed |= !killed && status != 0;
    return failed;
}
"#;

/// Runs the program with these words and a listener. Returns the report as JSON.
fn heard(words: &[&str]) -> Value {
    let built = build(PROGRAM, "gcc -O1 -Wl,--no-as-needed -ldl");
    let listener = Listener::start(built.folder.path(), &[]);
    let status = preloaded(&built.program)
        .args(words)
        .env("HEAPPROF_WIRETAP", &listener.address)
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
    listener.report()
}

/// A stopped listener does not slow down a program, and datagrams that the kernel drops meanwhile
/// are counted as lost.
#[test]
fn a_listener_that_is_stopped_stops_nobody() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -Wl,--no-as-needed -ldl");
    let listener = Listener::start(built.folder.path(), &[]);
    listener.signal("STOP");
    // If the program waited, it would wait forever.
    let mut program = preloaded(&built.program)
        .args(["4", "50000", "at once"])
        .env("HEAPPROF_WIRETAP", &listener.address)
        .spawn()
        .unwrap();
    assert_eq!(ended(&mut program).code(), Some(0));
    listener.signal("CONT");
    // One more program, after which the ends of the others may have arrived or not.
    let status = preloaded(&built.program)
        .args(["1", "1"])
        .env("HEAPPROF_WIRETAP", &listener.address)
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
    let report = listener.report();
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let known = number(&report["received"]) + number(&report["lost"]);
    assert!(
        number(&report["received"]) > 0 && known <= 200_001,
        "{report}"
    );
    let senders = &report["senders"];
    let ended = number(&senders["ended"]);
    assert!(known >= 50_000 * (ended - 1), "{report}");
}

/// A Perl program reports the line of the call.
#[test]
fn perl_says_where() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let Some(cache) = crate::perl_module::installed(here) else {
        return;
    };
    let script =
        "sub cancel {\n  Devel::HeapProf::alive('orders.cancel');\n}\ncancel() for 1 .. 3;\n";
    std::fs::write(here.join("orders.pl"), script).unwrap();
    let listener = Listener::start(here, &[]);
    let done = command(here)
        .args(["record", "-o", "p.pb.gz", "--", "perl", "orders.pl"])
        .env("XDG_CACHE_HOME", &cache)
        .env("HEAPPROF_WIRETAP", &listener.address)
        .output()
        .unwrap();
    assert!(done.status.success());
    let report = listener.report();
    assert_eq!(report["rows"][0]["name"], "orders.cancel", "{report}");
    assert_eq!(report["rows"][0]["count"], 3);
    assert_eq!(report["rows"][0]["places"][0], "orders.pl:2");
    assert_eq!(report["senders"]["ended"], 1);
}

/// For each process whose end was reported, received and lost datagrams add up to the sent ones.
/// The report of an end may be lost, too, which is then shown. (The kernel drops datagrams while
/// its buffer is full, so the processes end a while after the flood.)
#[test]
fn a_hundred_thousand_datagrams_of_fifty_processes() {
    if !have(&["gcc"]) {
        return;
    }
    let report = heard(&["50", "2000"]);
    let number = |value: &Value| value.as_i64().unwrap_or(0);
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
