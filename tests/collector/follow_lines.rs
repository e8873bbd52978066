//! `record --follow-lines`: which lines are reported, while a program runs.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, run};
use heapprof_tests::waits::{ended, wait_until};

/// Returns the contents of each JSON object that was written: process, function, line, bytes.
fn said(text: &str) -> Vec<(i64, String, i64, i64)> {
    let line = |line: &str| {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}"));
        let number = |key: &str| value[key].as_i64().unwrap();
        let function = value["function"].as_str().unwrap().to_string();
        assert_eq!(value["exact"], true);
        (number("pid"), function, number("line"), number("bytes"))
    };
    text.lines().map(line).collect()
}

/// Returns the bytes in use at each line of the profile.
fn in_use(folder: &Path, profile: &str) -> HashMap<(String, i64), i64> {
    let top = run(
        folder,
        &[
            "top", "-g", "lines", "--format", "json", "-n", "1000", profile,
        ],
    );
    let top: Value = serde_json::from_str(&top.out).unwrap();
    let row = |row: &Value| {
        let function = row["function"].as_str().unwrap().to_string();
        let line = row["line"].as_i64().unwrap_or_default();
        ((function, line), row["flat"].as_i64().unwrap())
    };
    top["rows"].as_array().unwrap().iter().map(row).collect()
}

/// Checks that the reports of each line add up to its bytes in use: a line is reported whenever it
/// has grown by 64 KiB, so less than 64 KiB may be missing, and what one sample missed.
fn follows(folder: &Path, words: &[&str], functions: &[&str]) {
    let options = ["record", "--exact", "-o", "p.pb.gz", "--follow-lines=64KiB"];
    let json = ["--follow-format=json", "--follow-output=lines", "--"];
    let done = run(folder, &[&options[..], &json, words].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    let all = said(&std::fs::read_to_string(folder.join("lines")).unwrap());
    assert!(all.iter().all(|line| line.3 >= 64 << 10), "{all:?}");
    let held = in_use(folder, "p.pb.gz");
    // Memory that is freed again is not reported, except for what one sample may have seen of it.
    let sum = |names: &[&str]| -> i64 {
        let of = all.iter().filter(|line| names.contains(&line.1.as_str()));
        of.map(|line| line.3).sum()
    };
    assert!(sum(&["main::drop", "none()"]) < 1 << 20, "{all:?}");
    for function in functions {
        let of = |(_, name, ..): &&(i64, String, i64, i64)| name == function;
        let lines: Vec<_> = all.iter().filter(of).collect();
        assert!(!lines.is_empty(), "{function}: {all:?}");
        let sum: i64 = lines.iter().map(|line| line.3).sum();
        let key = (function.to_string(), lines[0].2);
        let left = held[&key] - sum;
        assert!(
            (0..2 * (64 << 10)).contains(&left),
            "{function}: {sum}, {held:?}"
        );
    }
}

#[test]
fn perl_lines_are_said_as_they_grow() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "my @kept;\n\
                  sub keep { my ($n) = @_; push @kept, \"text $n \" x 50; }\n\
                  sub drop { my @dropped = map { \"text $_\" } 1 .. 200; return scalar @dropped }\n\
                  for my $i (1 .. 5000) { keep($i); drop() if $i % 50 == 0 }\n";
    std::fs::write(folder.path().join("grow.pl"), script).unwrap();
    follows(folder.path(), &["perl", "grow.pl"], &["main::keep"]);
}

/// Lines that call `operator new` are distinguished, although all of them use the same code in it.
#[test]
fn lines_that_call_operator_new_are_told_apart() {
    if !have(&["g++"]) {
        return;
    }
    let source = "#include <cstdio>\n\
                  #include <string>\n\
                  #include <vector>\n\
                  static std::vector<char *> kept;\n\
                  __attribute__((noinline)) void one() { kept.push_back(new char[300]); }\n\
                  __attribute__((noinline)) void two() { kept.push_back(new char[700]); }\n\
                  __attribute__((noinline)) void none() { delete[] new char[5000]; }\n\
                  int main() {\n\
                      kept.reserve(1 << 20);\n\
                      for (int i = 0; i < 5000; i++) { one(); two(); none(); }\n\
                      std::puts(\"done\");\n\
                      return 0;\n\
                  }\n";
    let built = build(source, "g++ -O1 -g -fno-optimize-sibling-calls");
    let program = built.program.display().to_string();
    let folder = tempfile::tempdir().unwrap();
    follows(folder.path(), &[&program], &["one()", "two()"]);
}

/// Records a script and returns the bytes reported for `main::keep` by process, the largest first.
fn said_of_keep(script: &str, options: &[&str]) -> Vec<i64> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("keep.pl"), script).unwrap();
    let json = ["--follow-format=json", "--follow-output=lines"];
    let all = [
        "record",
        "--exact",
        "-o",
        "p.pb.gz",
        "--follow-lines=100KiB",
    ];
    let words = ["--", "perl", "keep.pl"];
    let args = [&all[..], &json, options, &words].concat();
    let done = run(folder.path(), &args);
    assert_eq!(
        (done.code, done.out.as_str()),
        (3, "done\n"),
        "{}",
        done.err
    );
    let lines = said(&std::fs::read_to_string(folder.path().join("lines")).unwrap());
    let mut sums: Vec<(i64, i64)> = Vec::new();
    for (process, function, _, bytes) in lines {
        if function == "main::keep" {
            match sums.iter_mut().find(|(of, _)| *of == process) {
                Some((_, sum)) => *sum += bytes,
                None => sums.push((process, bytes)),
            }
        }
    }
    let mut sums: Vec<i64> = sums.into_iter().map(|(_, sum)| sum).collect();
    sums.sort_by_key(|&sum| std::cmp::Reverse(sum));
    sums
}

/// The megabyte that the parent allocated before it forked does not count for its child.
#[test]
fn a_child_s_growth_is_its_own() {
    if !have(&["perl"]) {
        return;
    }
    let script = "my @kept;\n\
                  sub keep { push @kept, 'x' x 1000 for 1 .. $_[0] }\n\
                  keep(1000);\n\
                  if (!fork) { keep(300); exit 0 }\n\
                  wait;\n\
                  print \"done\\n\";\n\
                  exit 3;\n";
    let sums = said_of_keep(script, &[]);
    // Growth of less than a step since the last report of a line is not reported.
    const STEP: i64 = 100 << 10;
    let within = |sum: i64, most: i64| (most - STEP..most * 4 / 3).contains(&sum);
    assert_eq!(sums.len(), 2, "{sums:?}");
    assert!(
        within(sums[0], 1_000_000) && within(sums[1], 300_000),
        "{sums:?}"
    );
}

/// A program that executes another program, or itself again, begins at zero.
#[test]
fn growth_begins_anew_after_an_exec() {
    if !have(&["perl"]) {
        return;
    }
    let script = "my @kept;\n\
                  sub keep { push @kept, 'x' x 1000 for 1 .. 1000 }\n\
                  keep();\n\
                  sub said { my $sum = 0; open my $lines, '<', 'lines' or return 0;\n\
                             while (<$lines>) { $sum += $1 if /main::keep/ && /\"bytes\":(\\d+)/ } $sum }\n\
                  if (!@ARGV) {\n\
                      while (said() < 800_000) {\n\
                          my @looked = map { 'y' x 1000 } 1 .. 300;\n\
                          select undef, undef, undef, 0.05;\n\
                      }\n\
                      @kept = ();\n\
                      exec $^X, $0, 'again';\n\
                  }\n\
                  print \"done\\n\";\n\
                  exit 3;\n";
    let sums = said_of_keep(script, &[]);
    assert_eq!(sums.len(), 1, "{sums:?}");
    assert!(sums[0] > 1_500_000, "{sums:?}");
}

/// The text form for people stands between the program's own output.
#[test]
fn people_read_lines() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Growth is reported at the next allocation after a pause.
    let script = "my @kept; sub keep { push @kept, 'x' x 1000 for 1 .. 500 }\nkeep();\n";
    std::fs::write(folder.path().join("keep.pl"), script).unwrap();
    let args = [
        "record",
        "--exact",
        "-o",
        "p.pb.gz",
        "--follow-lines=100KiB",
    ];
    let done = run(
        folder.path(),
        &[&args[..], &["--", "perl", "keep.pl"]].concat(),
    );
    let form = r"(?m)^heapprof: \d+, keep\.pl:1, \+\d+(\.\d+)?KiB, main::keep$";
    let form = regex::Regex::new(form).unwrap();
    assert!(form.is_match(&done.err), "{}", done.err);
}

#[test]
fn what_cannot_be_followed_is_said_before_the_program_runs() {
    let folder = tempfile::tempdir().unwrap();
    for (options, wanted) in [
        (&["--follow-output=x"][..], "--follow-lines"),
        (&["--follow-lines=0"], "must be more than 0 bytes"),
        (
            &["--follow-lines", "--follow-output=none/x"],
            "create it first",
        ),
    ] {
        let args = [&["record"], options, &["--", "touch", "ran"]].concat();
        let done = run(folder.path(), &args);
        assert_eq!(done.code, 2, "{options:?}");
        assert!(done.err.contains(wanted), "{options:?}: {}", done.err);
        assert!(!folder.path().join("ran").exists());
    }
}

/// A program that grows, frees everything and ends before the next sample is taken.
const SHORT: &str = r#"
#include <stdlib.h>
#include <string.h>
char *volatile kept[3000];
__attribute__((noinline)) void first(void) { kept[0] = memset(malloc(2 << 20), 1, 2 << 20); }
__attribute__((noinline)) void grow(void) {
    for (int i = 1; i < 3000; i++) kept[i] = memset(malloc(1000), 1, 1000);
}
int main(void) {
    first();
    grow();
    for (int i = 0; i < 3000; i++) free(kept[i]);
    return 0;
}
"#;

/// The end of a process takes a sample, too.
#[test]
fn what_a_short_program_had_at_its_peak_is_said() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(SHORT, "gcc -g -O1");
    let words = [
        "record",
        "--exact",
        "-o",
        "p.pb.gz",
        "--follow-lines",
        "--",
        "./program",
    ];
    let found = run(built.folder.path(), &words);
    assert_eq!(found.code, 0, "{}", found.err);
    let grown = |function: &str| -> f64 {
        let lines = found.err.lines().filter(|line| line.ends_with(function));
        let megabytes = lines.map(|line| {
            let bytes = line.split(", ").nth(2).unwrap();
            bytes
                .trim_start_matches('+')
                .trim_end_matches("MiB")
                .parse::<f64>()
                .unwrap()
        });
        megabytes.sum()
    };
    // Growth is reported once, regardless of when samples were taken.
    assert!((1.9..2.1).contains(&grown(", first")), "{}", found.err);
    assert!((1.8..2.9).contains(&grown(", grow")), "{}", found.err);
}

/// The files that processes write are untrusted data. A file that contains no lines is skipped.
#[test]
fn other_things_in_the_lists_folder_do_no_harm() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "my $list = $ENV{HEAPPROF_LIST};\n\
                  open my $own, '>>', \"$list/$<.lines\" or die;\n\
                  print $own \"\\n\\0lines 7 1 1 9000\\n\", \"\\xff\" x 1000;\n\
                  close $own;\n\
                  symlink '/etc/passwd', \"$list/9.lines\" or die;\n\
                  mkdir \"$list/8.lines\" or die;\n\
                  open my $other, '>', \"$list/7.lines\" or die;\n\
                  print $other \"\\n\\0lines 3 1 1 5\\nhello\";\n\
                  close $other;\n\
                  my @kept = map { 'x' x 1000 } 1 .. 9000;\n\
                  print \"done\\n\";\n";
    std::fs::write(folder.path().join("odd.pl"), script).unwrap();
    let args = [
        "record",
        "-o",
        "p.pb.gz",
        "--follow-lines",
        "--",
        "perl",
        "odd.pl",
    ];
    let done = run(folder.path(), &args);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(done.out, "done\n");
    assert!(done.err.contains("next: heapprof top"), "{}", done.err);
}

/// The recording ends, however much a process writes to the file of its lines.
#[test]
fn floods_do_not_hold_the_recording() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // Growth is reported at the next allocation after a pause.
    let script = "my @kept; sub keep { push @kept, 'x' x 1000 for 1 .. 500 }\nkeep();\n\
                  sub is_told { open my $in, '<', 'lines' or return; local $/;\n\
                    (<$in> // '') =~ /main::keep/ }\n\
                  until (is_told()) {\n\
                    my @passing = map { \"$_\" x 1000 } 1 .. 300;\n\
                    select undef, undef, undef, 0.01;\n\
                  }\n\
                  open my $own, '>>', \"$ENV{HEAPPROF_LIST}/$<.lines\" or die;\n\
                  binmode $own;\n\
                  print $own \"\\n\\0lines 7 1 1 16000000\\n\" x 700_000;\n\
                  print $own \"\\n\\0lines $_ 1 1 0\\n\" for 1 .. 300_000;\n\
                  print $own \"\\n\\0lines $_ 1 1 4\\nnone\" for 1 .. 300_000;\n\
                  close $own;\n\
                  keep();\n\
                  print \"done\\n\";\n";
    std::fs::write(folder.path().join("flood.pl"), script).unwrap();
    let args = [
        "record",
        "--exact",
        "-o",
        "p.pb.gz",
        "--follow-lines=100KiB",
        "--follow-output=lines",
    ];
    let words = ["--", "perl", "flood.pl"];
    let done = run(folder.path(), &[&args[..], &words].concat());
    assert_eq!(
        (done.code, done.out.as_str()),
        (0, "done\n"),
        "{}",
        done.err
    );
    let lines = std::fs::read_to_string(folder.path().join("lines")).unwrap();
    assert!(lines.contains("KiB, main::keep"), "{lines}");
    assert!(done.err.contains("are damaged"), "{}", done.err);
    assert!(done.err.contains("next: heapprof top"), "{}", done.err);
}

/// A reader that reads nothing does not block the recording.
#[test]
fn a_reader_that_stops_is_left_behind() {
    if !have(&["perl", "mkfifo"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(at("lines"))
        .status();
    assert!(made.unwrap().success());
    // The output has more lines than a pipe can store.
    let mut script = String::from("my @kept;\n");
    for i in 0..2000 {
        script += &format!("sub keep{i} {{ push @kept, 'x' x 3000 }}\n");
    }
    script += "no strict; &{\"keep$_\"}() for 0 .. 1999;\nprint \"done\\n\";\n";
    std::fs::write(at("many.pl"), script).unwrap();
    let reader = std::process::Command::new("sh")
        .args(["-c", "exec 3<lines; exec sleep 3600"])
        .current_dir(folder.path())
        .spawn();
    let args = ["record", "--exact", "-o", "p.pb.gz", "--follow-lines=2KiB"];
    let words = ["--follow-output=lines", "--follow-format=json"];
    let words = [&words[..], &["--", "perl", "many.pl"]].concat();
    let done = run(folder.path(), &[&args[..], &words].concat());
    let mut reader = reader.unwrap();
    let _ = reader.kill();
    let _ = reader.wait();
    assert_eq!(
        (done.code, done.out.as_str()),
        (0, "done\n"),
        "{}",
        done.err
    );
    let wanted = "lines: cannot be written: its reader was too slow; no more lines are reported";
    assert!(done.err.contains(wanted), "{}", done.err);
}

/// Growth is reported even if the program then waits for an event that may never come.
#[test]
fn growth_is_told_while_the_program_waits() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "my $byte;\n\
                  our @kept;\n\
                  sub keep { push @kept, 'x' x 1000 for 1 .. 3000 }\n\
                  keep();\n\
                  sysread STDIN, $byte, 1;\n";
    std::fs::write(folder.path().join("keep.pl"), script).unwrap();
    let mut record = command(folder.path());
    record.args([
        "record",
        "--exact",
        "-o",
        "p.pb.gz",
        "--follow-lines=100KiB",
    ]);
    record.args(["--follow-format=json", "--follow-output=lines"]);
    record.args(["--", "perl", "keep.pl"]).stdin(Stdio::piped());
    let mut record = record.spawn().unwrap();
    wait_until("the growth that was told", || {
        let lines = std::fs::read_to_string(folder.path().join("lines")).unwrap_or_default();
        // The last line may be incomplete.
        let whole = lines.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let of_keep = said(whole)
            .into_iter()
            .filter(|line| line.1 == "main::keep");
        of_keep.map(|line| line.3).sum::<i64>() >= 2_900_000
    });
    drop(record.stdin.take());
    assert!(ended(&mut record).success());
}
