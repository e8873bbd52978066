//! Programs of other kinds, started by a recorded program. Those of another C library are recorded,
//! too. Static ones and those of another architecture run as they do without heapprof.

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::{Built, build, have, is_here};
use heapprof_tests::executables::write_program;
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, heapprof};
use heapprof_tests::needs;

/// Uses every function of the allocator, has threads and a child, and starts another program.
const PROGRAM: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <malloc.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static volatile int caught;
    static void on_signal(int signal) { caught += signal; }
    static void *work(void *none) {
        for (int i = 1; i < 3000; i++) {
            char *p = malloc(i), *q = calloc(i, 3), *r = 0;
            memset(p, 1, i);
            p = realloc(p, 2 * i);
            if (posix_memalign((void **)&r, 64, i) || !p || !q || q[i] || (unsigned long)r % 64) exit(90);
            free(r);
            r = aligned_alloc(32, 32 * i);
            if (!r || (unsigned long)r % 32) exit(91);
            free(p), free(q), free(r);
        }
        return none;
    }
    static void at_end(void) { puts("at the end"); }
    int main(int argc, char **argv) {
        pthread_t threads[3];
        atexit(at_end);
        signal(SIGUSR1, on_signal);
        raise(SIGUSR1);
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], 0, work, 0);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], 0);
        void *map = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (map == MAP_FAILED || munmap(map, 1 << 20)) return 92;
        printf("handled %d, no error: %d\n", caught, dlerror() == 0);
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            work(0);
            _exit(5);
        }
        int status;
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
        if (argc > 1) {
            fflush(stdout);
            execl("/bin/sh", "sh", "-c", "echo became a shell; exit 6", (char *)0);
        }
        return 7;
    }
"#;

/// Returns a shell that runs a script, bare or recorded.
fn shell(folder: &Path, script: &str, options: Option<&[&str]>) -> Command {
    let mut command = match options {
        None => Command::new("sh"),
        Some(options) => {
            let mut command = Command::new(heapprof());
            command.args(["record", "-o", "p.pb.gz"]).args(options);
            command.args(["--", "sh"]);
            command
        }
    };
    command.args(["-c", script]).current_dir(folder);
    command
}

/// Runs a shell that starts the program three times, bare or recorded.
fn run_by_shell(folder: &Path, program: &Path, options: Option<&[&str]>) -> Run {
    let script = "\"$0\"; echo $?; \"$0\" more; echo $?; \"$0\"; exit $?";
    Run::from(
        shell(folder, script, options)
            .arg(program)
            .output()
            .unwrap(),
    )
}

/// Returns the errors that a run printed, without the lines of heapprof.
fn own_errors(run: &Run) -> String {
    let lines = run
        .err
        .lines()
        .filter(|line| !line.starts_with("heapprof: "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Runs a program bare and recorded, and compares. Returns the messages of `record`.
fn is_as_bare(built: &Built, name: &str, code: i32) -> String {
    let program = built.path(name);
    let folder = tempfile::tempdir().unwrap();
    let bare = run_by_shell(folder.path(), &program, None);
    assert_eq!(bare.code, code, "{name}: {}", bare.err);
    let mut said = String::new();
    for options in [
        &["--exact"][..],
        &["--period", "4KiB"],
        &["--exact", "--mmap"],
    ] {
        let recorded = run_by_shell(folder.path(), &program, Some(options));
        assert_eq!(recorded.code, bare.code, "{name}: {}", recorded.err);
        assert_eq!(recorded.out, bare.out, "{name}: {}", recorded.err);
        assert_eq!(own_errors(&recorded), own_errors(&bare), "{name}");
        // The shell itself was recorded.
        let words = ["top", "-t", "alloc_objects", "-f", "json", "p.pb.gz"];
        assert!(json(folder.path(), &words)["total"].is_i64(), "{name}");
        said = recorded.err;
    }
    said
}

/// A shell of glibc starts a program of musl, which starts a shell again: all are recorded.
#[test]
fn a_program_of_musl_is_recorded_whoever_starts_it() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    if !is_here("musl-gcc") {
        needs::cannot("musl-gcc");
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    built.run("musl-gcc -O1 -g -Wl,--eh-frame-hdr source.c -o with_musl -pthread");
    let said = is_as_bare(&built, "with_musl", 7);
    assert!(!said.contains("not recorded"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(heapprof());
    command.args(["record", "--exact", "-o", "p.pb.gz", "--"]);
    let program = built.path("with_musl");
    let output = command.arg(program).current_dir(folder.path()).output();
    let run = Run::from(output.unwrap());
    assert_eq!(run.code, 7, "{}", run.err);
    let words = ["top", "-t", "alloc_objects", "-f", "json", "p.pb.gz"];
    let rows = json(folder.path(), &words);
    // Five blocks in each round of the three threads.
    assert_eq!(rows["rows"][0]["function"], "work", "{rows}");
    assert_eq!(rows["rows"][0]["flat"], 3 * 5 * 2999, "{rows}");
    // No stack ends early: these threads and main begin in code of musl.
    assert!(!run.err.contains("callers are missing"), "{}", run.err);
}

#[test]
fn a_static_program_runs_as_by_itself() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    built.run("gcc -O1 -static -pthread source.c -o fixed");
    let said = is_as_bare(&built, "fixed", 7);
    // One of the three processes became a shell, which was recorded.
    let path = built.path("fixed").display().to_string();
    let reported = format!("2 processes were not recorded: {path} (it is statically linked)");
    assert!(said.contains(&reported), "{said}");
    if is_here("musl-gcc") {
        built.run("musl-gcc -O1 -static -pthread source.c -o fixed_musl");
        is_as_bare(&built, "fixed_musl", 7);
    }
}

/// The kernel refuses a program for another architecture, unless an emulator is registered.
#[test]
fn a_program_of_another_architecture_is_refused_as_by_itself() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The header of an aarch64 executable without code, and a truncated header.
    let mut header = [0u8; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    header[16..20].copy_from_slice(&[2, 0, 183, 0]);
    let programs = [("other", &header[..]), ("cut", &header[..10])];
    for (name, bytes) in programs {
        let path = folder.path().join(name);
        write_program(&path, bytes);
    }
    let script = "for p in ./other ./cut ./none; do $p; echo $?; done; PATH=:$PATH other; echo $?";
    let run = |options: Option<&[&str]>| {
        Run::from(shell(folder.path(), script, options).output().unwrap())
    };
    let bare = run(None);
    for options in [&["--exact"][..], &[]] {
        let recorded = run(Some(options));
        assert_eq!(recorded.code, bare.code, "{}", recorded.err);
        assert_eq!(recorded.out, bare.out, "{}", recorded.err);
        assert_eq!(own_errors(&recorded), own_errors(&bare));
    }
}

/// Static programs are named that are started by perl, which searches programs by name, and by a
/// program that shares its memory with a child until the child's exec.
#[test]
fn static_children_are_named_however_they_are_executed() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc", "perl"]) {
        return;
    }
    let source = r#"
        #include <unistd.h>
        #include <sys/wait.h>
        int main(void) {
            char *words[] = {"by_vfork", 0};
            if (!vfork()) {
                execvp("./by_vfork", words);
                _exit(9);
            }
            int status;
            wait(&status);
            return WEXITSTATUS(status);
        }
    "#;
    let built = build(source, "gcc -O1");
    std::fs::write(built.path("three.c"), "int main(void) { return 3; }").unwrap();
    for name in ["by_name", "by_vfork", "by_path", "by_list"] {
        built.run(&format!("gcc -O1 -static three.c -o {name}"));
    }
    let folder = built.path("");
    let script = format!(
        "$ENV{{PATH}} = '/none::{}'; for ('by_name', './by_path') {{ \
         system($_) >> 8 == 3 or die }} system('./program') >> 8 == 3 or die; \
         if (!fork) {{ exec {{'./by_list'}} 'other', 'words' }} wait; print $? >> 8",
        folder.display()
    );
    let mut command = Command::new(heapprof());
    command.args(["record", "-o", "p.pb.gz", "--", "perl", "-e"]);
    let output = command.arg(script).current_dir(&folder).output().unwrap();
    let run = Run::from(output);
    assert_eq!((run.code, run.out.as_str()), (0, "3"), "{}", run.err);
    assert!(
        run.err.contains("; 4 processes were not recorded: "),
        "{}",
        run.err
    );
    assert!(run.err.contains("(it is statically linked)"), "{}", run.err);
    assert!(
        run.err
            .contains("by_name, ./by_path, ./by_vfork and 1 more"),
        "{}",
        run.err
    );
}
