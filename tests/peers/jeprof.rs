//! `heapprof jeprof` prints what the real jeprof prints, on the same dumps.
//!
//! If jeprof and google-pprof are installed (Debian's `libjemalloc-dev` and `google-perftools`),
//! their output is compared. docs/commands/jeprof.md lists the intended differences: fractions of
//! bytes, symbol versions, discriminators. `live.rs` and `shell.rs` use dumps that are made
//! in the test.

mod live;
mod shell;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use heapprof_profile::{ProfileBuilder, encode};
use regex::Regex;

use heapprof_tests::built::have;
use heapprof_tests::harness::{expect_file, ok, root, run, sample_profiles};

const AFTER: &str = "valid/go.leaky.after.pb.gz";
const BEFORE: &str = "valid/go.leaky.before.pb.gz";
const ACCUM: &str = "foreign/jemalloc/shelf.accum.heap";

/// A program without symbols, which the tools need besides the dumps.
const PROGRAM: &str = "/bin/true";

/// Returns the output of jeprof or google-pprof, without parts that `heapprof jeprof` leaves out on
/// purpose.
fn theirs(tool: &str, folder: &Path, args: &[&str]) -> String {
    let output = Command::new(tool)
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {said}");
    let text = String::from_utf8(output.stdout).unwrap();
    let left_out = Regex::new(r"@@[A-Za-z][\w.]*| \(discriminator \d+\)").unwrap();
    left_out.replace_all(&text, "").into_owned()
}

fn ours(folder: &Path, args: &[&str]) -> String {
    let run = run(folder, &[&["jeprof"], args].concat());
    assert_eq!(run.code, 0, "{args:?}: {}", run.err);
    run.out
}

/// Returns the numbers of a report by the text before and after them: `Total: … MB`, functions.
fn numbers(text: &str) -> BTreeMap<String, Vec<f64>> {
    let total = Regex::new(r"^(Total.*): (\S+) (\w+)$").unwrap();
    let row = Regex::new(r"^\s*(-?[\d.]+)\s+\S+\s+\S+\s+(-?[\d.]+)\s+\S+ (.*)$").unwrap();
    let mut report = String::new();
    let mut numbers = BTreeMap::new();
    for line in text.lines() {
        let number = |text: &str| -> f64 { text.parse().unwrap() };
        if let Some(found) = total.captures(line) {
            report = found[1].to_string();
            numbers.insert(format!("{report} {}", &found[3]), vec![number(&found[2])]);
        } else {
            let found = row.captures(line).unwrap_or_else(|| panic!("{line:?}"));
            let values = vec![number(&found[1]), number(&found[2])];
            let before = numbers.insert(format!("{report} {}", &found[3]), values);
            assert!(before.is_none(), "twice: {line}");
        }
    }
    numbers
}

/// Checks that rows and numbers are equal, except for fractions that are cut off: less than one for
/// each stack.
fn assert_close(theirs: &str, ours: &str, stacks: usize, what: &str) {
    let (theirs, mut ours) = (numbers(theirs), numbers(ours));
    assert!(!theirs.is_empty(), "{what}: nothing to compare");
    for (row, theirs) in theirs {
        let close = |ours: &[f64]| {
            let mut pairs = theirs.iter().zip(ours);
            pairs.all(|(a, b)| (a - b).abs() <= stacks as f64)
        };
        // A sum that consists only of fractions is 0 here, and has no row.
        let ours = ours.remove(&row).unwrap_or_else(|| vec![0.0; theirs.len()]);
        assert!(close(&ours), "{what}: {row}: {theirs:?}, ours {ours:?}");
    }
    assert_eq!(ours, BTreeMap::new(), "{what}: rows that they do not have");
}

/// Returns the lines of collapsed stacks. Equal stacks are added up, and functions lose the marks
/// of their addresses.
fn stacks(text: &str) -> BTreeMap<String, i64> {
    let mark = Regex::new(r"<[0-9a-f]{16}>").unwrap();
    let mut stacks = BTreeMap::new();
    for line in text.lines() {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let stack = mark.replace_all(stack, "").into_owned();
        *stacks.entry(stack).or_default() += value.parse::<i64>().unwrap();
    }
    stacks
}

/// Compares a report of ours with the tool's: whole numbers as closely as `stacks_of_dump` allows,
/// all other output to the byte.
fn compare(tool: &str, folder: &Path, args: &[&str], stacks_of_dump: usize) {
    let (theirs, ours) = (theirs(tool, folder, args), ours(folder, args));
    let what = format!("{tool} {args:?}");
    let has = |option: &str| args.contains(&option);
    if has("--collapsed") {
        let (theirs, mut ours) = (stacks(&theirs), stacks(&ours));
        assert!(theirs.len() > 1, "{what}");
        for (stack, value) in theirs {
            let our_value = ours.remove(&stack);
            let our_value = our_value.unwrap_or_else(|| panic!("{what}: {stack}"));
            let close = our_value.abs_diff(value) <= stacks_of_dump as u64;
            assert!(close, "{what}: {stack}: {value}, ours {our_value}");
        }
        assert_eq!(ours, BTreeMap::new(), "{what}");
    } else if stacks_of_dump > 0
        && (has("--show_bytes") || has("--inuse_objects") || has("--alloc_objects"))
    {
        assert_close(&theirs, &ours, stacks_of_dump, &what);
    } else {
        assert_eq!(ours, theirs, "{what}");
    }
}

/// Writes the sample with the names of libraries that do not exist, so that it has no symbol of
/// this machine. Returns the number of its stacks.
fn without_libraries(sample: &str, folder: &Path) -> usize {
    let path = sample_profiles().join("foreign").join(sample);
    let text = std::fs::read_to_string(path).unwrap();
    let text = text.replace(" /usr/", " /nowhere/");
    let file = folder.join(sample.rsplit('/').next().unwrap());
    std::fs::write(file, &text).unwrap();
    text.matches('@').count()
}

const REPORTS: [&[&str]; 12] = [
    &["--text"],
    &["--cum"],
    &["--show_bytes"],
    &["--inuse_objects", "--cum"],
    &["--lines"],
    &["--files"],
    &["--addresses"],
    &["--collapsed"],
    &["--focus=402|34a|c35"],
    &["--ignore=01003|34a|b5d0d|c35d", "--show_bytes"],
    &["--retain=0x0", "--cum"],
    &["--exclude=0x0", "--lines"],
];

#[test]
fn dumps_without_their_programs() {
    if !have(&["jeprof", "nm", "addr2line"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Sampled dumps have fractions; others are equal to the byte. Two of them are shown in every
    // report.
    for (sample, is_sampled, every) in [
        ("jemalloc/shelf.heap", true, 3),
        ("jemalloc/shelf.accum.heap", true, 1),
        ("jemalloc/made.old-header.heap", true, 3),
        ("gperftools/shelf.heap", false, 1),
        ("gperftools/shelf.growth", false, 3),
        ("gperftools/shelf.sampled.heap", true, 3),
    ] {
        let stacks = without_libraries(sample, folder.path());
        let stacks = if is_sampled { stacks } else { 0 };
        let file = sample.rsplit('/').next().unwrap();
        for args in REPORTS.iter().step_by(every) {
            let args = [args, &[PROGRAM, file][..]].concat();
            compare("jeprof", folder.path(), &args, stacks);
        }
    }
    for (args, stacks) in [
        (&["--alloc_space", "shelf.accum.heap"][..], 0),
        (&["--alloc_objects", "shelf.accum.heap"], 40),
        (&["--alloc_space", "--show_bytes", "shelf.heap"], 0),
        (&["--thread=0", "shelf.accum.heap"], 0),
        (&["--thread=*", "--show_bytes", "shelf.accum.heap"], 40),
        (&["--thread=1", "--collapsed", "shelf.accum.heap"], 40),
    ] {
        // jemalloc counts freed blocks only with prof_accum; gperftools always does.
        let args = match args.last() {
            Some(&"shelf.heap") => {
                without_libraries("gperftools/shelf.heap", folder.path());
                [&args[..2], &[PROGRAM, "shelf.heap"]].concat()
            }
            _ => [&[PROGRAM], args].concat(),
        };
        compare("jeprof", folder.path(), &args, stacks);
    }
}

#[test]
fn symbolized_profiles() {
    if !have(&["jeprof", "google-pprof"]) {
        return;
    }
    let folder = sample_profiles().join("foreign/symbolized");
    for args in [
        &["--text"][..],
        &["--cum"],
        &["--show_bytes"],
        &["--inuse_objects"],
        &["--alloc_space"],
        &["--files"],
        &["--addresses"],
        &["--collapsed"],
        &["--focus=shop::"],
        &["--ignore=picture"],
        &["--retain=shop|std", "--cum"],
        &["--exclude=std::"],
        &["--thread=1"],
    ] {
        let args = [args, &["shelf.jeprof.raw"]].concat();
        compare("jeprof", &folder, &args, 40);
    }
    // jeprof subtracts one from these addresses, and finds no name.
    for args in [
        &["--show_bytes"][..],
        &["--show_bytes", "--cum", "--focus=shop::"],
    ] {
        let args = [args, &["shelf.google-pprof.raw"]].concat();
        let theirs = theirs("google-pprof", &folder, &args);
        let ours = ours(&folder, &args);
        // google-pprof takes the bytes for samples of time, and distinguishes functions with the
        // same short name by address.
        let theirs = theirs.replace(" samples\n", " B\n");
        let is_one = |line: &&str| !line.contains('@');
        let of_one: Vec<&str> = theirs.lines().filter(is_one).collect();
        for line in of_one {
            let numbers = line.split_whitespace().next().unwrap();
            assert!(ours.contains(numbers), "{args:?}: {line}\n{ours}");
        }
    }
}

/// Writes a dump as jemalloc does: stacks, each with its lines below it.
fn dump(folder: &Path, name: &str, stacks: &[(&str, &str)]) {
    let mut text =
        "heap_v2/1\n  t*: 9: 9000 [0: 0]\n  t1: 1: 1 [0: 0] worker one\n  t12: 1: 1 [0: 0]\n"
            .to_string();
    for (stack, counts) in stacks {
        text += &format!("@ {stack}\n");
        for line in counts.split(", ") {
            text += &format!("  {line} [0: 0]\n");
        }
    }
    std::fs::write(folder.join(name), text + "\nMAPPED_LIBRARIES:\n").unwrap();
}

#[test]
fn threads_are_called_by_their_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let stacks = [
        (
            "0x601001 0x601101",
            "t*: 3: 3000, t1: 2: 2000, t12: 1: 1000",
        ),
        ("0x601002 0x601101", "t*: 1: 500, t12: 1: 500"),
    ];
    dump(folder.path(), "named.heap", &stacks);
    let args = |more: &[&'static str]| [&["--show_bytes"], more, &[PROGRAM, "named.heap"]].concat();
    let expected = "Total (t1): 2000 B
    2000 100.0% 100.0%     2000 100.0% 0x0000000000601001
       0   0.0% 100.0%     2000 100.0% 0x0000000000601100
";
    let found = ours(folder.path(), &args(&["--thread=1"]));
    assert_eq!(found, expected);
    let all = ours(folder.path(), &args(&["--thread=*"]));
    assert!(all.starts_with(expected), "{all}");
    assert!(
        all[expected.len()..].starts_with("Total (t12): 1500 B\n"),
        "{all}"
    );
    if have(&["jeprof", "nm", "addr2line"]) {
        for thread in ["--thread=1", "--thread=12", "--thread=*"] {
            compare("jeprof", folder.path(), &args(&[thread]), 0);
        }
    }
    // Pictures find the thread by its number, too. A thread whose number only begins in the same
    // way is not used.
    let drawn = ours(folder.path(), &args(&["--dot", "--thread=1"]));
    assert!(
        drawn.contains("Showing nodes accounting for 2000B, 57.14% of 3500B total"),
        "{drawn}"
    );
}

/// A stack whose mean size changed is still one stack.
#[test]
fn what_shrank_is_subtracted_before_it_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let callers = "0x601001 0x601101";
    dump(
        folder.path(),
        "base.heap",
        &[(callers, "t*: 10: 1000"), ("0x601002", "t*: 5: 500")],
    );
    dump(
        folder.path(),
        "after.heap",
        &[(callers, "t*: 11: 1500"), ("0x601003", "t*: 1: 70")],
    );
    let args = [
        "--show_bytes",
        "--base=base.heap",
        "--drop_negative",
        PROGRAM,
        "after.heap",
    ];
    let expected = "Total: 570 B
     500  87.7%  87.7%      500  87.7% 0x0000000000601001
      70  12.3% 100.0%       70  12.3% 0x0000000000601003
       0   0.0% 100.0%      500  87.7% 0x0000000000601100
";
    assert_eq!(ours(folder.path(), &args), expected);
    if have(&["jeprof", "nm", "addr2line"]) {
        compare("jeprof", folder.path(), &args, 0);
    }
}

/// Output begins only when no later part of the report can fail.
#[test]
fn what_cannot_be_added_up_prints_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = ProfileBuilder::new(&[("inuse_space", "bytes")]);
    builder.add_folded("main;parse", &[i64::MAX]);
    builder.add_folded("main;walk", &[i64::MAX]);
    let mut bytes = Vec::new();
    encode(&builder.finish(), &mut bytes).unwrap();
    std::fs::write(folder.path().join("large.pb.gz"), bytes).unwrap();
    let run = run(folder.path(), &["jeprof", "--text", "large.pb.gz"]);
    assert_eq!((run.code, run.out.as_str()), (2, ""), "{}", run.err);
    assert!(run.err.contains("does not fit in 64 bits"), "{}", run.err);
}

/// Many threads give many reports, but only one report is in memory at a time.
#[cfg(target_os = "linux")]
#[test]
fn threads_do_not_multiply_memory() {
    use heapprof_tests::harness::heapprof;
    const THREADS: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    let stacks: Vec<(String, String)> = (0..6000)
        .map(|i| {
            let frames = (0..12).map(|f| format!("0x{:x}", 0x60_1001 + 16 * (12 * i + f)));
            let counts = format!("t*: 1: 1000, t{}: 1: 1000", i % THREADS);
            (frames.collect::<Vec<_>>().join(" "), counts)
        })
        .collect();
    let stacks: Vec<(&str, &str)> = stacks.iter().map(|(s, c)| (&s[..], &c[..])).collect();
    dump(folder.path(), "threads.heap", &stacks);
    let output = Command::new("sh")
        .args([
            "-c",
            "ulimit -v 600000 && exec \"$0\" jeprof '--thread=*' threads.heap",
        ])
        .arg(heapprof())
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("Total (t").count(), THREADS);
}

/// jeprof's rows for a profile that needs no binary: numbers, units, filters.
#[test]
fn rows_of_profiles_of_pprof() {
    let text = |args: &[&str]| {
        let all: Vec<&str> = ["jeprof"].into_iter().chain(args.iter().copied()).collect();
        ok(&all)
    };
    let expect = |name: &str, text: String| {
        expect_file(
            &root()
                .join("tests/golden/jeprof")
                .join(format!("{name}.txt")),
            &text,
        );
    };
    expect("text", text(&["--text", "pprof/heap.pb.gz"]));
    expect(
        "cum.show_bytes.lines",
        text(&["--cum", "--show_bytes", "--lines", "pprof/heap.pb.gz"]),
    );
    expect(
        "inuse_objects.focus",
        text(&["--inuse_objects", "--focus=step1", "pprof/heap.pb.gz"]),
    );
    expect(
        "exclude",
        text(&["--text", "--exclude", "step3", "pprof/heap.pb.gz"]),
    );
    expect(
        "base",
        text(&[
            "--show_bytes",
            &format!("--base={BEFORE}"),
            "--focus=insert",
            AFTER,
        ]),
    );
    expect("collapsed", text(&["--collapsed", "pprof/heap.pb.gz"]));
    for (args, says) in [
        (
            &["jeprof", "--bananas", AFTER][..],
            "--bananas is not an option of jeprof",
        ),
        (
            &["jeprof", "--text", "--dot", AFTER],
            "Only specify one output mode",
        ),
        (&["jeprof", "--raw", AFTER], "heapprof convert symbolize"),
        (
            &["jeprof", "--thread=7", AFTER],
            "the profile has no such thread",
        ),
        (&["jeprof"], "Did not specify profile file"),
        // `--thread=*` makes a report for each thread, which a picture can't do.
        (
            &["jeprof", "--thread=*", "--dot", ACCUM],
            "choose one with --thread=N",
        ),
        (
            &["jeprof", "--thread=*", "--list=x", ACCUM],
            "choose one with --thread=N",
        ),
    ] {
        let run = run(&sample_profiles(), args);
        assert_eq!(run.code, 2, "{args:?}");
        assert_eq!(run.err.lines().count(), 1, "{args:?}: {}", run.err);
        assert!(run.err.contains(says), "{args:?}: {}", run.err);
    }
}

/// Graphs equal those of pprof, with jeprof's options translated to pprof's.
#[test]
fn pictures_are_those_of_pprof() {
    for (theirs, ours) in [
        (&["--dot"][..], &["-dot"][..]),
        (&["--dot", "--show_bytes"], &["-dot", "-unit=bytes"]),
        (
            &["--callgrind", "--show_bytes"],
            &["-callgrind", "-unit=bytes"],
        ),
        (
            &["--list=step1", "--show_bytes"],
            &["-list=step1", "-unit=bytes"],
        ),
        // Objects are not shown as bytes, whatever the other options.
        (
            &["--dot", "--inuse_objects", "--show_bytes"],
            &["-dot", "-inuse_objects"],
        ),
    ] {
        let file = ["pprof/heap.pb.gz"];
        let drawn = ok(&[&["jeprof"], theirs, &file].concat());
        assert_eq!(drawn, ok(&[&["pprof"], ours, &file].concat()), "{theirs:?}");
    }
}
