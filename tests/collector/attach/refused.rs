//! Programs that can't be attached to: one line says why, and the program is unchanged.

use std::process::Command;

use heapprof_tests::built::{build, have, is_here};
use heapprof_tests::harness::{command, program_of, root, run};
use heapprof_tests::waits::in_state;

use super::{HOSTILE, Waiting, hostile};

#[test]
fn those_that_can_not_be_attached_to_are_refused_untouched() {
    if !have(&["gcc"]) {
        return;
    }
    let refused = |mut program: Waiting, why: &str| {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
        let said = program.run(&["attach", &program.pid(), "--for", "10ms"]);
        assert_eq!(said.code, 2, "{why}: {}", said.err);
        assert!(said.err.contains(why), "{why}: {}", said.err);
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        let after = std::fs::read_to_string(format!("/proc/{}/maps", program.pid())).unwrap();
        assert_eq!(maps, after, "{why}");
        program.work();
        assert_eq!(program.end().code(), Some(7), "{why}");
    };
    let built = hostile("");
    let path = built.path("program");
    let fixed = hostile("-static");
    refused(Waiting::new(&fixed.path("program"), ""), "statically");
    refused(
        Waiting::new(&path, "killed-by-filter"),
        "system call filter",
    );
    if is_here("musl-gcc") {
        // A C library that nobody knows: the program's loader has another name.
        let other = build(WAITS, "gcc -O1");
        let loader = other.path("other-loader.so");
        std::fs::copy("/lib/ld-musl-x86_64.so.1", &loader).unwrap();
        let option = format!("-Wl,-dynamic-linker,{}", loader.display());
        other.run(&format!("musl-gcc -O1 source.c -o other {option}"));
        refused(
            Waiting::new(&other.path("other"), ""),
            "neither glibc nor musl",
        );
    }
    let mut small = Command::new("sh");
    small
        .args(["-c", "ulimit -f 100; exec \"$0\" x"])
        .arg(&path);
    refused(Waiting::start(small), "RLIMIT_FSIZE");
    for i in 0..40 {
        let tls = root().join("tests/attach/tls.c");
        let line = format!("gcc -shared -fPIC {} -o tls{i}.so", tls.display());
        if i == 0 {
            built.run(&line);
        } else {
            std::fs::copy(built.path("tls0.so"), built.path(&format!("tls{i}.so"))).unwrap();
        }
    }
    let mut full = Waiting::new(&path, "surplus");
    let said = full.run(&["attach", &full.pid(), "--for", "10ms"]);
    assert!(said.err.contains("static TLS"), "{}", said.err);
    full.work();
    assert_eq!(full.end().code(), Some(7));
    // The program is stopped, and continues afterwards.
    let stopped = Waiting::new(&path, "");
    let signal = |name: &str| Command::new("kill").args([name, &stopped.pid()]).status();
    signal("-STOP").unwrap();
    in_state(stopped.pid().parse().unwrap(), "T");
    let said = stopped.run(&["attach", &stopped.pid(), "--for", "10ms"]);
    assert!(said.err.contains("stopped"), "{}", said.err);
    signal("-CONT").unwrap();
    refused_by_number("4194304", "no such process");
    refused_by_number("1x", "1x: no process has this name");
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), &["attach", "4711", "4712", "--for", "10ms"]);
    assert_eq!(said.code, 2);
    let expected = "attach takes one process, but 2 were given: use heapprof attach 4711 for";
    assert!(said.err.contains(expected), "{}", said.err);
    let folder = tempfile::tempdir().unwrap();
    let mut recorded = command(folder.path());
    recorded
        .args(["record", "-o", "r.pb.gz", "--"])
        .arg(&path)
        .arg("");
    let record = Waiting::start(recorded);
    let program = program_of(record.child.id()).to_string();
    let said = record.run(&["attach", &program]);
    assert!(said.err.contains(&format!("pid:{program}")), "{}", said.err);
}

/// A program whose loader is still working is not taken for a program without a loader.
#[test]
fn a_program_that_is_just_starting_is_told_from_a_static_one() {
    if !have(&["gcc", "mkfifo"]) {
        return;
    }
    let built = build(WAITS, "gcc -O1");
    let here = built.folder.path();
    // The loader waits until a process writes to a library that is a pipe.
    built.run("mkfifo library.so");
    let pipe = here.join("library.so");
    let mut program = Command::new(&built.program);
    program
        .env("LD_PRELOAD", &pipe)
        .stderr(std::process::Stdio::null());
    program
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped());
    let mut program = program.spawn().unwrap();
    let pid = program.id().to_string();
    let attach = || run(here, &["attach", &pid, "--for", "10ms", "-o", "a.pb.gz"]);
    let said = attach();
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("it is just starting"), "{}", said.err);
    assert!(!said.err.contains("statically"), "{}", said.err);
    // An empty library is ignored.
    drop(std::fs::File::options().write(true).open(&pipe).unwrap());
    let mut line = [0; 6];
    std::io::Read::read_exact(program.stdout.as_mut().unwrap(), &mut line).unwrap();
    assert_eq!(&line, b"ready\n");
    let said = attach();
    assert_eq!(said.code, 0, "{}", said.err);
    drop(program.stdin.take());
    assert_eq!(program.wait().unwrap().code(), Some(7));
}

/// A program that needs only the C library.
const WAITS: &str = r#"
    #include <stdio.h>
    int main(void) {
        puts("ready");
        fflush(stdout);
        for (int c; (c = getchar()) != EOF;)
            if (c == '\n') { puts("done"); fflush(stdout); }
        return 7;
    }
"#;

fn refused_by_number(number: &str, why: &str) {
    let folder = tempfile::tempdir().unwrap();
    let said = run(folder.path(), &["attach", number, "--for", "10ms"]);
    assert_eq!(said.code, 2, "{number}");
    assert!(said.err.contains(why), "{}", said.err);
}

#[test]
fn a_program_with_a_malloc_of_its_own_is_refused() {
    if !have(&["gcc"]) {
        return;
    }
    let own = r#"
        #include <stddef.h>
        extern void *__libc_malloc(size_t);
        void *malloc(size_t size) { return __libc_malloc(size); }
    "#;
    let source = format!("{HOSTILE}\n{own}");
    let built = build(&source, "gcc -O1 -g -fno-builtin -pthread -rdynamic");
    let mut program = Waiting::new(&built.path("program"), "");
    let said = program.run(&["attach", &program.pid(), "--for", "10ms"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("its own malloc"), "{}", said.err);
    program.work();
    assert_eq!(program.end().code(), Some(7));
}
