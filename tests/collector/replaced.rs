//! Programs whose file is gone or replaced when their profiles get names: deleted and replaced
//! while they run, in memory only, with odd names, in another mount namespace.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::process::Stdio;

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::fixtures::row_of;
use heapprof_tests::harness::{Run, command, is_root, program_of, run};
use heapprof_tests::needs;

/// A program that keeps 100,000 bytes, and then deletes its own file, or replaces it by another
/// build. With `w` it then waits.
const HOLDER: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
void *kept[200];
#ifdef NEWER
__attribute__((noinline)) void *pad(int n) { return malloc(n + 1); }
#define HOLD newer
#else
#define HOLD holds
#endif
__attribute__((noinline)) void *HOLD(int n) { return malloc(n); }
int main(int argc, char **argv) {
    for (int i = 0; i < 100; i++) kept[i] = HOLD(1000);
    for (const char *c = argc > 1 ? argv[1] : ""; *c; c++) {
        if (*c == 'd' && unlink(argv[0])) return 9;
        if (*c == 'r' && rename("newer", argv[0])) return 9;
        if (*c == 'w') { puts("ready"); fflush(stdout); getchar(); }
    }
    return 0;
}
"#;

fn holder() -> Built {
    let built = build(HOLDER, "gcc -g -O1");
    built.run("gcc -g -O1 -DNEWER source.c -o newer");
    built
}

/// Whether a profile has bytes in use of the function that allocates, and of functions of the newer
/// build.
fn held(here: &Path, profile: &str) -> (bool, bool) {
    let words = [
        "top",
        "-n",
        "0",
        "-t",
        "inuse_space",
        "--format",
        "json",
        profile,
    ];
    let found = run(here, &words);
    assert_eq!(found.code, 0, "{}", found.err);
    let has = |text: &str| found.out.contains(text);
    (
        row_of(&found.out, "holds").is_some_and(|row| row[0] == 100_000),
        has(r#""function":"newer""#) || has(r#""function":"pad""#),
    )
}

#[track_caller]
fn is_named(here: &Path, said: &Run) {
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(held(here, "a.pb.gz"), (true, false), "{}", said.err);
    assert!(!said.err.contains("without names"), "{}", said.err);
}

#[test]
fn a_program_that_is_deleted_or_replaced_while_it_runs_has_its_names() {
    if !have(&["gcc"]) {
        return;
    }
    for what in ["d", "r"] {
        let built = holder();
        let here = built.folder.path();
        for options in [&["--exact"][..], &["--exact", "--follow-children=no"]] {
            copy_program(&here.join("program"), &here.join("p"));
            copy_program(&here.join("newer"), &here.join("saved"));
            let words = [&["record", "-o", "a.pb.gz"], options, &["--", "./p", what]].concat();
            is_named(here, &run(here, &words));
            std::fs::rename(here.join("saved"), here.join("newer")).unwrap();
        }
    }
}

/// A replaced program has names while it runs, too.
#[test]
fn a_replaced_program_is_named_while_it_runs() {
    if !have(&["gcc"]) {
        return;
    }
    let built = holder();
    let here = built.folder.path();
    let mut recorded = command(here);
    recorded.args([
        "record",
        "-q",
        "--exact",
        "-o",
        "r.pb.gz",
        "--",
        "./program",
        "rw",
    ]);
    let pipes = recorded.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut record = pipes.spawn().unwrap();
    let mut line = String::new();
    let mut out = BufReader::new(record.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let of_process = format!("pid:{}", program_of(record.id()));
    assert_eq!(held(here, &of_process), (true, false));
    record.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(record.wait().unwrap().success());
    assert_eq!(held(here, "r.pb.gz"), (true, false));
}

/// A program that runs another program from memory.
const IN_MEMORY: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv, char **environment) {
    static char bytes[1 << 20];
    int from = open(argv[1], O_RDONLY), to = memfd_create("made", MFD_CLOEXEC);
    for (ssize_t n; (n = read(from, bytes, sizeof bytes)) > 0;)
        if (write(to, bytes, n) != n) return 9;
    fexecve(to, argv + 1, environment);
    return 8;
}
"#;

#[test]
fn a_program_in_memory_has_its_names() {
    if !have(&["gcc"]) {
        return;
    }
    let built = holder();
    let here = built.folder.path();
    let starter = build(IN_MEMORY, "gcc -O1");
    let starter = starter.program.to_str().unwrap();
    let words = [
        "record", "--exact", "-o", "a.pb.gz", "--", starter, "program",
    ];
    is_named(here, &run(here, &words));
}

/// The kernel writes some file names in another form, and some names are not UTF-8.
#[test]
fn programs_with_odd_names_have_their_names() {
    if !have(&["gcc"]) {
        return;
    }
    let built = holder();
    let here = built.folder.path();
    for name in [
        &b"p (deleted)"[..],
        b"new\nline",
        b"bad\xff\xfe",
        b"\\012 and \\xff",
        b"%p%n%e",
        b"[heap]",
        b"memfd:x (deleted)",
    ] {
        let name = OsString::from_vec(name.to_vec());
        let path = here.join(&name);
        copy_program(&built.program, &path);
        for symbolizes_later in [false, true] {
            let mut record = command(here);
            record.args(["record", "--exact", "-o", "a.pb.gz"]);
            record.args(symbolizes_later.then_some("--no-symbolize"));
            let said = Run::from(record.arg("--").arg(&path).output().unwrap());
            assert_eq!(said.code, 0, "{name:?}: {}", said.err);
            if symbolizes_later {
                // The process has ended, but the name still leads to its file.
                let said = run(here, &["symbolize", "-o", "b.pb.gz", "a.pb.gz"]);
                assert_eq!(said.code, 0, "{name:?}: {}", said.err);
                std::fs::rename(here.join("b.pb.gz"), here.join("a.pb.gz")).unwrap();
            }
            assert_eq!(
                held(here, "a.pb.gz"),
                (true, false),
                "{name:?} {symbolizes_later}"
            );
        }
        std::fs::remove_file(path).unwrap();
    }
}

/// A program in a file system that only its own mount namespace shows.
#[test]
fn a_program_of_another_mount_namespace_has_its_names() {
    if !have(&["gcc", "mount"]) || !is_root() || !needs::namespaces(&["-m"]) {
        return;
    }
    let built = holder();
    let here = built.folder.path();
    std::fs::create_dir(here.join("mounted")).unwrap();
    let script = "mount -t tmpfs none mounted && cp program mounted/p && exec ./mounted/p";
    let words = [
        "record", "--exact", "-o", "a.pb.gz", "--", "unshare", "-m", "sh", "-c", script,
    ];
    is_named(here, &run(here, &words));
}

/// A library whose functions keep memory. The program loads it and replaces its file immediately.
const LIBRARY: &str = r#"
#include <stdlib.h>
#ifdef NEWER
int newer(int n) { return n + 1; }
#endif
static void *volatile kept[300];
__attribute__((noinline)) static void holds(int i) { kept[i] = malloc(1000); }
void fill(void) { for (int i = 0; i < 300; i++) holds(i); }
"#;
const LOADER: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *library = dlopen("./library.so", RTLD_NOW);
    if (!library) return 9;
    ((void (*)(void))dlsym(library, "fill"))();
    return rename("newer.so", "library.so") ? 8 : 0;
}
"#;

/// A library that could not be opened in time is reported as replaced. No function is named by
/// another build.
#[test]
fn a_library_that_was_replaced_is_said_to_be() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(LOADER, "gcc -O1 -Wl,--no-as-needed -ldl");
    let here = built.folder.path();
    std::fs::write(here.join("library.c"), LIBRARY).unwrap();
    built.run("gcc -O1 -g -fPIC -shared library.c -o library.so");
    built.run("gcc -O1 -g -fPIC -shared -DNEWER library.c -o newer.so");
    let said = run(here, &["record", "--exact", "-o", "a.pb.gz", "./program"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let top = run(here, &["top", "-n", "0", "--format", "json", "a.pb.gz"]).out;
    // Under root, `record` checks every few seconds for replaced files, and may have been in time.
    let is_named = row_of(&top, "holds").is_some_and(|row| row[0] == 300_000);
    let expected = "library.so, which was replaced after the program had loaded it; with a copy of \
                    the old file in DIR, heapprof convert symbolize --debug-dir DIR a.pb.gz adds \
                    the names";
    assert!(is_named || said.err.contains(expected), "{}", said.err);
    assert!(!said.err.contains("there is no such file"), "{}", said.err);
}
