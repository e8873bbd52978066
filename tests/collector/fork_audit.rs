//! `fork-audit`: its figures equal the kernel's, a written page is charged to the function that
//! allocated it, loaded files are those that the children report, and no child is missed.

mod loads;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use heapprof_fork::{ForkBaseline, audit_child};
use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, command, run};
use heapprof_tests::waits::in_state;
use serde_json::Value;

/// Runs a program under an audit, and returns the outputs of both.
fn audited(folder: &Path, words: &[&str]) -> (Run, Value) {
    audited_with(command(folder), &[], words)
}

/// Runs a program under an audit with more options. `command` has the environment.
fn audited_with(mut command: Command, more: &[&str], words: &[&str]) -> (Run, Value) {
    let options = ["fork-audit", "-o", "audit", "-f", "json"];
    let all = command.args(options).args(more).arg("--").args(words);
    let done = Run::from(all.output().unwrap());
    // The program's output comes before the report.
    let begin = begin(&done);
    let report = serde_json::from_str(&done.out[begin..]).unwrap();
    let said = Run {
        out: done.out[..begin].to_string(),
        ..done
    };
    (said, report)
}

/// Returns the position of the report in the output: it is the last line.
fn begin(done: &Run) -> usize {
    let text = done.out.trim_end();
    let begin = text.rfind('\n').map_or(0, |at| at + 1);
    assert!(text[begin..].starts_with('{'), "{}{}", done.out, done.err);
    begin
}

fn rows<'r>(report: &'r Value, table: &str) -> &'r Vec<Value> {
    report[table].as_array().unwrap()
}

fn number(row: &Value, name: &str) -> i64 {
    row[name]
        .as_i64()
        .unwrap_or_else(|| panic!("{name} of {row}"))
}

/// Returns the bytes of a kind that `unshared` has for a function.
fn unshared(report: &Value, function: &str, kind: &str) -> i64 {
    let rows = rows(report, "unshared").iter();
    let mine = rows.filter(|row| row["function"] == function && row["kind"] == kind);
    mine.map(|row| number(row, "bytes")).sum()
}

/// Checks laws that hold for each report: the parts add up to the total.
fn check(report: &Value) {
    let kinds = rows(report, "kinds").iter().map(|row| number(row, "bytes"));
    let children = rows(report, "children").iter();
    let children: i64 = children.map(|row| number(row, "unshared_space")).sum();
    assert_eq!(kinds.sum::<i64>(), children, "{report}");
    let shown = rows(report, "unshared")
        .iter()
        .map(|row| number(row, "bytes"));
    let rest = number(&report["other"], "bytes");
    assert_eq!(shown.sum::<i64>() + rest, children);
    for child in rows(report, "children") {
        let of = |name| number(child, name);
        let parts = [
            of("private_dirty"),
            of("private_clean"),
            of("shared_dirty"),
            of("shared_clean"),
        ];
        assert_eq!(parts.iter().sum::<i64>(), of("rss"), "{child}");
        assert!(of("looked_micros") <= of("age_micros"), "{child}");
    }
}

/// A program with 64 pages, of which a child writes to ten.
const TEN: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static char *pages, *others;
__attribute__((noinline)) char *sixty_four(void) {
    void *at = 0;
    if (posix_memalign(&at, 4096, 64 * 4096)) abort();
    return memset(at, 1, 64 * 4096);
}
__attribute__((noinline)) char *untouched(void) { return memset(malloc(500000), 1, 500000); }
__attribute__((noinline)) void write_to_ten(void) {
    for (int i = 0; i < 10; i++) pages[i * 6 * 4096 + 77] = 2;
}
__attribute__((noinline)) char *made_by_the_child(void) {
    return memset(malloc(300000), 1, 300000);
}
int main(void) {
    pages = sixty_four();
    others = untouched();
    pid_t child = fork();
    if (child == 0) {
        write_to_ten();
        char *volatile own = made_by_the_child();
        exit(own[0] + 2);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) + 4;
}
"#;

#[test]
fn ten_pages_are_ten_pages() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(TEN, "gcc -g -O1");
    let folder = built.folder.path();
    let (done, report) = audited(folder, &["./program"]);
    assert_eq!(done.code, 7, "{}", done.err);
    check(&report);
    assert_eq!(
        unshared(&report, "sixty_four", "data"),
        10 * 4096,
        "{report}"
    );
    assert_eq!(unshared(&report, "untouched", "data"), 0, "{report}");
    let [child] = rows(&report, "children").as_slice() else {
        panic!("{report}");
    };
    assert_eq!(child["ending"], "ended");
    assert_eq!(number(child, "generation"), 1);
    assert!(number(child, "new_space") >= 300_000, "{child}");
    // Rules of --fail-if use the same figures.
    for (rule, code) in [
        ("unshared > 40KiB", 1),
        ("unshared > 100MiB", 0),
        ("loaded > 0", 0),
        ("nonsense > 1", 2),
    ] {
        let found = run(folder, &["fork-audit", "audit", "--fail-if", rule]);
        assert_eq!(found.code, code, "{rule}: {}{}", found.out, found.err);
    }
    // The text form and the tables have the same figures.
    let text = run(folder, &["fork-audit", "audit", "-n", "0"]).out;
    assert!(text.contains("40KiB"), "{text}");
    let sql = run(folder, &["fork-audit", "audit", "--show-sql"]).out;
    assert!(sql.contains("FROM fork_child"), "{sql}");
    let top = json(folder, &["fork-audit", "audit", "-f", "json"]);
    assert_eq!(top["children"], report["children"]);
}

/// A program that obeys its input: `f` forks, and a number makes the child write to that many
/// pages.
const TOLD: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    char *pages = 0, line[32];
    if (posix_memalign((void **)&pages, 4096, 1000 * 4096)) return 1;
    memset(pages, 1, 1000 * 4096);
    pid_t child = fork();
    if (child) { waitpid(child, 0, 0); return 0; }
    printf("%d %d\n", getpid(), getppid());
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int count = atoi(line);
        for (int i = 0; i < count; i++) pages[i * 4096] ^= 3;
        printf("done\n");
        fflush(stdout);
    }
    return 0;
}
"#;

struct Told {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Told {
    fn start(built: &Built) -> Self {
        let mut all = command(built.folder.path());
        let words = ["record", "--fork-audit", "-o", "audit/", "--", "./program"];
        let mut child = all
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim().to_string()
    }

    fn tell(&mut self, text: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{text}").unwrap();
        assert_eq!(self.line(), "done");
    }
}

/// Reads the kernel's figures of a process: private dirty bytes, and the addresses of pages that
/// belong to no file, first those that other processes share, then those that the process has
/// alone.
fn brute_force(pid: u32) -> (i64, [Vec<u64>; 2]) {
    use std::os::unix::fs::FileExt;
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let dirty = rollup
        .lines()
        .find_map(|line| line.strip_prefix("Private_Dirty:"));
    let dirty = dirty
        .unwrap()
        .trim()
        .trim_end_matches(" kB")
        .parse::<i64>()
        .unwrap()
        * 1024;
    let map = std::fs::File::open(format!("/proc/{pid}/pagemap")).unwrap();
    let mut pages = [Vec::new(), Vec::new()];
    for line in std::fs::read_to_string(format!("/proc/{pid}/maps"))
        .unwrap()
        .lines()
    {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        for at in (hex(start)..hex(end)).step_by(4096) {
            let mut word = [0; 8];
            if !words[1].contains('p') || map.read_exact_at(&mut word, at / 4096 * 8).is_err() {
                continue;
            }
            let word = u64::from_ne_bytes(word);
            let is = |bit: u32| word >> bit & 1 == 1;
            if (is(63) || is(62)) && !is(61) {
                pages[usize::from(is(63) && is(56))].push(at);
            }
        }
    }
    (dirty, pages)
}

/// During the same stop, the sums equal those of smaps_rollup, and the pages equal those of
/// pagemap.
#[test]
fn the_figures_are_the_kernels() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(TOLD, "gcc -O1");
    let mut reported = Told::start(&built);
    let line = reported.line();
    let (pid, parent) = line.split_once(' ').unwrap();
    let (pid, parent): (u32, u32) = (pid.parse().unwrap(), parent.parse().unwrap());
    let stop = |how: &str| {
        let words = ["-s", how, &pid.to_string()];
        assert!(Command::new("kill").args(words).status().unwrap().success());
        in_state(pid, if how == "STOP" { "T" } else { "RSD" });
    };
    stop("STOP");
    let forked = ForkBaseline::from_pid(pid).unwrap();
    let before: Vec<u64> = brute_force(pid).1.concat();
    stop("CONT");
    let mut last = 0;
    for count in [0, 10, 64, 500] {
        reported.tell(&count.to_string());
        stop("STOP");
        let seen = audit_child(pid, parent, &forked, 1).unwrap();
        let (dirty, [shared, alone]) = brute_force(pid);
        stop("CONT");
        let figures = seen.figures;
        assert_eq!(figures.private_dirty, dirty);
        // Pages of heapprof itself are counted separately.
        let was_there = |pages: &[u64]| pages.iter().filter(|at| before.contains(at)).count();
        let all = 4096 * (shared.len() + alone.len()) as i64;
        let counted = figures.new + figures.shared + figures.unshared;
        assert!(
            counted <= all && counted + figures.own >= all,
            "{figures:?}, {all}"
        );
        assert!(
            figures.unshared <= 4096 * was_there(&alone) as i64,
            "{figures:?}"
        );
        let ours = figures.own_private + figures.unshared + figures.new;
        assert!(ours >= 4096 * alone.len() as i64, "{figures:?}");
        assert!(figures.unshared >= 4096 * count);
        // The figure for the pages of the program itself is exact to the page.
        let more = figures.unshared - last;
        let expected = 4096
            * (count - [0, 0, 10, 64][[0, 10, 64, 500].iter().position(|&c| c == count).unwrap()]);
        assert!(
            (expected..=expected + 16 * 4096).contains(&more) || count == 0,
            "{more} of {expected}"
        );
        last = figures.unshared;
    }
    drop(reported.child.stdin.take());
    assert!(reported.child.wait().unwrap().success());
}

/// A worker that is ended by a signal, and then writes to all its memory, as interpreters do when
/// they clean up.
const STOPPED: &str = r#"
$| = 1;
my @texts = map { "text $_ " x 20 } 1 .. 20_000;
my $child = fork;
if ($child == 0) {
    $SIG{TERM} = sub { substr($_, 0, 1) = 'T' for @texts; select undef, undef, undef, 1.5; exit 3 };
    print "ready\n";
    sleep 1 while 1;
}
$SIG{TERM} = sub { kill TERM => $child };
1 while waitpid($child, 0) != $child;
print "ended by $?\n";
"#;

/// Pages that an interpreter writes because it was signalled to end are not charged to the worker.
#[test]
fn a_signal_waits_for_a_look() {
    if !have(&["perl"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut all = command(folder.path());
    all.args(["fork-audit", "-o", "audit", "-f", "json", "--"]);
    let mut recorder = all
        .args(["perl", "-e", STOPPED])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(recorder.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let words = ["-s", "TERM", &recorder.id().to_string()];
    assert!(Command::new("kill").args(words).status().unwrap().success());
    assert_eq!(lines.next().unwrap().unwrap(), "ended by 768");
    let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    assert!(recorder.wait().unwrap().success());
    let [child] = &rows(&report, "children")[..] else {
        panic!("{report}");
    };
    // The texts have 5 MB, and the worker lived on for longer than the interval between two
    // samples.
    assert!(number(child, "age_micros") > 1_500_000, "{child}");
    assert!(number(child, "unshared_space") < 2_000_000, "{child}");
    check(&report);
}

/// A program that forks in many ways: 500 children, some of which fork, exec, are killed or leave,
/// and one child that outlives all others after it has reported that it runs. The program prints
/// the number of processes that it made.
const MANY: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 500, made = 0, good = 0, killed = 0, all[2], last[2];
    char word;
    /* Each process of these has an end of the first pipe until it ends. */
    if (pipe(all) || pipe(last)) return 1;
    char *volatile kept = memset(malloc(100000), 1, 100000);
    for (int i = 0; i < count; i++) {
        int how = i % 10;
        /* Its child forks once more, so there are two. */
        made += how == 1 || how == 2 ? 2 : 1;
        pid_t child = fork();
        if (child == 0) {
            kept[i % 100000] = 2;
            if (how == 1) {
                pid_t inner = fork();
                if (inner == 0) exit(0);
                waitpid(inner, 0, 0);
            }
            if (how == 2) {
                /* A daemon: its parent does not wait. */
                if (fork() == 0) { setsid(); usleep(1000); _exit(0); }
                _exit(0);
            }
            if (how == 3) { execl("/bin/true", "true", (char *)0); _exit(9); }
            if (how == 4) raise(SIGKILL);
            if (how == 5) _exit(0);
            exit(0);
        }
        if (i % 8 == 7)
            for (int status; waitpid(-1, &status, WNOHANG) > 0; ) {
                good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
                killed += WIFSIGNALED(status);
            }
    }
    for (int status; waitpid(-1, &status, 0) > 0; ) {
        good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        killed += WIFSIGNALED(status);
    }
    close(all[1]);
    if (read(all[0], &word, 1) != 0) return 1;
    if (fork() == 0) {
        if (write(last[1], "", 1) != 1) _exit(1);
        usleep(300000);
        _exit(0);
    }
    if (read(last[0], &word, 1) != 1) return 1;
    made++;
    printf("%d made, %d good, %d killed\n", made, good, killed);
    return 5;
}
"#;

#[test]
fn no_child_is_lost() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(MANY, "gcc -g -O1");
    let folder = built.folder.path();
    let bare = Command::new(folder.join("program"))
        .arg("500")
        .output()
        .unwrap();
    let (done, report) = audited(folder, &["./program", "500"]);
    assert_eq!(
        (done.code, bare.status.code()),
        (5, Some(5)),
        "{}",
        done.err
    );
    assert_eq!(done.out.as_bytes(), bare.stdout, "{}", done.err);
    assert_eq!(done.out, "601 made, 450 good, 50 killed\n");
    check(&report);
    let children = rows(&report, "children");
    assert_eq!(children.len(), 601, "{}", done.err);
    let of = |ending: &str| {
        children
            .iter()
            .filter(|child| child["ending"] == ending)
            .count()
    };
    assert_eq!((of("exec"), of("killed")), (50, 50));
    assert!(of("running") <= 1, "{}", of("running"));
    let inner = children
        .iter()
        .filter(|child| number(child, "generation") == 2);
    assert_eq!(inner.count(), 100);
    let unknown = children.iter().filter(|child| child["lacks"] != "");
    let unknown: Vec<&Value> = unknown
        .filter(|child| child["ending"] == "ended" || child["ending"] == "exec")
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

/// A folder without an audit is reported as such, and a file that can't be read is an error.
#[test]
fn an_empty_report_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let found = run(here, &["fork-audit"]);
    assert_eq!(found.code, 2, "{}", found.err);
    assert!(
        found.err.contains("heapprof fork-audit -- CMD"),
        "{}",
        found.err
    );
    let found = run(here, &["fork-audit", "."]);
    assert_eq!(found.code, 2, "{}", found.err);
    assert!(found.err.contains("there is no profile"), "{}", found.err);
    let done = run(here, &["fork-audit", "-o", "a", "--", "sleep", "0"]);
    assert_eq!(done.code, 0, "{}", done.err);
    // The program's own output is separate, and the next step is suggested.
    assert_eq!(done.out, "");
    for words in [
        "0 forked children",
        "No forked child was audited",
        "heapprof fork-audit a shows this again",
    ] {
        assert!(done.err.contains(words), "{}", done.err);
    }
    // Otherwise the report would add one audit to the other.
    let again = run(here, &["fork-audit", "-o", "a", "--", "sleep", "0"]);
    assert_eq!((again.code, &*again.out), (2, ""), "{}", again.err);
    assert!(
        again.err.contains("already profiles in it"),
        "{}",
        again.err
    );
    let done = run(
        here,
        &["fork-audit", "-o", "b", "--", "/nonexistent/program"],
    );
    assert_eq!(done.code, 127, "{}", done.err);
}
