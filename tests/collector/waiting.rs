//! Children whose books wait in private memory until they have held something: whatever they do
//! then, they leave what they would have left.

use std::path::Path;

use heapprof_tests::built::{build, have};
use heapprof_tests::fixtures::row_of;
use heapprof_tests::harness::{Run, is_root, run};

/// Holds a little, does what the letters of its argument say, holds much, gives some back, and kills
/// itself.
const CHILD: &str = r#"
    #define _GNU_SOURCE
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <threads.h>
    #include <unistd.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    static void *volatile kept[4000];
    __attribute__((noinline)) void *early(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    __attribute__((noinline)) void *late(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    static void *hold(void *from) {
        for (int i = 0; i < 1000; i++) kept[(size_t)from + i] = late(100);
        return 0;
    }
    static int hold_for_c11(void *from) { hold(from); return 0; }
    int main(int argc, char **argv) {
        pthread_t thread;
        thrd_t other;
        for (int i = 0; i < 100; i++) kept[i] = early(100);
        for (const char *c = argv[1]; *c; c++) {
            // The child of a fork goes on.
            if (*c == 'f' && fork()) { wait(0); return 0; }
            if (*c == 'c') close_range(3, ~0u, 0);
            if (*c == 'r' && chroot("/proc/self/fdinfo")) return 77;
            if (*c == 't') { pthread_create(&thread, 0, hold, (void *)2000); pthread_join(thread, 0); }
            if (*c == '1') { thrd_create(&other, hold_for_c11, (void *)3000); thrd_join(other, 0); }
            if (*c == 'e') return 0;
            if (*c == 'k') raise(SIGKILL);
        }
        hold((void *)1000);
        for (int i = 0; i < 50; i++) free(kept[i]);
        raise(SIGKILL);
    }
"#;

/// Records a shell that calls the program.
fn recorded(folder: &Path, options: &[&str], program: &Path, does: &str) -> Run {
    let script = "\"$0\" \"$1\"; exit 3";
    let program = program.to_str().unwrap();
    let words = ["--", "sh", "-c", script, program, does];
    let all = [&["record", "-o", "a.pb.gz"], options, &words].concat();
    let found = run(folder, &all);
    assert_eq!(found.code, 3, "{}", found.err);
    found
}

/// What is known of a child that is killed after it has held much: early and late bytes in use.
#[test]
fn a_killed_child_leaves_what_it_held_before_and_after() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    for (does, late) in [
        ("-", 100_000),
        ("f", 100_000),
        ("ff", 100_000),
        ("c", 100_000),
        ("t", 200_000),
        ("ft", 200_000),
        ("1", 200_000),
        ("f1t", 300_000),
        ("r", 100_000),
        ("fr", 100_000),
    ] {
        if does.contains('r') && !is_root() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let found = recorded(
            folder,
            &["--exact", "--no-symbolize"],
            &built.path("program"),
            does,
        );
        let children = std::fs::read_dir(folder.join("a.children"));
        let children: Vec<_> = children.into_iter().flatten().flatten().collect();
        let [child] = &children[..] else {
            panic!("{does}: {} profiles: {}", children.len(), found.err);
        };
        let child = child.path();
        let named = ["symbolize", child.to_str().unwrap(), "-o", "named.pb.gz"];
        assert_eq!(run(folder, &named).code, 0, "{does}: {}", found.err);
        let top = run(
            folder,
            &[
                "top",
                "-n",
                "0",
                "-f",
                "json",
                "-t",
                "inuse_space",
                "named.pb.gz",
            ],
        )
        .out;
        assert_eq!(row_of(&top, "early"), Some([5_000; 2]), "{does}: {top}");
        assert_eq!(row_of(&top, "late"), Some([late; 2]), "{does}: {top}");
        assert!(
            found.err.contains("is of the moment at which"),
            "{does}: {}",
            found.err
        );
    }
}

/// What holds little leaves nothing, however it ends, and `--keep-small` keeps what it held.
#[test]
fn a_small_child_leaves_nothing() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    for does in ["e", "k", "fe", "fk"] {
        for options in [&["--exact"][..], &["--period=1KiB"]] {
            let folder = tempfile::tempdir().unwrap();
            let found = recorded(folder.path(), options, &built.path("program"), does);
            let left = folder.path().join("a.children").exists();
            assert!(!left, "{does} {options:?}: {}", found.err);
        }
        let folder = tempfile::tempdir().unwrap();
        let options = ["--exact", "--keep-small"];
        let found = recorded(folder.path(), &options, &built.path("program"), does);
        let left = std::fs::read_dir(folder.path().join("a.children"));
        let expected = 1 + usize::from(does.contains('f'));
        assert!(left.unwrap().count() >= expected, "{does}: {}", found.err);
    }
}
