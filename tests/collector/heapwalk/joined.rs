//! `heapwalk` of a recorded program: leaked blocks have the stack that allocated them.

use std::path::Path;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, run};
use serde_json::Value;

use super::{BEGIN, Waiting};
use crate::attach;
use crate::process::{json, number};

/// A program in which two functions lose blocks, one keeps some, and one frees its block.
const BODY: &str = "static __attribute__((noinline)) void keep(void) { kept[0] = malloc(70); } \
    static __attribute__((noinline)) void free_it(void) { free(malloc(50)); } \
    static __attribute__((noinline)) void lose_more(int i) { sink = malloc(300); sink = 0; } \
    int main(void) { for (int i = 0; i < 9; i++) lose(1000); keep(); \
    for (int i = 0; i < 20; i++) lose_more(i); free_it(); checkpoint(); }";

/// Returns the functions of a profile with their value of one sample type.
fn rows(here: &Path, profile: &str, kind: &str) -> Vec<(String, i64)> {
    let top = run(here, &["top", profile, "-t", kind, "-f", "json"]);
    assert_eq!(top.code, 0, "{}", top.err);
    let top: Value = json(&top.out);
    let rows = top["rows"].as_array().unwrap().iter();
    let flat = rows.filter(|row| number(&row["flat"]) > 0);
    let mut rows: Vec<_> = flat
        .map(|row| {
            let name = row["function"].as_str().unwrap().to_string();
            (name, number(&row["flat"]))
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn what_leaked_has_its_allocation_stack() {
    if !have(&["gcc", "gcore"]) {
        return;
    }
    let built = build(&format!("{BEGIN}{BODY}"), "gcc -O1 -g -pthread");
    let here = built.folder.path();
    let mut record = command(here);
    record.args(["record", "--exact", "-o", "p.pb.gz", "--"]);
    record.arg(&built.program);
    let waiting = Waiting::spawn(record);
    let target = waiting.target();
    let core = format!("core:{}", waiting.core(&built).display());
    for target in [&target, &core] {
        let walked = run(here, &["heapwalk", target, "-o", "w.pb.gz"]);
        assert_eq!(walked.code, 0, "{target}: {}", walked.err);
        let of = |kind: &str| rows(here, "w.pb.gz", kind);
        // Every leaked block has its stack, and its size as malloc rounds it.
        let expected = [("lose".to_string(), 9), ("lose_more".to_string(), 20)];
        assert_eq!(of("leaked_objects"), expected, "{target}");
        let expected = [
            ("lose".to_string(), 9 * 1000),
            ("lose_more".to_string(), 20 * 312),
        ];
        assert_eq!(of("leaked_space"), expected, "{target}");
        assert!(
            of("reached_objects").contains(&("keep".to_string(), 1)),
            "{target}"
        );
        // The recording itself has the same numbers for these functions, because it knows which
        // blocks are in use.
        let leaks = run(here, &["leaks", target, "-f", "json"]);
        let leaks: Value = json(&leaks.out);
        let of_function = |name: &str| {
            let stacks = leaks["rows"].as_array().unwrap().iter();
            let own = stacks.filter(|one| one["stack"][0]["function"] == name);
            own.map(|one| number(&one["objects"])).sum::<i64>()
        };
        assert_eq!(
            ["lose", "lose_more", "keep", "free_it"].map(of_function),
            [9, 20, 1, 0],
            "{target}: {leaks}"
        );
    }
    // If the program has moved, its functions have names only if `--exe` gives its new place.
    let moved = built.path("moved");
    std::fs::rename(&built.program, &moved).unwrap();
    let moved = moved.display().to_string();
    let walked = run(here, &["heapwalk", &core, "--exe", &moved, "-o", "m.pb.gz"]);
    assert_eq!(walked.code, 0, "{}", walked.err);
    let expected = [("lose".to_string(), 9), ("lose_more".to_string(), 20)];
    assert_eq!(rows(here, "m.pb.gz", "leaked_objects"), expected);
    // LeakSanitizer's suppressions work on the profile.
    std::fs::write(here.join("rules"), "leak:lose_more\n").unwrap();
    let leaks = run(here, &["leaks", "--suppressions", "rules", "w.pb.gz"]);
    assert_eq!(leaks.code, 0, "{}", leaks.err);
    assert!(
        leaks.out.contains("in 20 objects suppressed by 1 rule"),
        "{}",
        leaks.out
    );
    assert!(leaks.out.contains("lose "), "{}", leaks.out);
}

/// Of an attached program, the blocks that were allocated since then have their stacks.
#[test]
fn an_attached_program_has_allocation_stacks() {
    if !have(&["gcc"]) {
        return;
    }
    let built = attach::hostile("-O1 -g");
    let mut program = attach::Waiting::new(&built.program, "plain");
    let here = built.folder.path();
    let recording = attach::Attach::begin(here, &program.pid(), &["--exact"]);
    program.work();
    let walked = run(here, &["heapwalk", &program.pid(), "-o", "w.pb.gz"]);
    assert_eq!(walked.code, 0, "{}", walked.err);
    let reached = rows(here, "w.pb.gz", "reached_objects");
    assert!(reached.contains(&("work".to_string(), 10)), "{reached:?}");
    assert_eq!(recording.leave().code, 0);
}
