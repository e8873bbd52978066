//! Own code, `--all-code` and `--wrappers`, which decide whose code counts, with every report,
//! filter and loaded profile.

use std::path::Path;

use crate::names::{WRAPPED, csv_rows, functions, recorded};
use heapprof_tests::built::{build, have};
use heapprof_tests::harness::run;

/// A program in which allocations of libraries count for their caller, and those of a callback for
/// the callback itself.
const LIBRARIES: &str = r#"
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>
#define APART __attribute__((noinline))
namespace shop {
std::vector<int> numbers;
std::map<int, std::string> names;
static void *volatile kept;
APART int compared(const void *a, const void *b) { kept = malloc(90000); return *(int *)a - *(int *)b; }
APART void count() { numbers.reserve(10000); numbers.push_back(1); }
APART void name() { names[1] = std::string(20000, 'x'); }
APART void sort() { int two[] = {2, 1}; qsort(two, 2, sizeof *two, compared); }
}
int main() { shop::count(); shop::name(); shop::sort(); }
"#;

/// What the head of a report says of memory that libraries allocated.
const COUNTED_FOR_CALLERS: &str = "attributed to their callers";

#[test]
fn what_a_library_allocates_is_counted_for_its_caller() {
    if !have(&["g++"]) {
        return;
    }
    for options in ["-O0", "-O2"] {
        let built = build(LIBRARIES, &format!("g++ -g {options}"));
        let folder = built.folder.path();
        recorded(folder, &["-o", "p.pb.gz", "./program"]);
        let args = ["-t", "alloc_space", "--focus", "shop::", "p.pb.gz"];
        let top = run(folder, &[&["top", "-f", "csv"][..], &args].concat()).out;
        for row in [
            "90000,90000,\"shop::compared(",
            "40000,40000,shop::count(",
            "shop::name(",
        ] {
            assert!(top.contains(row), "{options}: {top}");
        }
        assert!(
            !top.contains("std::vector") && !top.contains("basic_string"),
            "{options}: {top}"
        );
        let text = run(folder, &[&["top"][..], &args].concat()).out;
        assert!(text.contains(COUNTED_FOR_CALLERS), "{text}");
        let own = |args: &[&str]| run(folder, args).out.contains(COUNTED_FOR_CALLERS);
        for report in [
            &["tree", "-t", "alloc", "p.pb.gz"][..],
            &["diff", "-t", "alloc", "p.pb.gz", "p.pb.gz"],
        ] {
            assert!(own(report), "{report:?}");
            for option in ["--all-code", "--all-frames", "-g=addresses"] {
                assert!(!own(&[report, &[option]].concat()), "{report:?} {option}");
            }
        }
        // A function that the user names is found, whose code it is.
        let peek = run(folder, &["peek", "reserve|qsort|insert", "p.pb.gz"]);
        assert_eq!(peek.code, 0, "{}", peek.err);
        // Rows still add up to the total.
        let sum = |args: &[&str]| -> i64 {
            let rows = run(
                folder,
                &[&["top", "-f", "csv", "-n", "0", "p.pb.gz"], args].concat(),
            )
            .out;
            rows.lines()
                .skip(1)
                .map(|row| row.split(',').next().unwrap().parse::<i64>().unwrap())
                .sum()
        };
        assert_eq!(sum(&[]), sum(&["--all-code"]));
    }
}

/// SQL shows the modules on which own code is based, with the same values for files and for a
/// database, whose views cut no frames.
#[test]
fn a_function_s_module_is_a_column() {
    if !have(&["g++"]) {
        return;
    }
    let built = build(LIBRARIES, "g++ -g -O0");
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let loaded = run(
        folder,
        &["--db", "d.db", "load", "--as", "p.pb.gz", "p.pb.gz"],
    );
    assert_eq!(loaded.code, 0, "{}", loaded.err);
    const SQL: &str = "SELECT function, module, is_library FROM function_report \
        WHERE sample_type = 'alloc_space' AND flat <> 0 ORDER BY function";
    let all = ["sql", "-f", "csv", "--all-code", "-p", "p.pb.gz", SQL];
    let rows = run(folder, &all).out;
    let whole = ["sql", "-f", "csv", "--all-frames", "-p", "p.pb.gz", SQL];
    assert_eq!(
        run(folder, &whole).out,
        run(folder, &["--db", "d.db", "sql", "-f", "csv", SQL]).out
    );
    assert!(rows.contains(",shop,0\n"), "{rows}");
    for row in rows.lines().filter(|row| row.contains("std::")) {
        assert!(row.ends_with(",std,1"), "{row}");
    }
    let sum = "SELECT module FROM function_report WHERE sample_type = 'alloc_space' AND \
               is_library = 0 GROUP BY module ORDER BY sum(flat) DESC LIMIT 1";
    assert_eq!(
        run(folder, &["--db", "d.db", "sql", "-f", "csv", sum]).out,
        "module\nshop\n"
    );
}

/// All reports have the options that decide whose code counts, for loaded profiles, too.
#[test]
fn whose_code_counts_is_asked_of_every_report() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(
        WRAPPED,
        "gcc -g -O1 -fno-optimize-sibling-calls -fno-builtin",
    );
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let loaded = run(folder, &["--db", "d.db", "load", "--as", "one", "p.pb.gz"]);
    assert_eq!(loaded.code, 0, "{}", loaded.err);
    let own = ["--wrappers", "our_alloc|xmalloc_table"];
    let file = functions(folder, &[&["-n", "0", "p.pb.gz"][..], &own].concat());
    let args = [
        &["--db", "d.db", "top", "-f", "csv", "-n", "0", "one"][..],
        &own,
    ]
    .concat();
    let stored = run(folder, &args);
    assert_eq!(stored.code, 0, "{}", stored.err);
    assert_eq!(csv_rows(&stored)[1..], file[..], "{}", stored.out);
    assert!(file.contains(&"by_ours".to_string()) && !file.contains(&"our_alloc".to_string()));
    for report in [
        &["leaks", "-f", "csv", "p.pb.gz"][..],
        &["tree", "-f", "csv", "--min-percent", "0", "p.pb.gz"],
        &["traces", "-f", "csv", "p.pb.gz"],
        &["diff", "-f", "csv", "-g", "functions", "p.pb.gz", "q.pb.gz"],
    ] {
        if report[0] == "diff" {
            recorded(folder, &["-o", "q.pb.gz", "sh", "-c", "exit 0"]);
        }
        let plain = run(folder, report);
        assert!(plain.out.contains("our_alloc"), "{report:?}: {}", plain.out);
        let cut = run(folder, &[report, &own].concat());
        assert_eq!(cut.code, 0, "{report:?}: {}", cut.err);
        assert!(!cut.out.contains("our_alloc"), "{report:?}: {}", cut.out);
        for option in ["--own-code", "--all-code"] {
            let whole = run(folder, &[report, &[option]].concat());
            assert_eq!(whole.code, 0, "{report:?} {option}: {}", whole.err);
        }
    }
    // A rule of --fail-if is about the rows that are shown.
    let rule = |args: &[&str]| {
        let args = [
            &["top", "--fail-if", "flat(^by_ours$) > 3000", "p.pb.gz"],
            args,
        ]
        .concat();
        run(folder, &args).code
    };
    assert_eq!((rule(&[]), rule(&own)), (0, 1));
    // A setting in the environment is stored in the file. An invalid regular expression switches
    // nothing off.
    for (names, row) in [("our_.*", "by_ours"), ("(", "our_alloc")] {
        let mut program = std::process::Command::new("./program");
        let status = program
            .current_dir(folder)
            .env("LD_PRELOAD", preload_path(folder))
            .env("HEAPPROF_WRAPPERS", names)
            .env("HEAPPROF_OUTPUT", folder.join("e.pb.gz"))
            .env("HEAPPROF_MODE", "exact")
            .env("HEAPPROF_FOLLOW", "no")
            .status();
        assert!(status.unwrap().success());
        let symbolized = run(folder, &["symbolize", "e.pb.gz"]);
        assert_eq!(symbolized.code, 0, "{}", symbolized.err);
        let rows = functions(folder, &["-n", "3", "e.pb.gz"]);
        assert!(
            rows.contains(&row.to_string()) && !rows.contains(&"xmalloc".to_string()),
            "{names}: {rows:?}"
        );
    }
}

fn preload_path(folder: &Path) -> String {
    run(folder, &["preload-path"]).out.trim().to_string()
}

/// Frames that labels add are not code: they do not end the search for own code, and no value is
/// counted for them.
#[test]
fn labels_and_filters_leave_own_code_as_it_is() {
    if !have(&["g++"]) {
        return;
    }
    let built = build(LIBRARIES, "g++ -g -O0");
    let folder = built.folder.path();
    recorded(folder, &["-o", "p.pb.gz", "./program"]);
    let counted = |args: &[&str]| {
        let args = [&["top", "-t", "alloc_space", "p.pb.gz"], args].concat();
        let text = run(folder, &args).out;
        let line = text.lines().find(|line| line.contains(COUNTED_FOR_CALLERS));
        line.unwrap_or_else(|| panic!("{text}")).to_string()
    };
    let plain = counted(&[]);
    assert_eq!(counted(&["--tag-leaf", "k"]), plain);
    assert_eq!(counted(&["--tag-root", "k"]), plain);
    let hidden = functions(folder, &["--hide", "shop::count", "-n", "0", "p.pb.gz"]);
    assert!(
        !hidden
            .iter()
            .any(|name| name.contains("shop::count") || name.contains("std::vector")),
        "{hidden:?}"
    );
    let files = functions(
        folder,
        &["-g", "files", "-t", "alloc_space", "-n", "1", "p.pb.gz"],
    );
    assert!(files[0].ends_with("source.cc"), "{files:?}");
}
