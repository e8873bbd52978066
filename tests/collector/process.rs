//! Compares `proc` with the kernel's own sums.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::{heapprof, is_root, ok, run};
use heapprof_tests::waits::{in_state, wait_for};
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
static volatile int waiting;
static void *wait_here(void *p) {
    char *own = malloc(100000);
    memset(own, 1, 100000);
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
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
    while (waiting < 3) usleep(1000);
    write(1, "stops\n", 6);
    raise(SIGSTOP);
    more = malloc(4 << 20);
    memset(more, mapped[0], 4 << 20);
    write(1, "stops\n", 6);
    raise(SIGSTOP);
    return more[1] == both[1];
}
"#;

/// A program that runs during a test, and is killed at its end.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    _built: Built,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Starts the program, and waits until it has stopped itself.
    fn stopped() -> Option<Self> {
        if !have(&["gcc"]) {
            return None;
        }
        let built = build(KINDS, "gcc -O1 -pthread");
        let mut program = Command::new(&built.program);
        let mut child = program.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self {
            child,
            output,
            _built: built,
        };
        running.wait();
        Some(running)
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn wait(&mut self) {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert_eq!(line, "stops\n");
        in_state(self.pid(), "T");
    }

    fn go_on(&mut self) {
        let pid = self.pid().to_string();
        assert!(
            Command::new("kill")
                .args(["-CONT", &pid])
                .status()
                .unwrap()
                .success()
        );
        self.wait();
    }
}

pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

pub(crate) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_else(|| panic!("{value}"))
}

/// Returns the sum of some lines of `smaps_rollup` in bytes.
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
    // Other processes with the same libraries begin and end meanwhile. So the shared pages change,
    // but not the number of pages.
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
            let rounding = number(&found["rounding"][field]);
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
    // Each word of the report is explained.
    let text = ok(&["proc", &format!("pid:{pid}")]);
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

/// The variables of the library that begin as zeros have no file. Memory of the program that lies
/// behind them is not taken for heapprof's.
#[test]
fn the_kernel_joins_no_memory_to_the_library_s() {
    let place = tempfile::tempdir().unwrap();
    let mut record = Command::new(heapprof());
    record.args(["record", "-q", "--", "cat", "/proc/self/smaps"]);
    let out = record.current_dir(place.path()).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let is_head = |line: &&str| line.split(' ').next().is_some_and(|one| one.contains('-'));
    let heads: Vec<&str> = text.lines().filter(is_head).collect();
    let last = heads
        .iter()
        .rposition(|head| head.ends_with("/libheapprof.so"));
    let last = last.unwrap_or_else(|| panic!("{text}"));
    let behind = text.split_once(heads[last + 1]).unwrap().1;
    let flags = behind.lines().find(|line| line.starts_with("VmFlags:"));
    assert!(flags.unwrap().split(' ').any(|flag| flag == "rr"), "{text}");
}

#[test]
fn the_difference_of_two_moments_adds_up() {
    let Some(mut program) = Running::stopped() else {
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

/// A user who may not read a process's mappings gets a message and the available figures.
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
    assert!(text.contains("this user may not read the parts"), "{text}");
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

/// Copies the binary to a place where other users can run it.
fn reachable() -> PathBuf {
    let copy = std::env::temp_dir().join(format!("heapprof-{}", std::process::id()));
    copy_program(heapprof(), &copy);
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
        (&["proc", ""], "does not name a process"),
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
            "not a known allocator",
        ),
    ] {
        let found = run(here, words);
        assert_eq!(found.code, 2, "{words:?}");
        assert!(found.err.contains(why), "{words:?}: {}", found.err);
    }
}

/// Processes without memory to show are reported as existing, and a thread is not a process.
#[test]
fn zombies_and_threads_are_told() {
    let mut shell = Command::new("sh")
        .args(["-c", "true & exec sleep 3600"])
        .spawn()
        .unwrap();
    let children = format!("/proc/{0}/task/{0}/children", shell.id());
    let zombie = wait_for("a zombie", || {
        let found = std::fs::read_to_string(&children).unwrap();
        let pid = found.trim().to_string();
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.contains(") Z ").then_some(pid)
    });
    let found = ok(&["proc", &zombie, "-b"]);
    assert!(found.contains("(zombie)"), "{found}");
    shell.kill().unwrap();
    shell.wait().unwrap();
    let Some(program) = Running::stopped() else {
        return;
    };
    let threads = std::fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap();
    let names = threads.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let thread = names
        .max_by_key(|name| name.parse::<u32>().unwrap())
        .unwrap();
    let found = run(Path::new("/"), &["proc", &thread]);
    let said = format!("is a thread of process {}", program.pid());
    assert!(
        found.code == 2 && found.err.contains(&said),
        "{}",
        found.err
    );
}
