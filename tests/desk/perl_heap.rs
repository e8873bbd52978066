//! `perl-heap` on a core file and on a file of Devel::MAT: its reports, its profile, its errors.

use heapprof_tests::harness::{ok, run, sample_profiles};
use serde_json::Value;

const CORE: &str = "core:cores/market.core";
const PMAT: &str = "foreign/pmat/shelf.pmat.gz";

fn json(words: &[&str]) -> Value {
    let words = [&["perl-heap", "-f", "json", "-n", "0"], words].concat();
    serde_json::from_str(&ok(&words)).unwrap()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn rows_add_up_to_what_malloc_has_given_out() {
    for target in [CORE, PMAT] {
        let found = json(&[target]);
        for rows in ["types", "parts"] {
            let rows = found[rows].as_array().unwrap();
            let sum: u64 = rows.iter().map(|row| number(&row["bytes"])).sum();
            assert_eq!(sum, number(&found["bytes"]), "{target}");
        }
        if target == CORE {
            assert_eq!(found["bytes"], found["malloc"]);
            assert_eq!(found["values"], found["interpreters"][0]["sv_count"]);
        }
    }
}

/// A file of Devel::MAT answers the same questions as a process, except for contents.
#[test]
fn a_file_of_devel_mat_is_asked_the_same() {
    let found = json(&[PMAT]);
    assert_eq!(found["values"], 11_357);
    let size = json(&[PMAT, "--size", "%CACHE"]);
    assert_eq!(size["value"]["path"], "main::;%CACHE");
    let address = size["value"]["address"].as_str().unwrap();
    let who = json(&[PMAT, "--who", address]);
    assert_eq!(who["referrers"][0]["step"], "%");
    let way = json(&[PMAT, "--identify", address]);
    assert_eq!(way["way"].as_array().unwrap().len(), 3);
    assert_eq!(json(&[PMAT, "--cycles"])["cycles"], 7);
    let pads = json(&[PMAT, "--pads"]);
    let pads = pads["rows"].as_array().unwrap();
    assert!(pads.iter().any(|pad| pad["sub"] == "main::;&keeps"));
    let hidden =
        json(&[PMAT, "--anonymize"]).to_string() + &ok(&["perl-heap", PMAT, "-n0", "--anonymize"]);
    assert!(!hidden.contains("{number}") && !hidden.contains("SHELF;{left}"));
}

#[test]
fn each_report_has_each_format() {
    let found = json(&[CORE, "--size", "$CACHE{7}"]);
    let address = found["value"]["address"].as_str().unwrap();
    let questions: [&[&str]; 7] = [
        &[],
        &["--size", "%CACHE"],
        &["--identify", address],
        &["--who", address],
        &["--cycles"],
        &["--leaked"],
        &["--pads"],
    ];
    for words in questions {
        let words = [&["perl-heap", CORE], words].concat();
        let with = |format: &str| ok(&[&words[..], &["-f", format]].concat());
        let csv = with("csv");
        let columns = csv.lines().next().unwrap().split(',').count();
        assert!(columns >= 3 && csv.lines().count() > 1, "{csv}");
        assert!(with("markdown").contains("---"), "{words:?}");
        serde_json::from_str::<Value>(&with("json")).unwrap();
        assert!(!with("text").is_empty());
    }
    let raw = ok(&[
        "perl-heap",
        CORE,
        "--pads",
        "-f",
        "csv",
        "--unit",
        "B",
        "-n",
        "1",
    ]);
    assert!(
        raw.lines()
            .nth(1)
            .unwrap()
            .chars()
            .next()
            .unwrap()
            .is_ascii_digit()
    );
}

/// In a diff of two moments, the path that grew is the first row.
#[test]
fn what_grows_is_first_in_a_diff() {
    let first = |options: &[&str]| {
        let files = ["perl/market-1.pb.gz", "perl/market-2.pb.gz"];
        let words = [&["diff", "-f", "csv"], options, &files].concat();
        ok(&words).lines().nth(1).unwrap().to_string()
    };
    for options in [
        &["-g", "filefunctions"][..],
        &["-g", "filefunctions", "-s", "cum"],
        &["-g", "filefunctions", "-t", "retained_space"],
        &["-s", "cum"],
    ] {
        let row = first(options);
        assert!(row.contains("%CACHE"), "{options:?}: {row}");
    }
}

#[test]
fn what_cannot_be_had_is_said_in_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 18] = [
        (
            &[CORE, "--contents"],
            "--contents: name the value whose contents to show",
        ),
        (&[CORE, "--size", "CACHE"], "CACHE: is not a variable"),
        (&[CORE, "--size", "@CACHE"], "there is no @CACHE"),
        (
            &[CORE, "--size", "$CACHE{7}{none}"],
            "$CACHE{7} has no {none}",
        ),
        (&[CORE, "--size", "%page"], "there is no %page"),
        (&[CORE, "--size", "$page"], "&handle has 'my $page'"),
        (&[PMAT, "-o", PMAT], "is the file being read"),
        (&[CORE, "-o", "-"], "give a file"),
        (
            &[CORE, "--identify", "0x10"],
            "0x10: there is no value at this address",
        ),
        (&[CORE, "--who", "zz"], "is not an address"),
        (&[CORE, "--unit", "miles"], "miles"),
        (&[CORE, "-o", "cores/market.core"], "is the file being read"),
        (&[CORE, "--cycles", "--pads"], "cannot be used with"),
        (
            &["core:cores/sessions.core"],
            "there is no perl in this program",
        ),
        (&["core:none"], "none"),
        (&["perl/market-1.pb.gz"], "not a Devel::MAT::Dumper file"),
        (
            &[PMAT, "--size", "%CACHE", "--contents"],
            "--contents: needs the program's memory",
        ),
        (&["pid:999999999"], "999999999"),
    ];
    for (words, expected) in cases {
        let done = run(&sample_profiles(), &[&["perl-heap"], words].concat());
        assert_eq!(done.code, 2, "{words:?}: {}", done.err);
        assert!(done.out.is_empty(), "{words:?}: {}", done.out);
        assert!(done.err.contains(expected), "{words:?}: {}", done.err);
        let lines = done.err.lines().count();
        assert_eq!(lines, 1, "{words:?}: {}", done.err);
    }
    let own = std::process::id().to_string();
    let done = run(folder.path(), &["perl-heap", &own]);
    assert!(
        done.code == 2 && done.err.contains("no perl"),
        "{}",
        done.err
    );
}
