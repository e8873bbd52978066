//! Every profile that is written while the program runs is complete, even though threads allocate
//! and free and processes fork.

use std::collections::BTreeMap;
use std::path::Path;

use crate::programs::build;
use crate::stacks::read;
use heapprof_tests::built::{self, have};
use heapprof_tests::expectations::{Sums, check};
use heapprof_tests::harness::{command, preloaded, run};
use heapprof_tests::needs;
use heapprof_tests::waits::HANG_TIMEOUT;

/// One profile: which process wrote it, its number, the reason, and the sums of all samples.
struct Dump {
    process: String,
    number: u64,
    reason: String,
    /// The time at which the values were taken. `start` is the time at which the recording began.
    taken: i64,
    start: i64,
    total: BTreeMap<&'static str, i64>,
}

const TYPES: [&str; 6] = [
    "alloc_objects",
    "alloc_space",
    "inuse_objects",
    "inuse_space",
    "peak_objects",
    "peak_space",
];

/// Reads a profile and checks the laws that hold for a single profile.
fn read_dump(path: &Path) -> Dump {
    let name = path.file_name().unwrap().to_str().unwrap();
    let profile = read(path);
    assert!(
        profile.warnings.is_empty(),
        "{name}: {:?}",
        profile.warnings
    );
    for i in 0..profile.samples.len() {
        let values = profile.samples.values(i);
        assert!(values.iter().all(|&v| v >= 0), "{name}: {values:?}");
        let [made, made_bytes, used, used_bytes, ..] = values[..] else {
            panic!("{name}: {values:?}");
        };
        assert!(
            used <= made && used_bytes <= made_bytes,
            "{name}: {values:?}"
        );
        assert!(
            values[4] <= made && values[5] <= made_bytes,
            "{name}: {values:?}"
        );
    }
    let sums = Sums::from_profile(&profile);
    let comments = profile.comment.iter().map(|&text| profile.text(text));
    let mut reasons = comments.filter_map(|text| text.strip_prefix("dump: "));
    let mut parts = name.split('.').skip(1);
    Dump {
        process: parts.next().unwrap().to_string(),
        number: parts.next().unwrap().parse().unwrap(),
        reason: reasons.next().unwrap_or_default().to_string(),
        taken: profile.time_nanos,
        start: profile.time_nanos - profile.duration_nanos,
        total: TYPES.iter().map(|&kind| (kind, sums.total(kind))).collect(),
    }
}

/// Runs the program with dumps while it runs. Returns the number of dumps for each reason.
fn dumped(threads: usize, forks: usize, options: &[&str]) -> BTreeMap<String, usize> {
    dumped_until(threads, forks, "", options)
}

/// Does the same as [`dumped`], with a program that waits for a file of this name. `%d` in it
/// stands for the process's number.
fn dumped_until(
    threads: usize,
    forks: usize,
    awaited: &str,
    options: &[&str],
) -> BTreeMap<String, usize> {
    let Some(binaries) = build("oracle_dumps.c") else {
        return BTreeMap::new();
    };
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path())
        .args([
            "record",
            "--no-symbolize",
            "--keep-small",
            "-o",
            "d.%p.%n.pb.gz",
        ])
        .args(options)
        .arg("--")
        .arg(&binaries[0])
        .args([threads.to_string(), forks.to_string(), awaited.to_string()])
        .current_dir(folder.path())
        .env("HEAPPROF_TEST_EXPECT", folder.path().join("expect"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut dumps = Vec::new();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy().into_owned();
        assert!(!name.ends_with(".tmp"), "{name} is left behind");
        if name.ends_with(".pb.gz") {
            dumps.push((read_dump(&path), path));
        }
    }
    dumps.sort_by(|(a, _), (b, _)| (&a.process, a.number).cmp(&(&b.process, b.number)));
    for pair in dumps.windows(2) {
        let [(before, _), (after, path)] = pair else {
            unreachable!("windows of two");
        };
        // The allocated sums never shrink, nor does the peak.
        if before.process == after.process {
            let times = [before.start, before.taken, after.taken];
            assert!(times.is_sorted(), "{}: {times:?}", path.display());
            assert_eq!(before.start, after.start, "{}", path.display());
            for kind in ["alloc_objects", "alloc_space"] {
                assert!(
                    after.total[kind] >= before.total[kind],
                    "{}",
                    path.display()
                );
            }
        }
    }
    let mut last = BTreeMap::new();
    for (dump, path) in &dumps {
        last.insert(&dump.process, (dump, path));
    }
    assert_eq!(last.len(), forks + 1, "a profile of each process");
    let exact = options.contains(&"--exact");
    for (dump, path) in last.values() {
        assert_eq!(dump.reason, "exit", "{}", path.display());
        // No thread allocates any more, so the peak is at least the heap that is left.
        let is_quiet = dump.total["peak_space"] >= dump.total["inuse_space"];
        assert!(is_quiet || !exact, "{}: {:?}", path.display(), dump.total);
    }
    if exact {
        final_numbers(folder.path(), last.values().map(|(_, path)| path.as_path()));
    }
    let mut reasons = BTreeMap::new();
    for (dump, _) in &dumps {
        *reasons.entry(dump.reason.clone()).or_default() += 1;
    }
    reasons
}

/// Checks that the last profile of each process has the numbers that the process counted.
fn final_numbers<'a>(folder: &Path, profiles: impl Iterator<Item = &'a Path>) {
    for path in profiles {
        let pid = path.file_name().unwrap().to_str().unwrap();
        let pid = pid.split('.').nth(1).unwrap();
        let own = tempfile::tempdir().unwrap();
        let child = folder.join(format!("expect.{pid}"));
        let expect = if child.is_file() {
            child
        } else {
            folder.join("expect")
        };
        std::fs::copy(expect, own.path().join("expect")).unwrap();
        let mut profile = read(path);
        heapprof_symbolize::symbolize(
            &mut profile,
            &heapprof_symbolize::SymbolizeOptions::default(),
        );
        let mut file = std::fs::File::create(own.path().join("out.pb.gz")).unwrap();
        heapprof_profile::encode(&profile, &mut file).unwrap();
        if let Err(what) = check(own.path(), true, "exact") {
            panic!("{}: {what}", path.display());
        }
    }
}

fn at_least(reasons: &BTreeMap<String, usize>, reason: &str, count: usize) {
    let found = reasons.get(reason).copied().unwrap_or(0);
    assert!(
        reasons.is_empty() || found >= count,
        "{found} dumps of {reason}: {reasons:?}"
    );
}

/// In gperftools' text form, a note marks each cut stack, in a form that readers of the format
/// skip.
#[test]
fn cut_stacks_are_said_in_text() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) int deep(int n) {
    if (n) return deep(n - 1) + 1;
    kept = malloc(123456);
    return 0;
}
int main(void) { return deep(2000) != 2000; }
"#;
    let built = built::build(source, "gcc -O0 -g");
    let status = preloaded(&built.program)
        .env("HEAPPROFILE", built.path("x"))
        .status();
    assert!(status.unwrap().success());
    let file = built.path("x.0001.heap");
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text
        .lines()
        .skip(1)
        .skip_while(|line| !line.contains(" 123456 ["));
    assert!(
        lines.next().is_some_and(|line| line.contains("] @ 0x")),
        "{text}"
    );
    assert_eq!(
        lines.next(),
        Some("# the stack above was cut in the middle")
    );
    // Each reader finds the block.
    let top = run(built.folder.path(), &["top", "-n", "0", "x.0001.heap"]);
    assert!(
        top.code == 0 && top.out.contains("120.56KiB"),
        "{} {}",
        top.out,
        top.err
    );
    if have(&["google-pprof"]) {
        let output = std::process::Command::new("google-pprof")
            .args(["--text", "--show_bytes"])
            .args([&built.program, &file])
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert!(
            out.contains("123456 "),
            "{out} {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn on_an_interval() {
    for mode in [&["--exact"][..], &["--period", "4KiB"]] {
        let options = [mode, &["--interval", "5ms"]].concat();
        let reasons = dumped_until(4, 0, "d.%d.0003.pb.gz", &options);
        at_least(&reasons, "interval", 3);
    }
}

/// At each crossing of the threshold one thread dumps. If there are several threads, the others may
/// run to the end while one dumps.
#[test]
fn on_growth() {
    for mode in [&["--exact"][..], &["--period", "4KiB"]] {
        for (threads, least) in [(1, 4), (4, 1)] {
            let reasons = dumped(threads, 0, &[mode, &["--on-growth", "256KiB"]].concat());
            at_least(&reasons, "growth", least);
        }
    }
}

#[test]
fn on_new_peaks() {
    for mode in [&["--exact"][..], &["--period", "4KiB"]] {
        for (threads, least) in [(1, 4), (4, 1)] {
            let reasons = dumped(threads, 0, &[mode, &["--on-peak"]].concat());
            at_least(&reasons, "peak", least);
        }
    }
}

/// The program forks meanwhile, each child has its own profiles, and the program requests dumps.
#[test]
fn with_forks_and_dumps_that_were_asked_for() {
    for mode in [&["--exact"][..], &["--period", "4KiB"]] {
        let reasons = dumped(4, 10, &[mode, &["--interval", "20ms"]].concat());
        at_least(&reasons, "request", 10);
    }
}

#[test]
fn of_many_threads() {
    for mode in [&["--exact"][..], &["--period", "4KiB"]] {
        let options = [mode, &["--interval", "50ms", "--on-peak"]].concat();
        let reasons = dumped(32, 3, &options);
        at_least(&reasons, "request", 3);
    }
}

/// The interval timer may begin a dump after the dump before an exec. It must not conclude that the
/// exec failed and remove the exec's profile, and its own dump must not be cut off.
#[test]
fn the_profile_before_an_exec_stays() {
    let Some(binaries) = build("process_exec.c") else {
        return;
    };
    for round in 0..100 {
        let folder = tempfile::tempdir().unwrap();
        let output = command(folder.path())
            .args(["record", "--exact", "--no-symbolize", "--interval", "1ms"])
            .args(["-o", "d.%p.%n.pb.gz", "--"])
            .arg(&binaries[0])
            .arg("6")
            .env("HEAPPROF_TEST_EXPECT", folder.path().join("expect"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        let mut reasons = BTreeMap::<String, usize>::new();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            assert!(!name.ends_with(".tmp"), "round {round}: {name}");
            if name.ends_with(".pb.gz") {
                *reasons.entry(read_dump(&path).reason).or_default() += 1;
            }
        }
        assert_eq!(reasons.get("exec"), Some(&6), "round {round}: {reasons:?}");
        assert_eq!(reasons.get("exit"), Some(&1), "round {round}: {reasons:?}");
    }
}

/// When all other threads have ended, the process ends, even if the timer thread rarely checks for
/// it.
#[test]
fn the_clock_keeps_no_program_alive() {
    let Some(binaries) = build("lifecycle_ends.c") else {
        return;
    };
    for interval in ["30ms", "1s"] {
        let folder = tempfile::tempdir().unwrap();
        let mut recorded = command(folder.path());
        recorded
            .args(["record", "--exact", "--interval", interval])
            .args(["-o", "d.%p.%n.pb.gz", "--"])
            .arg(&binaries[0])
            .arg("main-leaves-first");
        let run = heapprof_tests::watched::run(recorded, folder.path(), HANG_TIMEOUT);
        let run = run.unwrap_or_else(|why| panic!("{interval}: {why}"));
        assert_eq!(run.code, 0, "{interval}: {}", run.err);
    }
}

/// A process with a thread of ours could not enter a new user namespace, and libc ended a process
/// that gave up its rights.
#[test]
fn the_clock_gives_way() {
    if !needs::namespaces(&["-U"]) {
        return;
    }
    let unshare = ["unshare", "-U", "id", "-u"];
    let bare = std::process::Command::new(unshare[0])
        .args(&unshare[1..])
        .output()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path())
        .args(["record", "--interval", "10s", "--"])
        .args(unshare)
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(0), bare.stdout),
        "{err}"
    );
}

/// A program may close every descriptor that it does not know, and open its own files with the same
/// numbers.
#[test]
fn dumps_on_an_interval_have_files_of_their_own() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
static void *volatile kept;
static unsigned r = 1;
static void deeper(int n);
__attribute__((noipa)) static void one(int n) { deeper(n); }
__attribute__((noipa)) static void two(int n) { deeper(n); __asm__ volatile(""); }
__attribute__((noipa)) static void deeper(int n) {
    r = r * 1103515245 + 12345;
    if (n == 0) kept = malloc(16);
    else (r >> 30 & 1 ? one : two)(n - 1);
}
int main(void) {
    for (int i = 0; i < 60000; i++) deeper(30);
    int wrong = 0;
    /* Until there are some dumps. */
    for (; access("d.0010.pb.gz", F_OK) != 0; usleep(3000)) {
        for (int i = 3; i < 20; i++) close(i);
        int fd = open("own", O_RDWR | O_CREAT | O_TRUNC, 0644);
        struct stat now;
        if (fd != 3 || write(fd, "DATA", 4) != 4) wrong++;
        usleep(20000);
        if (fstat(fd, &now) != 0 || now.st_size != 4) wrong++;
    }
    printf("%d\n", wrong);
    return 0;
}
"#;
    let built = built::build(source, "gcc -O1");
    let folder = tempfile::tempdir().unwrap();
    let output = command(folder.path())
        .args(["record", "--exact", "--no-symbolize", "--interval", "50ms"])
        .args(["-o", "d.%n.pb.gz", "--"])
        .arg(&built.program)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!(out, "0\n", "{err}");
    assert!(!err.contains("could not be written"), "{err}");
}

/// A program that has reached its limit of open files still leaves a complete profile.
#[test]
fn at_the_limit_of_open_files() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
static void *volatile kept;
__attribute__((noinline)) static void leak(void) { kept = malloc(1000); __asm__ volatile(""); }
int main(int argc, char **argv) {
    struct rlimit limit = {256, 256};
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 100; i++) leak();
    int last = 0, file;
    while ((file = open("/dev/null", O_RDONLY)) >= 0) last = file;
    for (int i = 0; i < atoi(argv[1]); i++) close(last - i);
    return 0;
}
"#;
    let built = built::build(source, "gcc -O1 -g");
    let folder = built.folder.path();
    for left in ["0", "1", "2", "3", "4"] {
        let record = ["record", "--exact", "-o", "p.pb.gz", "./program", left];
        let recorded = run(folder, &record);
        assert_eq!(recorded.code, 0, "{}", recorded.err);
        let top = run(folder, &["top", "-f", "csv", "p.pb.gz"]);
        let row = "100000,100000,leak,";
        assert!(top.out.contains(row), "{left}: {}{}", top.out, recorded.err);
        std::fs::remove_file(folder.join("p.pb.gz")).unwrap();
    }
}

/// A program that prints its largest memory. 1,000 blocks need few tables, 200,000 need many.
const HOLDS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(int argc, char **argv) {
    for (int i = atoi(argv[1]); i > 0; i--)
        if (!memset(malloc(64 + i % 64), 1, 64)) return 1;
    char line[256];
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status))
        if (!strncmp(line, "VmHWM:", 6)) printf("%d", atoi(line + 6));
    return 0;
}
"#;

/// A program of 1 MiB has up to 4 MiB of collector tables beside it, mostly because of large pages.
/// These must not be counted as the program's memory.
#[test]
fn of_the_rss_what_is_the_collector_s_is_said_to_be() {
    if !have(&["gcc"]) {
        return;
    }
    let built = built::build(HOLDS, "gcc -O1");
    for blocks in ["1000", "200000"] {
        let bare: u64 = built.run(&format!("./program {blocks}")).parse().unwrap();
        for mode in ["--exact", "--period=64KiB"] {
            let mut command = command(&built.path(""));
            command.args(["record", "--no-symbolize", mode, "-o", "a.pb.gz", "--"]);
            let recorded = command.args(["./program", blocks]).output().unwrap();
            assert!(recorded.status.success(), "{recorded:?}");
            let profile = read(&built.path("a.pb.gz"));
            let comments: Vec<&str> = profile
                .comment
                .iter()
                .map(|&text| profile.text(text))
                .collect();
            let bytes = |key: &str| -> u64 {
                let mut found = comments.iter().filter_map(|text| text.strip_prefix(key));
                let text = found.next().and_then(|text| text.strip_suffix(" bytes"));
                text.unwrap().parse().unwrap()
            };
            let others = (bytes("rss: ") - bytes("own tables: ")) >> 10;
            // The collector's code is a mapped file that all recorded programs share. The kernel
            // loads 1.4 to 1.9 MiB of it, because it reads more than the touched pages, and some of
            // libc, too.
            let allowed = bare + 2304;
            assert!(
                others <= allowed,
                "{blocks} {mode}: {others} KiB, {bare} bare"
            );
            assert!(
                others + 256 >= bare,
                "{blocks} {mode}: {others} KiB, {bare} bare"
            );
        }
    }
}
