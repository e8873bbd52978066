//! `list --asm`: the values of instructions are those of lines and addresses, and files that can't
//! be read are named in one line.

use heapprof_profile::decode;
use heapprof_tests::built::{build, have};
use heapprof_tests::fixtures::{json, write};
use heapprof_tests::harness::{Run, run};
use serde_json::Value;

use crate::names::recorded;

/// A program that allocates in a recursive function, through an inlined function, and in main.
const FILLED: &str = r#"
#include <stdlib.h>
static void *volatile kept[64];
static inline __attribute__((always_inline)) void *item(int n) {
    return malloc(16 * n);
}
__attribute__((noinline)) void fill(int depth) {
    kept[depth] = item(depth + 1);
    kept[16 + depth] = malloc(100);
    if (depth < 9) fill(depth + 1);
    kept[63] = 0;
}
int main(void) {
    fill(0);
    kept[40] = malloc(5000);
    kept[62] = 0;
    return 0;
}
"#;

const NAMES: &str = "^(fill|item|main)$";

fn rows(document: &Value) -> Vec<Value> {
    document["rows"].as_array().unwrap().clone()
}

/// Returns the numbers of members of an object.
fn numbers<const N: usize>(of: &Value, members: [&str; N]) -> [i64; N] {
    members.map(|member| of[member].as_i64().unwrap())
}

/// Returns all instructions of a function, with the line that each belongs to.
fn instructions(row: &Value) -> Vec<(i64, Value)> {
    let mut all = Vec::new();
    for line in row["lines"].as_array().unwrap() {
        let number = line["line"].as_i64().unwrap();
        let each = line["instructions"].as_array().unwrap().iter();
        all.extend(each.map(|instruction| (number, instruction.clone())));
    }
    all
}

#[test]
fn instructions_have_the_values_of_their_lines_and_addresses() {
    if !have(&["gcc"]) {
        return;
    }
    for options in ["-O2", "-O0", "-O2 -no-pie", "-O1 -Wl,-z,noseparate-code"] {
        let built = build(
            FILLED,
            &format!("gcc -g -fno-optimize-sibling-calls {options}"),
        );
        let folder = built.folder.path();
        recorded(folder, &["-o", "p.pb.gz", "./program"]);
        for more in [&[][..], &["--no-inlines"]] {
            let with = |args: &[&str]| json(folder, &[args, more, &["p.pb.gz"]].concat());
            let listed = rows(&with(&["list", "-f", "json", NAMES]));
            let assembled = rows(&with(&["list", "--asm", "-f", "json", NAMES]));
            let top = rows(&with(&[
                "top",
                "-g",
                "addresses",
                "--all-code",
                "-f",
                "json",
            ]));
            let expected = 2 + usize::from(more.is_empty());
            assert_eq!(assembled.len(), expected, "{options} {more:?}");
            assert_eq!(listed.len(), expected, "{options} {more:?}");
            for (listed, assembled) in listed.iter().zip(&assembled) {
                check_function(listed, assembled, &top);
            }
        }
    }
}

/// Compares the instructions of a function with the lines of `list` and the rows of `top`.
fn check_function(listed: &Value, assembled: &Value, top: &[Value]) {
    let name = &listed["function"];
    assert_eq!(name, &assembled["function"]);
    let sums = ["flat", "cum"];
    assert_eq!(numbers(listed, sums), numbers(assembled, sums), "{name}");
    // The lines with values are those of `list`.
    let of_lines = |row: &Value| -> Vec<[i64; 3]> {
        let lines = row["lines"].as_array().unwrap().iter();
        let lines = lines.map(|line| numbers(line, ["line", "flat", "cum"]));
        lines.filter(|line| line[1..] != [0, 0]).collect()
    };
    assert_eq!(of_lines(listed), of_lines(assembled), "{name}");
    // The flat of a line is the sum of its instructions, and so is the flat of the function.
    let all = instructions(assembled);
    for [line, flat, _] in of_lines(listed) {
        let own = all.iter().filter(|(number, _)| *number == line);
        let sum: i64 = own.map(|(_, each)| each["flat"].as_i64().unwrap()).sum();
        assert_eq!(sum, flat, "{name}:{line}");
    }
    // Each address of `top` is one instruction with the same values, which is a call.
    let mut values: Vec<[i64; 2]> = Vec::new();
    for (_, instruction) in &all {
        let [flat, cum] = numbers(instruction, sums);
        if (flat, cum) != (0, 0) {
            values.push([flat, cum]);
            let text = instruction["text"].as_str().unwrap();
            assert!(text.starts_with("call") || text.starts_with("bl"), "{text}");
            assert!(flat == 0 || text.contains("malloc"), "{name}: {text}");
        }
    }
    let in_top = top.iter().filter(|row| &row["function"] == name);
    let mut in_top: Vec<[i64; 2]> = in_top.map(|row| numbers(row, sums)).collect();
    values.sort_unstable();
    in_top.sort_unstable();
    assert_eq!(values, in_top, "{name}");
}

/// The text shows a line, and below it the call with the same values.
#[test]
fn a_line_is_above_its_instructions() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(FILLED, "gcc -g -O2 -fno-optimize-sibling-calls");
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let shown = run(folder, &["list", "--asm", "^main$", "p.pb.gz"]);
    assert_eq!((shown.code, &*shown.err), (0, ""));
    let lines: Vec<&str> = shown.out.lines().collect();
    let at = lines
        .iter()
        .position(|line| line.contains("kept[40] = malloc(5000);"));
    let at = at.unwrap_or_else(|| panic!("{}", shown.out));
    assert!(lines[at].starts_with("4.88KiB"), "{}", shown.out);
    let is_call = |line: &&&str| line.contains("malloc") && line.starts_with("4.88KiB");
    assert_eq!(
        lines[at + 1..].iter().filter(is_call).count(),
        1,
        "{}",
        shown.out
    );
    assert!(shown.out.contains("\nCode: main at 0x"), "{}", shown.out);
    // An instruction of an inlined function names it.
    let filled = run(folder, &["list", "--asm", "^fill$", "p.pb.gz"]).out;
    assert!(filled.contains("# item source.c:5"), "{filled}");
    let csv = run(folder, &["list", "--asm", "-f", "csv", "^main$", "p.pb.gz"]).out;
    assert!(csv.starts_with("function,file,line,flat,cum,address,instruction,binary\n"));
    assert_eq!(
        csv.lines()
            .filter(|line| line.contains(",5000,5000,"))
            .count(),
        1
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    if !have(&["gcc", "strip"]) {
        return;
    }
    let built = build(
        FILLED,
        "gcc -g -O1 -fno-optimize-sibling-calls -Wl,--build-id",
    );
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let asm = |more: &[&str]| {
        run(
            folder,
            &[&["list", "--asm"], more, &["^main$", "p.pb.gz"]].concat(),
        )
    };
    let advice = "; give the folder of the right one with --debug-dir";
    let reason = |listed: &Run| {
        assert_eq!((listed.code, &*listed.err), (0, ""));
        let mut lines = listed.out.lines();
        let found = lines.find(|line| line.starts_with("No instructions: "));
        found.unwrap_or_default().to_string()
    };
    std::fs::create_dir(built.path("other")).unwrap();
    std::fs::rename(built.path("program"), built.path("other/program")).unwrap();
    let missing = reason(&asm(&[]));
    assert!(
        missing.contains("program: there is no such file"),
        "{missing}"
    );
    assert!(missing.ends_with(advice), "{missing}");
    let found = asm(&["--debug-dir", "other"]);
    assert_eq!(
        (found.code, found.out.contains("malloc@plt")),
        (0, true),
        "{}",
        found.err
    );
    // A program that was built again has another build id.
    built.run("gcc -O2 -Wl,--build-id -o program source.c");
    let replaced = reason(&asm(&[]));
    assert!(replaced.contains("build id"), "{replaced}");
    assert!(replaced.ends_with(advice), "{replaced}");
    // Without symbols, the unwind table shows where functions begin.
    built.run("strip -o program other/program");
    let stripped = asm(&[]);
    assert_eq!(stripped.code, 0, "{}", stripped.err);
    assert!(
        stripped.out.contains("Code: code without a symbol at 0x"),
        "{}",
        stripped.out
    );
    let none = run(folder, &["list", "--asm", "nosuch", "p.pb.gz"]);
    assert_eq!((none.code, none.out.is_empty()), (2, true));
    assert!(none.err.contains("matches \"nosuch\""), "{}", none.err);
}

/// Two functions with one name in different files, which are both inlined into `main`.
const NAMESAKES: &str = r#"
#include <stdlib.h>
static void *volatile kept[4];
int main(void) {
    {
#line 10 "first/a.h"
        inline __attribute__((always_inline)) void *make(int n) { return malloc(n); }
#line 20 "source.c"
        kept[0] = make(1000);
        kept[1] = make(2000);
    }
    {
#line 10 "second/b.h"
        inline __attribute__((always_inline)) void *make(int n) { return malloc(n + 1); }
#line 30 "source.c"
        kept[2] = make(4000);
    }
    return 0;
}
"#;

/// The instructions of two inlined functions with one name stay apart, also if the profile names
/// their files as the debug information does not.
#[test]
fn functions_with_one_name_have_their_own_instructions() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(NAMESAKES, "gcc -g -O1");
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let bytes = std::fs::read(built.path("p.pb.gz")).unwrap();
    let profile = decode(&*bytes).unwrap();
    for is_renamed in [false, true] {
        let mut profile = profile.clone();
        if is_renamed {
            for function in &mut profile.function {
                let file = profile.strings.get(function.filename);
                let moved = format!("/built/elsewhere/{file}");
                function.filename = profile.strings.intern(&moved);
            }
        }
        write(folder, "p.pb.gz", &profile);
        let rows = rows(&json(
            folder,
            &["list", "--asm", "-f", "json", "^make$", "p.pb.gz"],
        ));
        assert_eq!(rows.len(), 2);
        for row in &rows {
            let file = row["file"].as_str().unwrap();
            let own = file.rsplit('/').next().unwrap();
            let all = instructions(row);
            assert!(!all.is_empty(), "{file}");
            for (line, instruction) in all {
                let of = instruction["frames"][0]["file"].as_str().unwrap();
                assert!(of.ends_with(own), "{file}:{line} has {of}");
            }
        }
    }
}
