//! Compares `compare-allocators` with the programs' own figures, and `bench` with peaks of known
//! size.

use heapprof_tests::built::{build, have, library};
use heapprof_tests::harness::{command, run};
use serde_json::Value;

use crate::process::json;

/// A program that writes the kernel's figures about it to a file.
const COUNTED: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
int main(int argc, char **argv) {
    size_t bytes = (size_t)atol(argv[2]);
    char *all = malloc(bytes);
    memset(all, 1, bytes);
    struct rusage used;
    FILE *file = fopen(argv[1], "a");
    getrusage(RUSAGE_SELF, &used);
    fprintf(file, "%ld %ld\n", used.ru_maxrss, used.ru_minflt);
    fclose(file);
    int is_other = all[bytes / 2] != 1;
    free(all);
    return argc > 3 || is_other;
}
"#;

fn median(candidate: &Value, figure: &str) -> i64 {
    candidate["figures"][figure]["median"].as_i64().unwrap()
}

#[test]
fn figures_are_those_of_the_kernel() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(COUNTED, "gcc -O1");
    let here = built.folder.path();
    let program = built.program.to_str().unwrap();
    // The block is large compared with heapprof's own memory, and mostly freed before the end.
    let mut compare = command(here);
    compare.args(["compare-allocators", "--allocators"]);
    compare.args(["glibc,glibc:mmap_threshold=4294967296+trim_threshold=4294967296,nowhere/x.so"]);
    compare.args([
        "--runs", "5", "-f", "json", "--", program, "said", "60000000",
    ]);
    let found = compare.output().unwrap();
    let err = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(found.status.code(), Some(0), "{err}");
    assert!(err.contains("nowhere/x.so: is not installed"), "{err}");
    let report = json(&String::from_utf8_lossy(&found.stdout));
    assert_eq!(report["missing"][0]["name"], "nowhere/x.so");
    // The runs are one warm-up and five measured runs with each allocator, and one recorded run.
    let said = std::fs::read_to_string(here.join("said")).unwrap();
    assert_eq!(said.lines().count(), 2 + 10 + 1, "{said}");
    let numbers =
        |line: &str| -> Vec<i64> { line.split(' ').map(|word| word.parse().unwrap()).collect() };
    let own = numbers(said.lines().nth(2).unwrap());
    let [plain, kept] = [&report["candidates"][0], &report["candidates"][1]];
    for candidate in [plain, kept] {
        assert_eq!(
            candidate["figures"]["wall"]["runs"]
                .as_array()
                .unwrap()
                .len(),
            5
        );
        let peak = median(candidate, "peak_rss");
        assert!((peak - own[0] * 1024).abs() < 1 << 20, "{peak} {own:?}");
        let faults = median(candidate, "minor_faults");
        assert!((faults - own[1]).abs() < 200, "{faults} {own:?}");
        assert!(median(candidate, "hwm") <= peak);
    }
    // Memory that the allocator keeps is still there at the end.
    let [gone, there] = [plain, kept].map(|one| median(one, "end_rss"));
    assert!(gone < 10 << 20 && there > 55 << 20, "{gone} {there}");
    let heap = report["heap_in_use"]["peak"].as_i64().unwrap();
    assert!((60_000_000..60_010_000).contains(&heap), "{heap}");
    let text = report["candidates"][1]["sentence"].as_str().unwrap();
    assert!(
        text.contains("memory") || text.contains("no difference"),
        "{text}"
    );
}

#[test]
fn another_allocator_is_in_the_program() {
    let Some(path) = library("libjemalloc.so.2") else {
        return;
    };
    if !have(&["gcc"]) {
        return;
    }
    let built = build(COUNTED, "gcc -O1");
    let here = built.folder.path();
    let program = built.program.to_str().unwrap();
    let mut compare = command(here);
    compare.args([
        "compare-allocators",
        "--no-heap",
        "--runs",
        "1",
        "--warmup",
        "0",
        "-f",
        "json",
    ]);
    compare.arg("--allocators").arg(format!("glibc,{path}"));
    // The libraries are read at the end of a program that is traced by then. On a busy machine a
    // short program ends before, so this one waits for its tracer.
    let wait = r#"until grep -q '^TracerPid:.*[1-9]' /proc/$$/status; do :; done; exec "$@""#;
    compare.args(["--", "sh", "-c", wait, "sh", program, "said", "1000"]);
    let found = compare.output().unwrap();
    let report = json(&String::from_utf8_lossy(&found.stdout));
    assert_eq!(report["candidates"][1]["loaded"], true, "{report}");
    assert!(report["candidates"][0]["loaded"].is_null());
    assert_eq!(
        report["candidates"][1]["figures"]["wall"]["difference"],
        Value::Null
    );
}

#[test]
fn a_program_that_fails_is_not_compared() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(COUNTED, "gcc -O1");
    let here = built.folder.path();
    let program = built.program.to_str().unwrap();
    let compare = [
        "compare-allocators",
        "--allocators",
        "glibc,glibc:arena_max=1",
        "--runs",
        "1",
    ];
    let words = [&compare[..], &["--", program, "said", "1000", "fail"]].concat();
    let found = run(here, &words);
    assert_eq!(found.code, 2);
    assert!(
        found.err.contains("exit status: 1 with glibc;"),
        "{}",
        found.err
    );
    let words = [&compare[..], &["-i", "--", program, "said", "1000", "fail"]].concat();
    assert_eq!(run(here, &words).code, 0);
    let static_one = build("int main(void) { return 0; }", "gcc -static");
    let program = static_one.program.to_str().unwrap();
    let found = run(here, &[&compare[..], &["--", program]].concat());
    assert!(
        found.code == 2 && found.err.contains("statically linked"),
        "{}",
        found.err
    );
}

/// Has a peak of the given number of bytes, for less than a millisecond.
const PEAK: &str = r#"
#include <stdlib.h>
int main(int argc, char **argv) {
    size_t bytes = (size_t)atol(argv[1]);
    for (size_t i = 0; i < bytes / 100; i += 1000) free(malloc(i));
    volatile char *peak = malloc(bytes);
    peak[0] = 1;
    free((void *)peak);
    return 0;
}
"#;

/// The allowed error in bytes: one page.
const PAGE: i64 = 4096;
/// Allowed error for Perl in bytes. Perl takes memory for values in arenas of a page, and the
/// number of environment variables influences whether the code needs one more arena for heads and
/// one more for bodies.
const ARENAS: i64 = 2 * 4096;

#[test]
fn peaks_of_known_size_are_found() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PEAK, "gcc -O1");
    let program = built.program.display();
    let sizes = [0, 1, 4096, 100_000, 10_000_000, 500_000_000];
    let candidates = sizes.map(|bytes| format!("{program} {bytes}"));
    let words: Vec<&str> = candidates.iter().map(String::as_str).collect();
    let found = run(
        built.folder.path(),
        &[&["bench", "-f", "json"], &words[..]].concat(),
    );
    assert_eq!(found.code, 0, "{}", found.err);
    let report = json(&found.out);
    for (row, bytes) in report["rows"].as_array().unwrap().iter().zip(sizes) {
        assert_eq!(row["peaks"][0], bytes, "{row}");
    }
    // Peaks above those of a candidate that does less, over several runs.
    let words = ["bench", "-f", "json", "--runs", "2", "--empty"];
    let found = run(
        built.folder.path(),
        &[&words[..], &[&candidates[3], &candidates[4]]].concat(),
    );
    let report = json(&found.out);
    let above = serde_json::json!([9_900_000, 9_900_000]);
    assert_eq!(report["rows"][0]["above_empty"], above, "{report}");
}

#[test]
fn peaks_of_perl_code_are_found() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let known = [
        ("1", 0),
        ("my $x; vec($x, 99_999, 8) = 1", 100_000),
        ("my $x; vec($x, 9_999_999, 8) = 1; undef $x", 10_000_000),
        (
            "for my $n (1 .. 3) { my $x; vec($x, $n * 1_000_000 - 1, 8) = 1; undef $x }",
            3_000_000,
        ),
        (
            "my $x; vec($x, 999_999, 8) = 1; my $y = $x; vec($y, 0, 8) = 2",
            2_000_000,
        ),
    ];
    let words: Vec<&str> = known.iter().map(|(code, _)| *code).collect();
    let bench = ["bench", "--perl", "-f", "json"];
    let found = run(folder.path(), &[&bench[..], &words[..]].concat());
    assert_eq!(found.code, 0, "{}", found.err);
    let report = json(&found.out);
    for (row, (code, bytes)) in report["rows"].as_array().unwrap().iter().zip(known) {
        let above = row["above_empty"][0].as_i64().unwrap();
        assert!(
            (above - bytes).abs() <= PAGE + ARENAS,
            "{code}: {above} is not {bytes}"
        );
    }
    let places = report;
    // A program's first array may need a new arena for its body, so the empty candidate has an
    // array, too.
    let empty = ["--empty", "my @a; $#a = 9", "my @a; $#a = 99_999"];
    let report = json(&run(folder.path(), &[&bench[..], &empty].concat()).out);
    let above = report["rows"][0]["above_empty"][0].as_i64().unwrap();
    assert!((above - 800_000).abs() <= PAGE, "{above}");
    // The reported line is in the candidate's own code.
    let most = places["rows"][2]["most"]["place"].as_str().unwrap();
    assert!(most.contains("-e:1"), "{most}");
    let failed = run(folder.path(), &["bench", "--perl", "die 'x'"]);
    assert!(
        failed.code == 2 && failed.err.contains("--ignore-failure"),
        "{}",
        failed.err
    );
}
