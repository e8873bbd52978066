//! Compares `watch` with what programs print about themselves: marks, children, limits.

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{command, heapprof, ok, run};
use serde_json::Value;

use crate::process::{json, number};

/// A program that grows, forks, executes itself under another name, and marks its steps. After each
/// step it waits until its parent, the watch, has sampled it several times, which the parent's
/// count of read calls shows.
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
static pid_t watch;
static long reads(void) {
    char name[100], text[1000] = "";
    snprintf(name, sizeof name, "/proc/%d/io", watch);
    int file = open(name, O_RDONLY);
    read(file, text, sizeof text - 1);
    close(file);
    char *at = strstr(text, "syscr: ");
    if (!at) abort();
    return atol(at + 7);
}
static void looked_at(void) {
    for (long until = reads() + 100; reads() < until;) usleep(10000);
}
int main(int argc, char **argv) {
    static char *kept[8];
    watch = argc > 1 ? atoi(argv[1]) : getppid();
    if (argc > 1) {
        looked_at();
        return 0;
    }
    step("start");
    step("begun");
    for (int i = 0; i < 3; i++) {
        kept[i] = malloc(3 << 20);
        memset(kept[i], 1, 3 << 20);
        step("grown");
        looked_at();
    }
    pid_t child = fork();
    if (!child) {
        char number[20];
        looked_at();
        snprintf(number, sizeof number, "%d", watch);
        execl("late", "late", number, (char *)0);
        _exit(1);
    }
    waitpid(child, 0, 0);
    return 5;
}
"#;

/// Runs the program under a watch. Returns the report and the program's output.
fn watched(folder: &Path, options: &[&str], with_library: bool) -> Option<(Value, String)> {
    if !have(&["gcc"]) {
        return None;
    }
    let built = build(STEPS, "gcc -O1 -Wl,--no-as-needed -ldl");
    copy_program(&built.program, &folder.join("late"));
    let said = folder.join("said");
    let library = ok(&["preload-path"]);
    // Only the program has the library, and its output goes to a file.
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

/// Returns the marks of a report in the form that the program prints: a name and its pages.
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

/// Returns the lines of a program that printed its `statm`, without the fields that are always 0.
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
    // The first call loads pages of the library.
    assert_eq!(marks(&report)[1..], printed(&said)[1..]);
    assert_eq!(printed(&said).len(), 5);
    let events = report["events"].as_array().unwrap();
    let kinds: Vec<&str> = events
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .filter(|kind| !["mark", "began"].contains(kind))
        .collect();
    // sh and env become the program immediately. Only changes that a sample saw in between are
    // events.
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
    let child = processes.iter().find(|one| one["name"] == "late").unwrap();
    assert_eq!(child["parent"], main["pid"]);
    // Each sample has a row for each process, and the sum of a sample is that of its rows.
    let rows: i64 = processes.iter().map(|one| number(&one["looks"])).sum();
    let sums = report["sums"].as_array().unwrap();
    let counted: i64 = sums.iter().map(|sum| number(&sum["processes"])).sum();
    assert_eq!(rows, counted);
    // The database has the same rows, for SQL.
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
    // Without the library, the program has no marks, but nothing else differs.
    assert!(marks(&report).is_empty());
}

/// A shell script and a Perl program mark their steps; neither has heapprof's library.
#[test]
fn scripts_set_marks() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let script = format!(
        "{0} mark one && {0} mark --pid $$ 'two words' && ! {0} mark --pid 1 no && \
         sh -c '{0} mark child; true' && exit 4",
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
    assert_eq!(marks.len(), 3, "{report}");
    assert!(marks[2].starts_with("child "), "{marks:?}");
    let processes = report["processes"].as_array().unwrap().iter();
    // A shell's fork is a process named `sh`, too, until it executes its command.
    let shells = processes.filter(|one| one["name"] == "sh");
    assert!(shells.count() >= 2, "{report}");
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
    // Opening a file between the two readings may take a page.
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

/// A program that keeps memory until it is ended.
const HOLDER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *kept = malloc(50 << 20);
    memset(kept, 1, 50 << 20);
    puts("ready");
    fflush(stdout);
    return getchar() == 'x' ? kept[7] - 1 : 9;
}
"#;

/// A mark of a shell script counts everything that the script runs, not only its shell.
#[test]
fn a_mark_of_a_script_is_of_all_that_it_runs() {
    if !have(&["gcc", "bash"]) {
        return;
    }
    let built = build(HOLDER, "gcc -O1");
    let here = built.folder.path();
    let script = format!(
        "coproc ./program; read -r line <&${{COPROC[0]}}; {0} mark held; \
         {0} mark --pid $$ shell; echo x >&${{COPROC[1]}}; wait; {0} mark over",
        heapprof().display()
    );
    let found = command(here)
        .args(["watch", "-f", "json", "--", "bash", "-c", &script])
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&found.stderr).into_owned();
    assert_eq!(found.status.code(), Some(0), "{err}");
    let report = json(&String::from_utf8_lossy(&found.stdout));
    let marks: Vec<(&str, i64, bool)> = report["events"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|event| event["kind"] == "mark")
        .map(|event| {
            let rss = number(&event["figures"]["rss"]) >> 20;
            let text = event["text"].as_str().unwrap();
            (text, rss, event["process"].is_null())
        })
        .collect();
    let [held, shell, over] = marks[..] else {
        panic!("{report}");
    };
    assert!(
        held.0 == "held" && (50..65).contains(&held.1) && held.2,
        "{marks:?}"
    );
    assert!(shell.0 == "shell" && shell.1 < 20 && !shell.2, "{marks:?}");
    assert!(over.0 == "over" && over.1 < 20 && over.2, "{marks:?}");
}

/// Returns the folders that a perl needs to find the module.
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
