//! `record --log` and `attach --log`: the log has each event once and in a possible order, missing
//! events are counted, and `leaks --log` finds what exact mode finds.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, command, run};
use serde_json::Value;

use crate::attach::{Attach, Waiting, hostile};
use crate::programs;

/// The contents of a log.
#[derive(Debug, Default)]
struct Log {
    programs: Vec<String>,
    /// The names of each stack's frames.
    stacks: HashMap<u64, Vec<String>>,
    allocated: u64,
    freed: u64,
    threads: HashMap<u32, u64>,
    /// The size and the stack of each block that was not freed.
    left: HashMap<u64, (u64, u64)>,
    /// How the program ended, the number of written events, and the number of dropped events.
    end: (String, u64, u64),
}

/// Reads a log. If no event is missing, checks that every freed block was allocated before, and
/// that no block is allocated twice.
fn read(path: &Path) -> Log {
    let text = std::fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("heapprof log 1"));
    let (mut log, mut last) = (Log::default(), 0.0);
    let is_whole = text.contains(" dropped 0\n");
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "program" => {
                log.programs.push(words[2].to_string());
                log.left.clear();
                last = 0.0;
            }
            "stack" => {
                let (number, frames) = line[6..].split_once('\t').unwrap();
                let name = |frame: &str| frame.split(' ').next().unwrap().to_string();
                let frames = frames.split('\t').map(name).collect();
                let before = log.stacks.insert(number.parse().unwrap(), frames);
                assert!(before.is_none(), "{line}");
            }
            "end" => {
                let number = |i: usize| words[i].parse().unwrap();
                log.end = (words[2].to_string(), number(4), number(6));
            }
            sign => {
                assert!(log.end.0.is_empty(), "{line}");
                let time: f64 = words[1].parse().unwrap();
                last = f64::max(last, time);
                *log.threads.entry(words[2].parse().unwrap()).or_default() += 1;
                let address = u64::from_str_radix(&words[3][2..], 16).unwrap();
                let block = (words[4].parse().unwrap(), words[5].parse().unwrap());
                assert!(log.stacks.contains_key(&block.1), "{line}");
                let before = match sign {
                    "+" => log.left.insert(address, block),
                    "-" => log.left.remove(&address),
                    _ => panic!("{line}"),
                };
                let expected = (sign == "-").then_some(block);
                assert!(before == expected || !is_whole, "{line}: {before:?}");
                match sign {
                    "+" => log.allocated += 1,
                    _ => log.freed += 1,
                }
            }
        }
    }
    assert_eq!(log.allocated + log.freed, log.end.1);
    log
}

/// Records a program, with its log in `x.log` and its profile in `x.pb.gz`.
fn record(folder: &Path, options: &[&str], words: &[&OsStr]) -> Run {
    let mut record = command(folder);
    record
        .args(["record", "--log", "x.log", "-o", "x.pb.gz"])
        .args(options)
        .arg("--")
        .args(words);
    Run::from(record.output().unwrap())
}

/// Returns the rows of `leaks`, without ages.
fn leaks(folder: &Path, words: &[&str]) -> Vec<Value> {
    let words = [&["leaks", "--all-code", "-n", "0", "-f", "json"], words].concat();
    let mut rows = json(folder, &words)["rows"].as_array().unwrap().clone();
    for row in &mut rows {
        row.as_object_mut()
            .unwrap()
            .retain(|name, _| !name.ends_with("nanoseconds"));
    }
    rows.sort_by_key(ToString::to_string);
    rows
}

fn total(folder: &Path, sample_type: &str) -> u64 {
    let words = ["top", "-n", "1", "-t", sample_type, "-f", "json", "x.pb.gz"];
    json(folder, &words)["total"].as_u64().unwrap()
}

const LEAKS: &str = r#"
#include <stdlib.h>
__attribute__((noinline)) void *small(int i) { return malloc(100 + i % 3); }
__attribute__((noinline)) void *grown(void *p) { return realloc(p, 5000); }
__attribute__((noinline)) void come_and_go(int i) { free(malloc(64 + i % 100)); }
void *volatile kept[64];
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 2000, k = 0;
    for (int i = 0; i < n; i++) {
        come_and_go(i);
        if (i % 100 == 0 && k < 60) kept[k++] = small(i);
        if (i % 500 == 0 && k < 60) kept[k++] = grown(calloc(1, 10));
    }
    void *volatile huge = realloc(kept[0], (size_t)-1 / 2);
    return huge != 0;
}
"#;

fn leaking() -> Built {
    build(LEAKS, "gcc -O1 -g -fno-builtin -fno-inline")
}

#[test]
fn leaks_are_those_of_exact_mode() {
    if !have(&["gcc"]) {
        return;
    }
    let (built, folder) = (leaking(), tempfile::tempdir().unwrap());
    let path = folder.path();
    let run = record(path, &[], &[built.path("program").as_os_str()]);
    assert_eq!(run.code, 0, "{}", run.err);
    assert!(
        run.err.contains("next: heapprof leaks --log x.log"),
        "{}",
        run.err
    );
    let log = read(&path.join("x.log"));
    assert_eq!(
        log.end,
        ("exited".to_string(), log.allocated + log.freed, 0)
    );
    // After a failed realloc, the log has the block as allocated again.
    assert_eq!(log.allocated, total(path, "alloc_objects") + 1);
    assert_eq!(log.left.len() as u64, total(path, "inuse_objects"));
    let expected = leaks(path, &["x.pb.gz"]);
    assert_eq!(expected.len(), 2);
    assert_eq!(leaks(path, &["--log", "x.log"]), expected);
    let said = said(path, &["leaks", "--log", "x.log"]);
    assert!(said.contains("  age  stack"), "{said}");
}

fn said(folder: &Path, words: &[&str]) -> String {
    let run = run(folder, words);
    assert_eq!(run.code, 0, "{}", run.err);
    run.out + &run.err
}

#[test]
fn threads_that_pass_blocks_around_are_in_an_order_that_can_be() {
    let Some(binaries) = programs::build("accounting_cross.c") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let words = [binaries[0].as_os_str(), "2".as_ref()];
    let run = record(path, &[], &words);
    assert_eq!(run.code, 0, "{}", run.err);
    let log = read(&path.join("x.log"));
    assert!(
        log.threads.len() >= 4 && !log.threads.contains_key(&0),
        "{:?}",
        log.threads
    );
    // Events that came too fast are counted.
    let [dropped, allocated] = [log.end.2, total(path, "alloc_objects")];
    let freed = allocated - total(path, "inuse_objects");
    assert_eq!(log.end.1 + dropped, allocated + freed);
    if dropped == 0 {
        assert_eq!(leaks(path, &["--log", "x.log"]), leaks(path, &["x.pb.gz"]));
    }
}

#[test]
fn a_limit_is_kept_and_what_is_beyond_is_counted() {
    if !have(&["gcc"]) {
        return;
    }
    let (built, folder) = (leaking(), tempfile::tempdir().unwrap());
    let path = folder.path();
    let program = built.path("program");
    let words = [program.as_os_str(), "100000".as_ref()];
    let run = record(path, &["--log-limit", "100KiB"], &words);
    let log = read(&path.join("x.log"));
    let all = 2 * total(path, "alloc_objects") - total(path, "inuse_objects");
    // The failed realloc adds a free and an allocation of the same block.
    assert_eq!(log.end.1 + log.end.2, all + 2);
    let len = std::fs::metadata(path.join("x.log")).unwrap().len();
    assert!((90 << 10..101 << 10).contains(&len), "{len}");
    assert!(
        run.err.contains("missing: --log-limit was reached"),
        "{}",
        run.err
    );
    let said = said(path, &["leaks", "--log", "x.log"]);
    assert!(
        said.contains("events are missing from it; freed blocks may be listed"),
        "{said}"
    );
}

#[test]
fn a_childs_events_are_not_in_it_and_those_after_an_exec_are() {
    if !have(&["gcc"]) {
        return;
    }
    const FORKS: &str = r#"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
__attribute__((noinline)) void *in_parent(void) { return malloc(1000); }
__attribute__((noinline)) void *in_child(void) { return malloc(2000); }
void *volatile kept;
int main(int argc, char **argv) {
    if (argc > 1) return kept = malloc(3000), 0;
    kept = in_parent();
    if (fork() == 0) return kept = in_child(), 0;
    wait(0);
    kept = in_parent();
    execl("/proc/self/exe", "again", "x", (char *)0);
    return 1;
}
"#;
    let built = build(FORKS, "gcc -O1 -g -fno-builtin -fno-inline");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let run = record(
        path,
        &["--keep-small"],
        &[built.path("program").as_os_str()],
    );
    assert_eq!(run.code, 0, "{}", run.err);
    let log = read(&path.join("x.log"));
    assert_eq!(log.programs.len(), 2, "{:?}", log.programs);
    assert_eq!((log.allocated, log.freed), (3, 0));
    let of = |name: &str| log.stacks.values().filter(|stack| stack[0] == name).count();
    assert_eq!([of("in_parent"), of("in_child"), of("main")], [2, 0, 1]);
    assert_eq!(
        log.left.values().map(|block| block.0).collect::<Vec<_>>(),
        [3000]
    );
    let rows = leaks(path, &["--log", "x.log"]);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["space"], 3000);
}

#[test]
fn what_a_killed_program_did_is_there() {
    if !have(&["gcc"]) {
        return;
    }
    const KILLED: &str = r#"
#include <signal.h>
#include <stdlib.h>
int main() {
    for (int i = 0; i < 1000; i++) malloc(10);
    raise(SIGKILL);
}
"#;
    let built = build(KILLED, "gcc -O1 -g -fno-builtin");
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &[], &[built.path("program").as_os_str()]);
    let log = read(&folder.path().join("x.log"));
    assert_eq!((log.allocated, log.freed, log.end.2), (1000, 0, 0));
}

#[test]
fn a_program_that_runs_has_a_log_while_somebody_is_attached() {
    if !have(&["gcc"]) {
        return;
    }
    let built = hostile("-pie -fPIE");
    let mut program = Waiting::new(&built.path("program"), "");
    program.work();
    for _ in 0..2 {
        let folder = program.folder.path();
        let options = ["--log", "x.log"];
        let attach = Attach::begin(folder, &program.pid(), &options);
        for _ in 0..3 {
            program.work();
        }
        let left = attach.leave();
        assert_eq!(left.code, 0, "{}", left.err);
        let log = read(&program.folder.path().join("x.log"));
        assert_eq!((&*log.end.0, log.end.2), ("left", 0));
        assert_eq!(log.allocated as i64, program.total("alloc_objects"));
        assert_eq!(log.left.len() as i64, program.total("inuse_objects"));
        program.work();
    }
    assert_eq!(program.end().code(), Some(7));
}

#[test]
fn what_can_not_be_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let says = |words: &[&str], expected: &str| {
        let run = run(folder.path(), words);
        assert_eq!(run.code, 2, "{}", run.err);
        assert!(run.err.contains(expected), "{}", run.err);
    };
    says(
        &["record", "--log", "-", "--", "true"],
        "/dev/stdout is standard output",
    );
    says(&["record", "--log", "none/x", "--", "true"], "none/x");
    says(
        &["record", "--log", "x", "--period", "1KiB", "--", "true"],
        "cannot be used with",
    );
    says(&["record", "--log-limit", "1KiB", "--", "true"], "--log");
    says(
        &["record", "--log", "x.pb.gz", "-o", "x.pb.gz", "--", "true"],
        "both name x.pb.gz",
    );
    says(&["leaks", "--log", "none"], "none: cannot be read");
    says(&["leaks", "--log", "."], "is a folder");
    says(&["leaks", "--log", "x", "y"], "cannot be used with");
    let empty = "heapprof log 1\nend 0.000000 cut written 0 dropped 0\n";
    std::fs::write(folder.path().join("empty.log"), empty).unwrap();
    says(&["leaks", "--log", "empty.log"], "has no events");
    // A truncated log is read as far as it goes.
    let cut = "heapprof log 1\nprogram 7 x\nstack 1\tmain\n+ 0.000001 7 0x10 5 1\n+ 0.000001 7 0x1";
    std::fs::write(folder.path().join("cut.log"), cut).unwrap();
    let said = said(folder.path(), &["leaks", "--log", "cut.log"]);
    assert!(
        said.contains("events are missing: it is still being written"),
        "{said}"
    );
    assert!(said.contains("5B in 1 object in use"), "{said}");
    std::fs::write(folder.path().join("no.log"), "heapprof log 1\n+ 1 2\n").unwrap();
    says(&["leaks", "--log", "no.log"], "no.log: line 2: expected");
}
