//! Processes as the kernel sees them: `proc` beside the kernel's own sums, `watch` beside what
//! programs say of themselves.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::harness::{command, heapprof, is_root, ok, run};
use serde_json::Value;

/// A program with memory of several kinds. It stops after each step.
const KINDS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static char *volatile kept[2];
static void *wait_here(void *p) {
    char *own = malloc(100000);
    memset(own, 1, 100000);
    pause();
    return own;
}
int main(int argc, char **argv) {
    pthread_t thread;
    char *heap = malloc(100000), *large = malloc(5 << 20), *more;
    int shared = memfd_create("shared", 0), file = open(argv[0], O_RDONLY);
    ftruncate(shared, 1 << 20);
    char *both = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    char *mapped = mmap(0, 4096, PROT_READ, MAP_PRIVATE, file, 0);
    memset(heap, 1, 100000);
    memset(large, 1, 5 << 20);
    memset(both, 1, 1 << 20);
    kept[0] = heap, kept[1] = large;
    for (int i = 0; i < 3; i++) pthread_create(&thread, 0, wait_here, 0);
    usleep(100000);
    raise(SIGSTOP);
    more = malloc(4 << 20);
    memset(more, mapped[0], 4 << 20);
    raise(SIGSTOP);
    return more[1] == both[1];
}
"#;

/// A program that runs beside a test, and is killed at its end.
struct Running {
    child: Child,
    _built: Built,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts the program, and waits until it has stopped.
    fn stopped() -> Option<Self> {
        if !have(&["gcc"]) {
            return None;
        }
        let built = build(KINDS, "gcc -O1 -pthread");
        let child = Command::new(&built.program).spawn().unwrap();
        let running = Self {
            child,
            _built: built,
        };
        running.wait();
        Some(running)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&self) {
        let until = Instant::now() + Duration::from_secs(20);
        let stat = || std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        while !stat().contains(") T ") {
            assert!(Instant::now() < until, "{}", stat());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn go_on(&self) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args(["-CONT", &pid])
                .status()
                .unwrap()
                .success()
        );
        std::thread::sleep(Duration::from_millis(50));
        self.wait();
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

/// Bytes of a line of `smaps_rollup`.
fn of_kernel(pid: u32, names: &[&str]) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let of = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}:")));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<i64>().ok());
        1024 * kib.unwrap_or(0)
    };
    names.iter().map(|name| of(name)).sum()
}

#[test]
fn the_parts_of_a_process_are_the_kernel_s_sums() {
    let Some(program) = Running::stopped() else {
        return;
    };
    let pid = program.pid().to_string();
    let found = json(&ok(&["proc", &pid, "-f", "json"]));
    assert_eq!(found["as_smaps_rollup"], true);
    // Other processes begin and end meanwhile, and have the same libraries. So which pages are
    // shared changes, and not how many there are.
    for (fields, names, error) in [
        (&["rss"][..], &["Rss"][..], 0),
        (&["pss"], &["Pss"], 512 << 10),
        (
            &["private_clean", "shared_clean"],
            &["Private_Clean", "Shared_Clean"],
            0,
        ),
        (
            &["private_dirty", "shared_dirty"],
            &["Private_Dirty", "Shared_Dirty"],
            0,
        ),
        (&["anonymous"], &["Anonymous"], 0),
        (&["swap"], &["Swap"], 0),
        (
            &["huge"],
            &["AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"],
            0,
        ),
    ] {
        let total: i64 = fields
            .iter()
            .map(|field| number(&found["total"][*field]))
            .sum();
        let kernel = of_kernel(program.pid(), names);
        assert!(
            (total - kernel).abs() <= error,
            "{fields:?}: {total} {kernel}"
        );
    }
    for field in [
        "rss",
        "pss",
        "uss",
        "shared_clean",
        "shared_dirty",
        "swap",
        "huge",
        "size",
    ] {
        let total = number(&found["total"][field]);
        for parts in ["kinds", "mappings"] {
            let rows = found[parts].as_array().unwrap().iter();
            let sum: i64 = rows.map(|row| number(&row[field])).sum();
            let rounding = if field == "pss" {
                number(&found["rounding"])
            } else {
                0
            };
            assert_eq!(sum + rounding, total, "{parts} {field}");
        }
    }
    let kind = |name: &str| {
        let rows = found["kinds"].as_array().unwrap();
        rows.iter()
            .find(|row| row["kind"] == name)
            .unwrap_or_else(|| panic!("{name}: {found}"))
    };
    for (name, least) in [
        ("heap", 100_000),
        ("malloc arenas", 300_000),
        ("anonymous", 5 << 20),
        ("thread stacks", 3 * 4096),
        ("stack", 4096),
        ("program", 4096),
        ("libraries", 100_000),
        ("shared memory", 1 << 20),
    ] {
        let rss = number(&kind(name)["rss"]);
        assert!(rss >= least, "{name}: {rss}");
    }
    // Each word of the report is explained, and a name finds the process as its number does.
    let name = found["name"].as_str().unwrap();
    let text = ok(&["proc", name]);
    for row in found["kinds"].as_array().unwrap() {
        let kind = row["kind"].as_str().unwrap();
        assert_eq!(
            text.matches(&format!("\n{kind}  ")).count(),
            2,
            "{kind}: {text}"
        );
    }
    assert!(
        text.contains("VmHWM") && text.contains("water mark"),
        "{text}"
    );
    assert!(!ok(&["proc", &pid, "--brief"]).contains("water mark"));
    let maps = ok(&["proc", &pid, "--maps", "-n", "2", "-f", "markdown"]);
    assert!(maps.contains("(other: "), "{maps}");
}

#[test]
fn the_difference_of_two_moments_adds_up() {
    let Some(program) = Running::stopped() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let pid = program.pid().to_string();
    let before = run(
        folder.path(),
        &["proc", &pid, "-f", "json", "-o", "before.json"],
    );
    assert_eq!(before.code, 0, "{}", before.err);
    program.go_on();
    let diff = ["proc", &pid, "--diff", "before.json"];
    let found = run(folder.path(), &[&diff[..], &["-f", "json"]].concat());
    let found = json(&found.out);
    let rows = found["rows"].as_array().unwrap();
    let (total, parts) = rows.split_last().unwrap();
    assert_eq!(total["what"], "total");
    for (field, change) in total["change"].as_object().unwrap() {
        let sum: i64 = parts.iter().map(|row| number(&row["change"][field])).sum();
        assert_eq!(sum, number(change), "{field}");
        let [now, before] = [&total["now"][field], &total["before"][field]].map(number);
        assert_eq!(now - before, number(change), "{field}");
    }
    let anonymous = parts.iter().find(|row| row["what"] == "anonymous").unwrap();
    let change = number(&anonymous["change"]["rss"]);
    assert!((4 << 20..5 << 20).contains(&change), "{change}");
    let text = run(folder.path(), &diff).out;
    assert!(
        text.contains("in memory after ") && text.contains("+4"),
        "{text}"
    );
    for (content, why) in [
        ("", "EOF"),
        ("{}", "counters"),
        ("\u{0}\u{1}", "expected value"),
    ] {
        std::fs::write(folder.path().join("before.json"), content).unwrap();
        let refused = run(folder.path(), &diff);
        assert_eq!(refused.code, 2);
        assert!(
            refused.err.contains(why) && refused.err.lines().count() == 1,
            "{}",
            refused.err
        );
    }
}

/// Whoever may not read a process's mappings is told so, and gets what can be had.
#[test]
fn another_user_gets_what_can_be_had() {
    let Some(program) = Running::stopped() else {
        return;
    };
    if !is_root() {
        return;
    }
    let pid = program.pid().to_string();
    let as_nobody = |words: &[&str]| -> Output {
        let mut command = Command::new(reachable());
        command.args(words).current_dir("/").uid(65534).gid(65534);
        command.output().unwrap()
    };
    let found = as_nobody(&["proc", &pid]);
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(found.status.code(), Some(0), "{text}");
    assert!(text.contains("another user's to read"), "{text}");
    assert!(
        text.contains("VmRSS") && !text.contains("(rounding)"),
        "{text}"
    );
    let found = as_nobody(&["proc", "-f", "json"]);
    let list = json(&String::from_utf8_lossy(&found.stdout));
    let rows = list["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"] == program.pid()).unwrap();
    assert!(
        number(&row["rss"]) > 5 << 20 && row["usage"].is_null(),
        "{row}"
    );
}

/// A copy of the binary that other users can run.
fn reachable() -> PathBuf {
    let copy = std::env::temp_dir().join(format!("heapprof-{}", std::process::id()));
    std::fs::copy(heapprof(), &copy).unwrap();
    copy
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let here = Path::new("/");
    for (words, why) in [
        (&["proc", "4194304"][..], "no such process"),
        (
            &["proc", "no-process-has-this-name"],
            "no process has this name",
        ),
        (&["proc", ""], "names no process"),
        (&["watch", "4194304"], "no such process"),
        (&["watch", "1", "--until", "rss > 5"], "--then"),
        (
            &[
                "watch", "--until", "heap > 5", "--then", "true", "--", "true",
            ],
            "names are rss",
        ),
        (
            &["watch", "--until", "rss > 5", "--then", "'", "--", "true"],
            "quote",
        ),
        (&["mark", "--pid", "4194304", "x"], "no such process"),
        (&["mark", ""], "empty"),
        (&["bench", "a 'b"], "quote"),
        (
            &[
                "compare-allocators",
                "--allocators",
                "glibc,nosuch",
                "--",
                "true",
            ],
            "not known",
        ),
    ] {
        let found = run(here, words);
        assert_eq!(found.code, 2, "{words:?}");
        assert!(found.err.contains(why), "{words:?}: {}", found.err);
    }
}

/// A program that grows, forks, executes another one, and marks what it does.
const STEPS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void step(const char *name) {
    void (*mark)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_mark");
    char line[200] = "";
    int file = open("/proc/self/statm", O_RDONLY);
    read(file, line, sizeof line - 1);
    close(file);
    errno = 77;
    if (mark) mark(name);
    if (errno != 77) abort();
    printf("%s %s", name, line);
    fflush(stdout);
}
int main(int argc, char **argv) {
    static char *kept[8];
    step("start");
    step("begun");
    for (int i = 0; i < 3; i++) {
        kept[i] = malloc(3 << 20);
        memset(kept[i], 1, 3 << 20);
        step("grown");
        usleep(150000);
    }
    pid_t child = fork();
    if (!child) {
        usleep(300000);
        execlp("sleep", "sleep", "0.3", (char *)0);
    }
    waitpid(child, 0, 0);
    return 5;
}
"#;

/// Runs the program under a watch. Returns the report, what the program printed, and what was said.
fn watched(folder: &Path, options: &[&str], with_library: bool) -> Option<(Value, String)> {
    if !have(&["gcc"]) {
        return None;
    }
    let built = build(STEPS, "gcc -O1 -Wl,--no-as-needed -ldl");
    let said = folder.join("said");
    let library = ok(&["preload-path"]);
    // The program alone has the library, and its own output.
    let preload = match with_library {
        true => format!("LD_PRELOAD={}", library.trim()),
        false => "A=b".to_string(),
    };
    let script = format!(
        "exec env {preload} '{}' > '{}'",
        built.program.display(),
        said.display()
    );
    let found = command(folder)
        .args(["watch", "--interval", "50ms", "-f", "json"])
        .args(options)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(
        found.status.code(),
        Some(5),
        "{}",
        String::from_utf8_lossy(&found.stderr)
    );
    let report = json(&String::from_utf8_lossy(&found.stdout));
    Some((report, std::fs::read_to_string(said).unwrap()))
}

/// The marks of a report, as what the program has printed of itself: a name and its pages.
fn marks(report: &Value) -> Vec<String> {
    let page = 4096;
    let events = report["events"].as_array().unwrap().iter();
    events
        .filter(|event| event["kind"] == "mark")
        .map(|event| {
            let of = |name: &str| number(&event["figures"][name]) / page;
            format!(
                "{} {} {} {} {} {}",
                event["text"].as_str().unwrap(),
                of("size"),
                of("rss"),
                of("shared"),
                of("code"),
                of("data")
            )
        })
        .collect()
}

/// The lines of a program that printed its `statm`, without the fields that are always 0.
fn printed(said: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        [words[0], words[1], words[2], words[3], words[4], words[6]].join(" ")
    };
    said.lines().map(line).collect()
}

#[test]
fn marks_have_what_the_program_had_and_children_are_followed() {
    let folder = tempfile::tempdir().unwrap();
    let Some((report, said)) = watched(folder.path(), &[], true) else {
        return;
    };
    // The first call brings pages of the library in.
    assert_eq!(marks(&report)[1..], printed(&said)[1..]);
    assert_eq!(printed(&said).len(), 5);
    let events = report["events"].as_array().unwrap();
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .filter(|kind| !["mark", "began"].contains(kind))
        .collect();
    // sh and env become the program at once; only what a look has seen between is an event.
    let kinds: Vec<&str> = kinds
        .into_iter()
        .skip_while(|kind| *kind == "exec")
        .collect();
    assert_eq!(kinds, ["forked", "exec", "ended", "ended"], "{report}");
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 2);
    let main = processes
        .iter()
        .find(|one| one["ending"] == "exit code 5")
        .unwrap();
    assert!(
        number(&main["most"]) > 9 << 20 && number(&main["looks"]) > 5,
        "{main}"
    );
    let child = processes.iter().find(|one| one["name"] == "sleep").unwrap();
    assert_eq!(child["parent"], main["pid"]);
    // Each look is a row for each process, and the sum of a look is that of its rows.
    let rows: i64 = processes.iter().map(|one| number(&one["looks"])).sum();
    let sums = report["sums"].as_array().unwrap();
    let counted: i64 = sums.iter().map(|sum| number(&sum["processes"])).sum();
    assert_eq!(rows, counted);
    // The database has the same, for SQL.
    let asked = run(
        folder.path(),
        &["sql", "-f", "csv", "SELECT count(*) FROM watch_moment"],
    );
    assert_eq!(asked.out, format!("count(*)\n{rows}\n"), "{}", asked.err);
}

#[test]
fn a_command_runs_once_when_the_limit_is_passed() {
    let folder = tempfile::tempdir().unwrap();
    let until = [
        "--until",
        "rss > 7MiB",
        "--then",
        "sh -c 'echo {pid} $0 >> fired' 'a b'",
    ];
    let Some((report, _)) = watched(folder.path(), &until, false) else {
        return;
    };
    let fired = std::fs::read_to_string(folder.path().join("fired")).unwrap();
    let events = report["events"].as_array().unwrap().iter();
    let until: Vec<&Value> = events
        .clone()
        .filter(|event| event["kind"] == "until")
        .collect();
    assert_eq!(until.len(), 1, "{report}");
    let processes = report["processes"].as_array().unwrap();
    let main = processes
        .iter()
        .find(|one| one["process"] == until[0]["process"])
        .unwrap();
    assert_eq!(fired, format!("{} a b\n", main["pid"]));
    let then = events
        .clone()
        .find(|event| event["kind"] == "then")
        .unwrap();
    assert!(
        then["text"].as_str().unwrap().ends_with("exit status: 0"),
        "{then}"
    );
    // Without the library, the program has no marks, and that is all.
    assert!(marks(&report).is_empty());
}

/// A shell script and a Perl program mark what they do; neither has heapprof's library.
#[test]
fn scripts_set_marks() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let script = format!(
        "{0} mark one && {0} mark --pid $$ 'two words' && ! {0} mark --pid 1 no && exit 4",
        heapprof().display()
    );
    let found = command(here)
        .args(["watch", "-f", "json", "--", "sh", "-c", &script])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(found.status.code(), Some(4), "{err}");
    assert!(err.contains("process 1 is not watched"), "{err}");
    let report = json(&String::from_utf8_lossy(&found.stdout));
    let marks = marks(&report);
    assert!(
        marks[0].starts_with("one ") && marks[1].starts_with("two words "),
        "{marks:?}"
    );
    let Some(cache) = crate::perl_module::installed(here) else {
        return;
    };
    let module = module_in(&cache);
    let code = r#"
        sub at { my $name = shift; open my $f, '<', '/proc/self/statm'; my $line = <$f>;
                 Devel::HeapProf::mark($name); print STDERR "$name $line" }
        at('warm'); at('start'); my $x = 'x' x 2_000_000; at('grown'); exit 3"#;
    let mut watch = command(here);
    watch.args(["watch", "-f", "json", "--", "perl"]);
    watch.args(module.iter().map(|folder| format!("-I{folder}")));
    let found = watch
        .args(["-MDevel::HeapProf", "-e", code])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(found.status.code(), Some(3), "{said}");
    let report = json(&String::from_utf8_lossy(&found.stdout));
    let found = self::marks(&report);
    assert_eq!(found.len(), 3, "{said}");
    // Opening a file may take a page between.
    for (found, printed) in found.iter().zip(printed(&said)).skip(1) {
        let pages = |text: &str| -> Vec<i64> {
            text.split(' ')
                .skip(1)
                .map(|word| word.parse().unwrap())
                .collect()
        };
        for (a, b) in pages(found).into_iter().zip(pages(&printed)) {
            assert!((a - b).abs() <= 1, "{found} {printed}");
        }
    }
}

/// The folders that a perl needs to find the module.
fn module_in(cache: &Path) -> Vec<String> {
    let found = Command::new("find")
        .arg(cache)
        .args(["-path", "*/lib/Devel/HeapProf.pm"])
        .output()
        .unwrap();
    let paths = String::from_utf8_lossy(&found.stdout).into_owned();
    let folder = |path: &str| path.trim_end_matches("/Devel/HeapProf.pm").to_string();
    paths.lines().map(folder).collect()
}
