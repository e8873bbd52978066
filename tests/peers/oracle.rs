//! Compares with the real pprof: flat and cum of every function, for every sample type, to the
//! byte.
//!
//! `HEAPPROF_PPROF=/path/to/pprof cargo test -p heapprof-tests oracle --
//! --ignored`; more profiles with HEAPPROF_ORACLE_PROFILES (paths separated by colons).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use heapprof_tests::harness::{name, run, sample_profiles, valid};

type Rows = BTreeMap<String, (i64, i64)>;

fn pprof_top(pprof: &Path, file: &Path, args: &[&str]) -> (Rows, Option<i64>) {
    let output = Command::new(pprof)
        .args(["-symbolize=none", "-top", "-nodefraction=0"])
        .args(args)
        .arg(file)
        .env("TZ", "UTC")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let row = regex::Regex::new(r"^\s*(-?\d+)\D*\s+\S+\s+\S+\s+(-?\d+)\D*?\s+\S+\s+(.*)$").unwrap();
    let inline = regex::Regex::new(r" \((partial-)?inline\)$").unwrap();
    let total = regex::Regex::new(r"of (-?\d+)\D* total").unwrap();
    let mut rows = Rows::new();
    for line in text.lines().skip_while(|l| !l.contains("flat%")).skip(1) {
        let found = row.captures(line).unwrap_or_else(|| panic!("{line}"));
        let function = inline.replace(&found[3], "").into_owned();
        rows.insert(
            function,
            (found[1].parse().unwrap(), found[2].parse().unwrap()),
        );
    }
    let total = total.captures(&text).map(|c| c[1].parse().unwrap());
    (rows, total)
}

fn our_top(file: &Path, args: &[&str]) -> (Rows, i64) {
    let mut all = vec!["top", "--all-code", "-f", "json", "-n", "0"];
    all.extend(args);
    all.push(file.to_str().unwrap());
    let run = run(&sample_profiles(), &all);
    assert_eq!(run.code, 0, "{}", run.err);
    let top: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let rows = top["rows"].as_array().unwrap().iter().map(|row| {
        let number = |key: &str| row[key].as_i64().unwrap();
        (
            row["function"].as_str().unwrap().to_string(),
            (number("flat"), number("cum")),
        )
    });
    (rows.collect(), top["total"].as_i64().unwrap())
}

fn pprof() -> PathBuf {
    let path = std::env::var_os("HEAPPROF_PPROF").expect("HEAPPROF_PPROF names the real pprof");
    PathBuf::from(path)
}

/// Returns the profiles in which pprof shows each function in a separate row, as heapprof does.
fn comparable() -> Vec<PathBuf> {
    let ours = valid().into_iter().filter(|f| {
        // Profiles are left out if they have frames without symbols or empty stacks, which pprof
        // merges or drops, or names that its text can't show.
        !["unsymbolized", "empty-stacks", "odd-names", "leaks"]
            .iter()
            .any(|n| name(f).contains(n))
    });
    let more = std::env::var("HEAPPROF_ORACLE_PROFILES").unwrap_or_default();
    ours.chain(more.split(':').filter(|p| !p.is_empty()).map(PathBuf::from))
        .collect()
}

#[test]
#[ignore = "needs the real pprof: set HEAPPROF_PPROF"]
fn every_function_has_pprofs_flat_and_cum() {
    let pprof = pprof();
    for file in comparable() {
        let profile = heapprof_profile::decode(std::fs::File::open(&file).unwrap()).unwrap();
        for (i, t) in profile.sample_type.iter().enumerate() {
            let unit = profile.text(t.unit);
            let index = format!("-sample_index={i}");
            let (theirs, total) = pprof_top(&pprof, &file, &[&index, &format!("-unit={unit}")]);
            let i = i.to_string();
            let (ours, our_total) = our_top(&file, &["-t", &i]);
            assert_eq!(ours, theirs, "{} {i}", file.display());
            assert_eq!(Some(our_total), total, "{} {i}", file.display());
        }
    }
}

#[test]
#[ignore = "needs the real pprof: set HEAPPROF_PPROF"]
fn filters_give_pprofs_numbers() {
    let pprof = pprof();
    let table = [
        ("focus", "pars|walk|insert"),
        ("ignore", "pars|walk|insert"),
        ("hide", "pars|walk|insert"),
        ("show", "pars|walk|main|insert"),
        ("show-from", "pars|serve|walk"),
        ("prune-from", "pars|serve"),
    ];
    for file in comparable().iter().filter(|f| name(f).starts_with("go.")) {
        for (option, regex) in table {
            let theirs = format!("-{}={regex}", option.replace('-', "_"));
            let profile = heapprof_profile::decode(std::fs::File::open(file).unwrap()).unwrap();
            let last = profile.sample_type.len() - 1;
            let unit = profile.text(profile.sample_type[last].unit);
            let index = format!("-sample_index={last}");
            let (theirs, _) = pprof_top(&pprof, file, &[&theirs, &index, &format!("-unit={unit}")]);
            let ours = our_top(
                file,
                &[&format!("--{option}"), regex, "-t", &last.to_string()],
            )
            .0;
            assert_eq!(ours, theirs, "{} {option}", file.display());
        }
    }
}

/// A few flags of each kind; `oracle/compare.py` has more, and makes profiles of odd shapes.
const FLAGS: [&str; 24] = [
    "-top",
    "-top -cum -nodecount=10",
    "-text -lines",
    "-top -files -unit=kb",
    "-top -filefunctions -noinlines",
    "-top -addresses -unit=auto",
    "-top -divide_by=3 -compact_labels",
    "-top -mean",
    "-top -relative_percentages -focus=pars|put|walk|main",
    "-top -ignore=pars|put -hide=walk",
    "-top -show_from=pars|put|main -drop_negative",
    "-top -tagfocus=:4kb -tagroot=bytes",
    "-tree -nodecount=15",
    "-tree -lines -prune_from=pars|put",
    "-peek=pars|put|walk|main",
    "-traces -tagshow=bytes",
    "-tags",
    "-raw",
    "-comments",
    "-dot -nodecount=20",
    "-dot -call_tree -nodecount=30",
    "-callgrind",
    "-list=pars|put|walk|main",
    "-top -sample_index=0 -trim=false",
];

/// `heapprof pprof` prints what pprof prints, byte for byte. Cases in which pprof's own output
/// changes from run to run are left out.
#[test]
#[ignore = "needs the real pprof: HEAPPROF_PPROF"]
fn the_drop_in_prints_what_pprof_prints() {
    let pprof = pprof();
    let folder = |name: &str| {
        let entries = std::fs::read_dir(sample_profiles().join(name)).unwrap();
        entries.map(|entry| entry.unwrap().path())
    };
    let mut files = valid();
    files.extend(folder("pprof"));
    // heapprof refuses some profiles that pprof reads in spite of their field numbers. They are not
    // compressed, so this pattern leaves them out.
    files.extend(folder("malformed").filter(|f| name(f).ends_with(".pb.gz")));
    files.extend(folder("foreign/gperftools").filter(|f| name(f).ends_with(".heap")));
    let more = std::env::var("HEAPPROF_ORACLE_PROFILES").unwrap_or_default();
    files.extend(more.split(':').filter(|p| !p.is_empty()).map(PathBuf::from));
    files.sort();
    let print = |program: &Path, first: &[&str], flags: &[&str], files: &[&Path]| {
        let output = Command::new(program)
            .args(first)
            .arg("-symbolize=none")
            .args(flags)
            .args(files)
            .env("TZ", "UTC")
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        // pprof prints the escape characters of names as they are. heapprof prints U+FFFD for each.
        let pieces: Vec<&[u8]> = output.stdout.split(|&byte| byte == 0x1b).collect();
        (output.status.code(), pieces.join("\u{fffd}".as_bytes()))
    };
    let (mut same, mut different) = (0, Vec::new());
    let mut compare = |flags: &[&str], files: &[&Path]| {
        let ours = print(
            Path::new(heapprof_tests::harness::heapprof()),
            &["pprof"],
            flags,
            files,
        );
        let theirs = print(&pprof, &[], flags, files);
        if theirs == ours {
            same += 1;
        } else if (0..5).all(|_| print(&pprof, &[], flags, files) == theirs) {
            let names: Vec<String> = files.iter().map(|f| name(f)).collect();
            different.push(format!("{} {}", flags.join(" "), names.join(" ")));
        }
    };
    for file in &files {
        for flags in FLAGS {
            let flags: Vec<&str> = flags.split(' ').collect();
            compare(&flags, &[file]);
        }
    }
    for pair in files.windows(2) {
        let base = format!("-diff_base={}", pair[0].display());
        compare(&["-top", &base], &[&pair[1]]);
        let base = format!("-base={}", pair[0].display());
        compare(&["-tree", "-normalize", &base], &[&pair[1]]);
        compare(&["-top"], &[&pair[0], &pair[1]]);
    }
    assert!(same > 1000, "{same} cases: the samples are missing");
    assert!(
        different.is_empty(),
        "{} of {}\n{}",
        different.len(),
        same + different.len(),
        different.join("\n")
    );
}
