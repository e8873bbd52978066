//! jeprof and google-pprof (the Perl pprof) have the same numbers per function or address as
//! heapprof, for the same file.
//!
//! Their output is kept in `tests/golden/formats`. If the tools are installed, it is compared with
//! their present output; `HEAPPROF_BLESS=1` rewrites it. Debian's packages are `google-perftools`
//! and `libjemalloc-dev`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::harness::{bless, expect_file, name, root, run, sample_profiles};

/// Flat and cum, by function or address. A function that is inlined in some places has two rows.
type Rows = BTreeMap<String, Vec<(i64, i64)>>;

/// Returns the rows of a report, without the percentages.
fn rows(text: &str) -> Rows {
    let row = regex::Regex::new(r"^\s*(\d+)\s+\S+%\s+\S+%\s+(\d+)\s+\S+%\s+(.*?)( \(inline\))?$")
        .unwrap();
    let mut rows = Rows::new();
    for found in text.lines().filter_map(|line| row.captures(line)) {
        let number = |i: usize| -> i64 { found[i].parse().unwrap() };
        let of_name = rows.entry(found[3].to_string()).or_default();
        of_name.push((number(1), number(2)));
    }
    rows.values_mut().for_each(|of_name| of_name.sort());
    assert!(rows.len() >= 4, "{text}");
    rows
}

/// Returns the rows that the tool printed for a sample, from the golden. If the tool is installed,
/// also checks that it still prints them.
fn printed(tool: &str, sample: &Path, file: &Path, args: &[&str]) -> Rows {
    let options: Vec<&str> = args.iter().filter_map(|a| a.strip_prefix("--")).collect();
    let golden = format!(
        "{}.{tool}{}.txt",
        name(sample),
        options.iter().map(|o| format!(".{o}")).collect::<String>()
    );
    let golden = root().join("tests/golden/formats").join(golden);
    if have(&[tool]) {
        let output = Command::new(tool)
            .args(["--text", "--show_bytes"])
            .args(args)
            .arg(file)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if bless() {
            expect_file(&golden, &text);
        }
        // Rows with the same number may be in any order.
        let kept = std::fs::read_to_string(&golden).unwrap();
        assert_eq!(rows(&text), rows(&kept), "{}", golden.display());
    }
    rows(&std::fs::read_to_string(&golden).unwrap())
}

/// Returns the dump with names of libraries that do not exist, so that rows are addresses on every
/// machine.
fn without_libraries(sample: &Path, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(sample).unwrap();
    let file = folder.join(name(sample));
    std::fs::write(&file, text.replace(" /usr/", " /nowhere/")).unwrap();
    file
}

/// Returns heapprof's rows as JSON.
fn our_rows(sample: &Path, args: &[&str]) -> Vec<serde_json::Value> {
    let file = sample.to_str().unwrap();
    let args = [
        &["top", "--all-code", "-f", "json", "-n", "0"],
        args,
        &[file],
    ]
    .concat();
    let run = run(&sample_profiles(), &args);
    assert_eq!(run.code, 0, "{}", run.err);
    let top: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    top["rows"].as_array().unwrap().clone()
}

fn flat_and_cum(row: &serde_json::Value) -> (i64, i64) {
    (row["flat"].as_i64().unwrap(), row["cum"].as_i64().unwrap())
}

fn hexadecimal(address: &str) -> u64 {
    let digits = address.strip_prefix("0x").unwrap_or(address);
    u64::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{address}"))
}

/// Checks that values differ by less than one for each stack, which is the fraction that either
/// side cuts off.
fn assert_close(ours: i64, theirs: i64, stacks: usize, what: &str) {
    let close = ours.abs_diff(theirs) <= stacks as u64;
    assert!(close, "{what}: {theirs}, ours {ours}");
}

#[test]
fn totals_by_address() {
    let folder = tempfile::tempdir().unwrap();
    // The tools need a program; this one has no symbols.
    let program = "/bin/true";
    let cases: [(&str, &str, &[&str], &str); 7] = [
        ("google-pprof", "gperftools/shelf.heap", &[], "inuse_space"),
        (
            "google-pprof",
            "gperftools/shelf.heap",
            &["--alloc_objects"],
            "alloc_objects",
        ),
        (
            "google-pprof",
            "gperftools/shelf.sampled.heap",
            &[],
            "space",
        ),
        ("google-pprof", "gperftools/shelf.growth", &[], "space"),
        ("jeprof", "jemalloc/shelf.heap", &[], "inuse_space"),
        (
            "jeprof",
            "jemalloc/shelf.accum.heap",
            &["--alloc_space"],
            "alloc_space",
        ),
        (
            "jeprof",
            "jemalloc/made.old-header.heap",
            &["--inuse_objects"],
            "objects",
        ),
    ];
    for (tool, sample, args, sample_type) in cases {
        let sample = sample_profiles().join("foreign").join(sample);
        let file = without_libraries(&sample, folder.path());
        let theirs = printed(tool, &sample, &file, &[args, &[program]].concat());
        let what = format!("{tool} {args:?} {}", name(&sample));
        let rows = our_rows(&sample, &["-g", "addresses", "--sample-type", sample_type]);
        let mut ours: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
        for row in &rows {
            let address = hexadecimal(row["address"].as_str().unwrap());
            ours.insert(address, flat_and_cum(row));
        }
        let text = std::fs::read_to_string(&sample).unwrap();
        let stacks = text.matches('@').count();
        // The tools keep the innermost address at the return address. heapprof moves all addresses
        // into their calls.
        let mut moved: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
        for (address, rows) in &theirs {
            for (flat, cum) in rows {
                let is_leaf = *flat != 0;
                let address = hexadecimal(address) - u64::from(is_leaf);
                let both = moved.entry(address).or_default();
                *both = (both.0 + flat, both.1 + cum);
            }
        }
        for (address, (flat, cum)) in &moved {
            let what = format!("{what}: {address:x}");
            let ours = ours.remove(address).unwrap_or_else(|| panic!("{what}"));
            assert_close(ours.0, *flat, stacks, &what);
            assert_close(ours.1, *cum, stacks, &what);
        }
        // Rows that the tools leave out have no values.
        for (address, (flat, cum)) in ours {
            assert_eq!(flat, 0, "{what}: {address:x}");
            assert_close(cum, 0, stacks, &format!("{what}: {address:x}"));
        }
    }
}

/// Returns a function's name as the tools print it: without parameters, template arguments and
/// return type.
fn short(name: &str) -> String {
    let mut name = name.to_string();
    for pattern in [r"\([^()]*\)(\s*const)?", r"<[^<>]*>"] {
        let pattern = regex::Regex::new(pattern).unwrap();
        while pattern.is_match(&name) {
            name = pattern.replace_all(&name, "").into_owned();
        }
    }
    let leading = regex::Regex::new(r"^.*\s+(\w+::)").unwrap();
    leading.replace(&name, "$1").into_owned()
}

#[test]
fn totals_by_function_of_symbolized_profiles() {
    /// Upper limit of the number of stacks in a sample.
    const STACKS: usize = 40;
    for (tool, sample) in [
        ("google-pprof", "symbolized/shelf.google-pprof.raw"),
        ("jeprof", "symbolized/shelf.jeprof.raw"),
    ] {
        let sample = sample_profiles().join("foreign").join(sample);
        let theirs = printed(tool, &sample, &sample, &[]);
        // Some functions have the same short name. Their flat values add up; cum is compared only
        // if one function has the name.
        let mut ours = Rows::new();
        for row in our_rows(&sample, &[]) {
            let function = short(row["function"].as_str().unwrap());
            ours.entry(function).or_default().push(flat_and_cum(&row));
        }
        let mut alone = 0;
        for (function, rows) in &theirs {
            // The tools keep the version of a symbol.
            let function = function.split("@@").next().unwrap();
            let our_rows = &ours[function];
            let flat = |rows: &[(i64, i64)]| rows.iter().map(|row| row.0).sum::<i64>();
            assert_close(flat(our_rows), flat(rows), STACKS, function);
            if let ([(_, our_cum)], [(_, cum)]) = (&our_rows[..], &rows[..]) {
                assert_close(*our_cum, *cum, STACKS, function);
                alone += 1;
            }
        }
        assert!(alone > 10, "{alone}");
    }
}
