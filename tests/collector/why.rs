//! Asks `why` about programs whose memory is known by construction.

mod names;
mod short_programs;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::harness::{command, is_root, ok, program_of, run};
use heapprof_tests::waits::in_state;
use serde_json::Value;

use crate::process::{json, number};

/// Holds 32 MiB of blocks in a variable, leaks 8 MiB, keeps 40 MiB of free blocks, maps 24 MiB
/// itself and 16 MiB of a file, and has 8 threads that wait.
const PROGRAM: &str = r#"
    #include <fcntl.h>
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>
    enum { BLOCK = 1000, MIB = 1 << 20 };
    void **volatile table;
    void *volatile pool;
    static void *touched(void *block, size_t size) { return memset(block, 1, size); }
    __attribute__((noinline)) void fill_table(void) {
        table = malloc(32 * MIB / BLOCK * sizeof *table);
        void **table_now = table;
        for (int at = 0; at < 32 * MIB / BLOCK; at++) table_now[at] = touched(malloc(BLOCK), BLOCK);
    }
    __attribute__((noinline)) void leak(void) {
        for (int at = 0; at < 8 * MIB / 600; at++) touched(malloc(600), 600);
    }
    __attribute__((noinline)) void make_holes(void) {
        static void *holes[110000];
        int count = 50 * MIB / 500;
        for (int at = 0; at < count; at++) holes[at] = touched(malloc(500), 500);
        for (int at = 0; at < count; at++) if (at % 5) { free(holes[at]); holes[at] = 0; }
    }
    static void *wait_long(void *ready) {
        char stack[100000];
        memset(stack, 1, sizeof stack);
        __asm__ volatile("" : : "r"(stack) : "memory");
        pthread_barrier_wait(ready);
        for (;;) pause();
        return stack;
    }
    int main(int argc, char **argv) {
        fill_table();
        leak();
        make_holes();
        pool = touched(mmap(0, 24 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                       24 * MIB);
        int file = open(argv[1], O_RDWR | O_CREAT, 0600);
        if (ftruncate(file, 16 * MIB)) return 1;
        touched(mmap(0, 16 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), 16 * MIB);
        pthread_barrier_t ready;
        pthread_barrier_init(&ready, 0, 9);
        for (int at = 0; at < 8; at++) {
            pthread_t thread;
            pthread_create(&thread, 0, wait_long, &ready);
        }
        pthread_barrier_wait(&ready);
        puts("ready");
        fflush(stdout);
        getchar();
        return 7;
    }
"#;

/// Leaks until its input ends.
const GROWING: &str = r#"
    #include <poll.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    int main(void) {
        puts("ready");
        fflush(stdout);
        struct pollfd input = {.fd = 0, .events = POLLIN};
        do {
            for (int at = 0; at < 100; at++) memset(malloc(1000), 1, 1000);
        } while (!poll(&input, 1, 5));
        return 0;
    }
"#;

/// Maps 1 TiB of a file of which 4 KiB exist, and has a block of 1 GiB that nobody touched.
const SPARSE: &str = r#"
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int file = open(argv[1], O_RDWR | O_CREAT, 0700);
        if (ftruncate(file, 4096)) return 1;
        char *map = mmap(0, 1ul << 40, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_NORESERVE, file, 0);
        if (map == MAP_FAILED || map[0]) return 2;
        if (!malloc(1 << 30)) return 3;
        puts("ready");
        fflush(stdout);
        return getchar() > 0;
    }
"#;

/// Bytes of a MiB.
const MIB: i64 = 1 << 20;

/// A program that waits, and is killed at the end of the test.
struct WaitingProgram {
    child: Child,
    /// The process of the program, which may be a child of `record`.
    pid: u32,
}

impl WaitingProgram {
    fn start(mut command: Command, is_recorded: bool) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        BufReader::new(out).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = match is_recorded {
            true => program_of(child.id()),
            false => child.id(),
        };
        // The growing program is between two waits.
        in_state(pid, "SR");
        Self { child, pid }
    }

    fn id(&self) -> String {
        self.pid.to_string()
    }

    /// Returns the resident memory as the kernel counts it.
    fn resident(&self) -> i64 {
        let path = format!("/proc/{}/smaps_rollup", self.pid);
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kib = line.unwrap().split_whitespace().next().unwrap();
        kib.parse::<i64>().unwrap() << 10
    }
}

impl Drop for WaitingProgram {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

fn start(built: &Built) -> WaitingProgram {
    let mut command = Command::new(&built.program);
    command.arg(built.path("words"));
    WaitingProgram::start(command, false)
}

/// Returns the bytes of a part; 0 if there is no such part.
fn part(answer: &Value, name: &str) -> i64 {
    let parts = answer["parts"].as_array().unwrap();
    let found = parts.iter().find(|part| part["part"] == name);
    found.map_or(0, |part| number(&part["bytes"]))
}

/// Returns the bytes of a holder; 0 if there is no such holder.
fn holder(answer: &Value, part: &str, name: &str) -> i64 {
    let parts = answer["parts"].as_array().unwrap();
    let found = parts.iter().find(|one| one["part"] == part);
    let holders = found.unwrap_or_else(|| panic!("{part}: {answer}"))["holders"].as_array();
    let found = holders.unwrap().iter().find(|one| {
        let text = one["name"].as_str().unwrap();
        text.contains(name)
    });
    found.map_or(0, |found| number(&found["bytes"]))
}

fn sum(answer: &Value) -> i64 {
    let parts = answer["parts"].as_array().unwrap().iter();
    parts.map(|part| number(&part["bytes"])).sum()
}

/// Whether a number is a tenth around an expected one.
fn is_about(found: i64, expected: i64) -> bool {
    (found - expected).abs() * 10 <= expected
}

fn check_parts(answer: &Value, is_core: bool) {
    assert_eq!(sum(answer), number(&answer["total"]), "{answer}");
    let expected = [
        ("malloc, in use", 50),
        ("malloc, free but kept", 40),
        ("anonymous mappings", 24),
    ];
    for (name, mib) in expected {
        assert!(is_about(part(answer, name), mib * MIB), "{name}: {answer}");
    }
    if !is_core {
        assert!(is_about(part(answer, "mapped files"), 16 * MIB), "{answer}");
    }
    // Each thread touched 100,000 bytes of its 8 MiB. Its pages may be huge.
    assert!(part(answer, "stacks") >= 8 * 100_000, "{answer}");
}

#[test]
fn parts_add_up_to_what_the_kernel_counts() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    let program = start(&built);
    let before = program.resident();
    let answer = json(&ok(&["why", &program.id(), "-f", "json"]));
    // Nothing that the program does changes its memory, but the kernel may.
    let after = program.resident();
    let total = number(&answer["total"]);
    assert!(
        (before.min(after)..=before.max(after)).contains(&total),
        "{answer}"
    );
    check_parts(&answer, false);
    for (part, name, mib) in [
        ("malloc, in use", "table", 32),
        ("malloc, in use", "leaked: data of 600 B", 8),
        ("anonymous mappings", "pool", 24),
        ("mapped files", "words", 16),
    ] {
        let bytes = holder(&answer, part, name);
        assert!(is_about(bytes, mib * MIB), "{name}: {answer}");
    }
    // The number alone asks the same, and the answer fits a screen.
    let text = ok(&[&program.id()]);
    assert!(text.lines().count() <= 24, "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
    let first: Vec<&str> = text.lines().take(6).collect();
    assert!(first.join("\n").contains("table"), "{text}");
    assert!(text.contains("heapprof heap blocks"), "{text}");
}

#[test]
fn a_recorded_program_has_functions() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    let place = tempfile::tempdir().unwrap();
    let mut record = command(place.path());
    record.args(["record", "--exact", "-q", "--"]);
    record.arg(&built.program).arg(built.path("words"));
    let program = WaitingProgram::start(record, true);
    let answer = json(&ok(&["why", &program.id(), "-f", "json"]));
    check_parts(&answer, false);
    assert!(is_about(
        holder(&answer, "malloc, in use", "fill_table"),
        32 * MIB
    ));
    assert!(part(&answer, "heapprof's own") > 0, "{answer}");
    let text = ok(&["why", &program.id()]);
    let first: Vec<&str> = text.lines().take(6).collect();
    assert!(first.join("\n").contains("fill_table"), "{text}");
    // Each command that is shown works.
    for next in answer["next"].as_array().unwrap() {
        let line = next["command"].as_str().unwrap();
        let words: Vec<&str> = line.split(' ').skip(1).collect();
        if !words.contains(&"--for") {
            ok(&words);
        }
    }
}

/// A recording that began late knows nothing of the blocks, and does not hide who has them.
#[test]
fn a_recording_that_knows_little_hides_nothing() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    let program = start(&built);
    let place = tempfile::tempdir().unwrap();
    let mut attach = command(place.path());
    let mut attach = attach
        .args(["attach", &program.id(), "-o", "a.pb.gz"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let mut lines = BufReader::new(attach.stderr.take().unwrap());
    lines.read_line(&mut said).unwrap();
    let answer = json(&ok(&["why", &program.id(), "-f", "json"]));
    let id = attach.id().to_string();
    let stopped = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(stopped.success() && attach.wait().is_ok());
    assert_eq!(sum(&answer), number(&answer["total"]), "{answer}");
    assert!(!answer["recording"].is_null(), "{said} {answer}");
    let bytes = holder(&answer, "malloc, in use", "table");
    assert!(is_about(bytes, 32 * MIB), "{answer}");
}

/// Memory that grows between two looks has a rate, and a holder that has more blocks is the same
/// holder.
#[test]
fn growth_is_seen_by_two_looks() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(GROWING, "gcc -O1 -g");
    let program = WaitingProgram::start(Command::new(&built.program), false);
    let answer = json(&ok(&["why", &program.id(), "--for", "1s", "-f", "json"]));
    let parts = answer["parts"].as_array().unwrap();
    let in_use = parts.iter().find(|part| part["part"] == "malloc, in use");
    let in_use = in_use.unwrap();
    assert!(number(&in_use["growth_per_minute"]) > 0, "{answer}");
    let leaked = in_use["holders"].as_array().unwrap();
    let leaked = leaked
        .iter()
        .find(|holder| holder["name"].as_str().unwrap().contains("leaked"));
    assert!(
        number(&leaked.unwrap()["growth_per_minute"]) > 0,
        "{answer}"
    );
}

/// A file maps much more than it has, and nothing walks through all of its addresses.
#[test]
fn what_was_not_touched_costs_no_time() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(SPARSE, "gcc -O1 -g");
    let mut command = Command::new(&built.program);
    command.arg(built.path("sparse"));
    let program = WaitingProgram::start(command, false);
    let answer = json(&ok(&["why", &program.id(), "-f", "json"]));
    assert_eq!(sum(&answer), number(&answer["total"]), "{answer}");
    // A block that was not touched is not resident, and has not leaked.
    assert!(number(&answer["leaked"]) < MIB, "{answer}");
}

/// A forked child shares its parent's memory, and goes on sharing it when it was looked into.
#[test]
fn shared_pages_stay_shared() {
    if !have(&["gcc"]) {
        return;
    }
    const FORKED: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            char *volatile block = malloc(32 << 20);
            memset(block, 1, 32 << 20);
            if (!fork()) {
                puts("ready");
                fflush(stdout);
                return getchar() > 0;
            }
            wait(0);
            return block[5] == 0;
        }
    "#;
    let built = build(FORKED, "gcc -O1 -g");
    let program = WaitingProgram::start(Command::new(&built.program), true);
    let shared = || {
        let path = format!("/proc/{}/smaps_rollup", program.pid);
        let text = std::fs::read_to_string(path).unwrap();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Shared_Dirty:"));
        let kib = line.unwrap().split_whitespace().next().unwrap();
        kib.parse::<i64>().unwrap() << 10
    };
    let answer = json(&ok(&["why", &program.id(), "-f", "json"]));
    assert!(number(&answer["shared"]) >= 32 * MIB, "{answer}");
    assert!(shared() >= 32 * MIB, "{}", shared());
}

#[test]
fn a_core_file_says_the_same() {
    if !have(&["gcc", "gcore"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    let program = start(&built);
    let core = built.path("core");
    let made = Command::new("gcore")
        .arg("-o")
        .arg(&core)
        .arg(program.id())
        .output();
    assert!(made.unwrap().status.success());
    let core = core.with_extension(program.id());
    let answer = json(&ok(&["why", core.to_str().unwrap(), "-f", "json"]));
    check_parts(&answer, true);
    assert!(is_about(
        holder(&answer, "malloc, in use", "table"),
        32 * MIB
    ));
    assert!(is_about(
        holder(&answer, "anonymous mappings", "pool"),
        24 * MIB
    ));
}

#[test]
fn a_command_is_recorded_and_behaves_as_it_does() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    let place = tempfile::tempdir().unwrap();
    let words = built.path("words");
    let program = [built.program.to_str().unwrap(), words.to_str().unwrap()];
    let found = run(place.path(), &["why", "--", program[0], program[1]]);
    assert_eq!(found.code, 7, "{} {}", found.out, found.err);
    let text = found.out.strip_prefix("ready\n").unwrap();
    let first: Vec<&str> = text.lines().take(6).collect();
    assert!(first.join("\n").contains("fill_table"), "{text}");
    assert!(
        text.contains("not recorded") && found.err.is_empty(),
        "{text} {}",
        found.err
    );
    // The recording has the parts, so it answers the same later.
    let again = run(place.path(), &["why"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let parts = |text: &str| text.split("\n\nnext").next().unwrap().to_string();
    assert_eq!(parts(text), parts(&again.out));
}

/// A parent with 32 MiB waits until its child has 24 MiB more and has ended.
const FORKING: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    enum { MIB = 1 << 20 };
    char *volatile table, *volatile rows;
    __attribute__((noinline)) void fill_table(void) { table = memset(malloc(32 * MIB), 1, 32 * MIB); }
    __attribute__((noinline)) void add_rows(void) { rows = memset(malloc(24 * MIB), 1, 24 * MIB); }
    int main(void) {
        fill_table();
        if (!fork()) {
            add_rows();
            return 0;
        }
        wait(0);
        return 0;
    }
"#;

#[test]
fn of_several_processes_the_largest_is_shown() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(FORKING, "gcc -O1 -g");
    let place = tempfile::tempdir().unwrap();
    let found = run(
        place.path(),
        &["why", "--", built.program.to_str().unwrap()],
    );
    assert_eq!(found.code, 0, "{}", found.err);
    let first: Vec<&str> = found.out.lines().take(6).collect();
    let first = first.join("\n");
    assert!(
        first.contains("fill_table") && first.contains("add_rows"),
        "{}",
        found.out
    );
    assert!(
        found.out.contains("2 processes were recorded"),
        "{}",
        found.out
    );
}

#[test]
fn perl_s_variables_are_spelled_as_in_perl() {
    if !have(&["perl"]) {
        return;
    }
    let script = r#"$| = 1; our @rows = map { "x" x 900 . $_ } 1..30000; print "ready\n"; <STDIN>"#;
    let mut perl = Command::new("perl");
    perl.args(["-e", script]);
    let program = WaitingProgram::start(perl, false);
    let text = ok(&["why", &program.id()]);
    let first: Vec<&str> = text.lines().take(6).collect();
    assert!(first.join("\n").contains("@main::rows"), "{text}");
    assert!(
        text.contains(&format!("heapprof heap values {}", program.pid)),
        "{text}"
    );
}

#[test]
fn what_may_not_be_read_is_a_line() {
    if !is_root() || !have(&["gcc", "setpriv"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    let program = start(&built);
    let mut stranger = Command::new("setpriv");
    stranger.args(["--reuid=65534", "--clear-groups"]);
    stranger.arg(heapprof_tests::harness::heapprof());
    let found = stranger.args(["why", &program.id()]).output().unwrap();
    let text = String::from_utf8_lossy(&found.stdout);
    assert!(found.status.success(), "{found:?}");
    assert!(
        text.contains("What is inside its memory is not known: the kernel does not allow it"),
        "{text}"
    );
    assert!(text.contains("anonymous mappings"), "{text}");
}

#[test]
fn what_is_no_target_is_explained() {
    let place = tempfile::tempdir().unwrap();
    for (words, expected) in [
        (
            ["why", "no-such-thing"],
            "is not a file, a stored profile or one of your processes",
        ),
        (["why", "4194305"], "there is no such process"),
        (["why", "core:none"], "none: "),
    ] {
        let found = run(place.path(), &words);
        assert_eq!(found.code, 2, "{words:?}");
        assert!(found.err.contains(expected), "{words:?}: {}", found.err);
        assert_eq!(found.err.lines().count(), 1, "{}", found.err);
    }
    for (words, expected) in [
        (
            vec!["why", "--for", "1s", "core:none"],
            "--for: works only for a running process",
        ),
        (vec!["why", "--exe", "x", "1"], "--exe: is for core files"),
    ] {
        let found = run(place.path(), &words);
        assert_eq!(found.code, 2, "{words:?}");
        assert!(found.err.contains(expected), "{words:?}: {}", found.err);
    }
}
