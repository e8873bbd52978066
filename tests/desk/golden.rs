//! Output of reports on real profiles, in one file for each case, named profile.report.options.
//!
//! The numbers in the files were compared with the real pprof (see oracle.rs); the files fix the
//! form.

use heapprof_tests::harness::{expect_file, ok, root};

#[test]
fn reports_print_what_they_printed() {
    let profiles = [
        "go.leaky.after.pb.gz",
        "go.indexer.indexed.pb.gz",
        "go.leaky.cpu.pb.gz",
        "go.leaky.contention.pb.gz",
        "made.recursion.pb.gz",
        "made.inlines.pb.gz",
        "made.labels.pb.gz",
        "made.negative.pb.gz",
        "made.odd-names.pb.gz",
        "made.header.pb.gz",
        "made.unsymbolized.pb.gz",
        "made.sampled.pb.gz",
    ];
    let reports = [
        "top -n 10",
        "top -n 10 --sort cum",
        "top -n 10 -g lines",
        "top -n 5 --wide",
        "top -n 5 -f markdown",
        "top -n 5 -f csv -g addresses",
        "top -n 5 --focus parse|walk|main",
        "tree --min-percent 10",
        "tree --min-percent 10 --reverse",
        "peek -n 3 parse|walk|insert|main",
        "traces -n 2",
        "tags",
        "info",
        "flame -f folded --min-percent 5",
    ];
    for profile in profiles {
        let path = format!("valid/{profile}");
        for report in reports {
            let mut args: Vec<&str> = report.split(' ').collect();
            args.push(&path);
            expect_file(&file(profile, report), &ok(&args));
        }
    }
    let (before, after) = ("valid/go.leaky.before.pb.gz", "valid/go.leaky.after.pb.gz");
    for report in [
        "diff -n 5",
        "diff -n 5 -f markdown",
        "diff -n 5 -f csv",
        "diff -n 5 --sort cum",
        "diff -n 5 --normalize",
    ] {
        let mut args: Vec<&str> = report.split(' ').collect();
        args.extend([before, after]);
        expect_file(&file("go.leaky.before.go.leaky.after", report), &ok(&args));
    }
    let list = [
        "list",
        "tree..insert|parseOrder",
        "--source-path",
        "programs",
        after,
    ];
    expect_file(&file("go.leaky.after", "list"), &ok(&list));
    expect_file(&file("none", "schema"), &ok(&["schema"]));
}

fn file(profile: &str, report: &str) -> std::path::PathBuf {
    let profile = profile.trim_end_matches(".pb.gz");
    let options: String = report
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '.' })
        .collect();
    let mut name = format!("{profile}.{options}");
    while name.contains("..") {
        name = name.replace("..", ".");
    }
    root().join("tests/golden").join(format!("{name}.txt"))
}
