//! Effects that a recorded program must not notice. Each case was found by an attack: small
//! programs run bare, and recorded in both modes.

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, ends, run};

/// The options for both modes.
const MODES: [&[&str]; 2] = [&["--exact"], &["--period", "512KiB"]];

/// Returns a command that records a program. The last `options` set the output.
fn recorded(folder: &Path, program: &Path, mode: &[&str], options: &[&str]) -> Command {
    let mut command = command(folder);
    command.args(["record", "--no-symbolize"]).args(mode);
    command.args(options).arg("--").arg(program);
    command.stderr(std::process::Stdio::null());
    command
}

/// Runs a program bare, and records it several times with more options. Checks that all runs are
/// equal.
fn unnoticed(folder: &Path, program: &Path, options: &[&str], rounds: usize) {
    let bare = ends(&mut Command::new(program));
    let options = [&["-o", "out/"], options].concat();
    for mode in MODES {
        for _ in 0..rounds {
            let mut command = recorded(folder, program, mode, &options);
            assert_eq!(ends(&mut command), bare, "{mode:?}");
        }
    }
}

fn check(source: &str, compiler: &str, options: &[&str], rounds: usize) {
    if have(&["gcc"]) {
        let built = build(source, compiler);
        unnoticed(built.folder.path(), &built.program, options, rounds);
    }
}

/// The fork handlers of a library's constructor run before ours. Ours must not wait for a thread
/// that waits for the library's lock.
#[test]
fn fork_handlers_of_a_library_s_constructor() {
    if !have(&["gcc"]) {
        return;
    }
    let library = r"
#include <pthread.h>
#include <stdlib.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void before(void) { pthread_mutex_lock(&lock); }
static void after(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void begin(void) { pthread_atfork(before, after, after); }
void work(void) {
    pthread_mutex_lock(&lock);
    free(realloc(malloc(100), 2000));
    pthread_mutex_unlock(&lock);
}
";
    let program = r"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
void work(void);
static void *loop(void *unused) { for (;;) work(); }
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 2; i++) pthread_create(&thread, 0, loop, 0);
    for (int i = 0; i < 200; i++) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
    }
}
";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("work.c"), library).unwrap();
    let so = folder.path().join("libwork.so");
    let made = Command::new("gcc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&so, &folder.path().join("work.c")])
        .status();
    assert!(made.unwrap().success());
    let there = folder.path().display();
    let built = build(
        program,
        &format!("gcc -L{there} -Wl,-rpath,{there} -Wl,--no-as-needed -lwork -pthread"),
    );
    unnoticed(
        built.folder.path(),
        &built.program,
        &["--follow-children", "no"],
        2,
    );
}

/// The thread that runs a signal handler may be inside malloc and have its lock, while a forking
/// thread has our lock and waits for malloc's.
#[test]
fn signals_that_dump_or_end_beside_forks() {
    let source = r#"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void *work(void *unused) { for (;;) free(realloc(malloc(3000), 90000)); }
static void *forks(void *unused) {
    for (;;) {
        pid_t child = fork();
        if (child == 0) _exit(0);
        waitpid(child, 0, 0);
    }
}
int main(int argc, char **argv) {
    pthread_t thread[3];
    pthread_create(thread, 0, work, 0);
    pthread_create(thread + 1, 0, work, 0);
    pthread_create(thread + 2, 0, forks, 0);
    for (int i = 0; i < 60; i++) {
        usleep(3000);
        pthread_kill(thread[i % 2], SIGURG);
    }
    puts("before");
    fflush(stdout);
    pthread_kill(thread[0], SIGTERM);
    for (;;) pause();
}
"#;
    if !have(&["gcc"]) {
        return;
    }
    let built = build(source, "gcc -O1 -pthread");
    let folder = built.folder.path();
    // Without a recording, SIGURG does nothing in the program.
    let options = [
        "--follow-children",
        "no",
        "--on-signal",
        "URG",
        "-o",
        "end.pb.gz",
    ];
    for mode in MODES {
        for _ in 0..5 {
            let mut command = recorded(folder, &built.program, mode, &options);
            assert_eq!(
                ends(&mut command),
                ("before\n".to_string(), Some(143)),
                "{mode:?}"
            );
            let last = folder.join("end.pb.gz");
            assert!(last.is_file(), "no last profile");
            std::fs::remove_file(last).unwrap();
        }
    }
}

/// Sampling uses floating point. The program may trap inexact results, round in another way, or
/// read the flags.
#[test]
fn floating_point_is_the_program_s() {
    let source = r#"
#define _GNU_SOURCE
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    feclearexcept(FE_ALL_EXCEPT);
    for (int i = 0; i < 3000; i++) free(malloc(5000));
    printf("%d\n", fetestexcept(FE_ALL_EXCEPT));
    feenableexcept(FE_INEXACT | FE_UNDERFLOW);
    fesetround(FE_UPWARD);
    for (int i = 0; i < 3000; i++) free(malloc(5000));
    printf("%d\n", fegetround());
}
"#;
    check(source, "gcc -O1 -Wl,--no-as-needed -lm", &[], 1);
}

/// A setting of `siginterrupt` applies to `signal`, too. A thread of ours changes no exit code and
/// no namespace.
#[test]
fn signals_codes_and_namespaces() {
    let source = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
static void handler(int signal) { }
int main(void) {
    int ends[2];
    char byte;
    free(malloc(1000));
    signal(SIGCHLD, SIG_IGN);
    siginterrupt(SIGTERM, 1);
    signal(SIGTERM, handler);
    if (pipe(ends)) return 1;
    pid_t parent = getpid(), child = fork();
    /* The parent may not read yet. */
    for (; child == 0; kill(parent, SIGTERM)) usleep(100000);
    errno = 0;
    long got = read(ends[0], &byte, 1);
    int is_interrupted = errno == EINTR;
    kill(child, SIGKILL);
    printf("%ld %d\n", got, is_interrupted);
    printf("%ld\n", syscall(SYS_unshare, CLONE_FS | CLONE_SIGHAND | CLONE_VM));
    fflush(stdout);
    syscall(SYS_exit, 7);
}
"#;
    check(source, "gcc -O1", &["--interval", "10s"], 2);
}

/// One thread begins a recording with an interval at the moment when another thread ends the timer
/// thread for a new identity. The other thread must not wait for the end of the new timer thread,
/// which was not asked to end.
#[test]
fn new_identities_beside_new_recordings() {
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
static volatile int stop;
static void *identities(void *none) {
    while (!stop) seteuid(geteuid());
    return none;
}
int main(void) {
    int (*start)(const char *, unsigned long) = dlsym(RTLD_DEFAULT, "heapprof_start");
    pthread_t thread;
    pthread_create(&thread, 0, identities, 0);
    for (time_t begin = time(0); time(0) - begin < 3;)
        if (start) start(0, 0);
    stop = 1;
    pthread_join(thread, 0);
    puts("done");
}
"#;
    check(source, "gcc -O1 -pthread", &["--interval", "1h"], 1);
}

/// If only our handler catches a signal, every libc function reports the default handler.
#[test]
fn handlers_that_are_ours_are_not_shown() {
    let source = r#"
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
typedef void (*handler_t)(int);
extern handler_t bsd_signal(int, handler_t), sysv_signal(int, handler_t);
static void handler(int signal) { }
static handler_t (*const ways[])(int, handler_t) = {signal, bsd_signal, ssignal, sysv_signal, sigset};
static void sets(handler_t (*way)(int, handler_t), int signal) {
    printf("%d", way(signal, SIG_DFL) == SIG_DFL);
    printf("%d", way(signal, handler) == SIG_DFL);
    printf("%d", way(signal, SIG_IGN) == handler);
    printf("%d", way(signal, SIG_DFL) == SIG_IGN);
    printf("%d\n", way(signal, SIG_DFL) == SIG_DFL);
}
int main(void) {
    for (int i = 0; i < 5; i++) {
        sets(ways[i], SIGTERM);
        sets(ways[i], SIGUSR2);
    }
    printf("%d", sigset(SIGINT, SIG_HOLD) == SIG_DFL);
    printf("%d", sigset(SIGINT, SIG_HOLD) == SIG_HOLD);
    printf("%d\n", sigset(SIGINT, SIG_DFL) == SIG_HOLD);
    printf("%d\n", sigset(1000, SIG_DFL) == SIG_ERR);
    fflush(stdout);
    if (fork() == 0) {
        sigset(SIGTERM, SIG_DFL);
        kill(getpid(), SIGTERM);
        pause();
    }
    int status;
    wait(&status);
    printf("%d\n", WTERMSIG(status));
}
"#;
    check(source, "gcc -O1", &[], 2);
}

/// A process that has a pipe open and does not read from it must not stop the program.
#[test]
fn a_dump_into_a_full_pipe() {
    if !have(&["gcc", "mkfifo"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(void) {
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    static char junk[65536];
    int pipe = open("pipe", O_RDWR | O_NONBLOCK);
    while (write(pipe, junk, sizeof junk) > 0);
    printf("%d\n", dump("pipe") == ETIMEDOUT);
    return 3;
}
"#;
    let built = build(source, "gcc -O1 -D_GNU_SOURCE");
    built.run("mkfifo pipe");
    let words = "record --exact --no-symbolize -o out.pb.gz ./program";
    let words: Vec<&str> = words.split(' ').collect();
    let found = run(built.folder.path(), &words);
    assert_eq!((found.out.as_str(), found.code), ("1\n", 3));
    let said = "pipe: nothing read from it for ten seconds";
    assert!(found.err.contains(said), "{}", found.err);
}

/// A process that reads a little from time to time can't block the program longer: all waits of a
/// dump count together.
#[test]
fn a_dump_into_a_pipe_that_is_read_slowly() {
    if !have(&["gcc", "mkfifo"]) {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void *volatile kept;
static void left(int depth), right(int depth);
__attribute__((noinline)) static void both(int depth) {
    if (depth) { left(depth - 1); right(depth - 1); }
    else kept = malloc(8);
    __asm__ volatile("");
}
__attribute__((noinline)) static void left(int depth) { both(depth); __asm__ volatile(""); }
__attribute__((noinline)) static void right(int depth) { both(depth); __asm__ volatile(""); }
int main(void) {
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    both(13);
    int pipe = open("pipe", O_RDWR | O_NONBLOCK);
    fcntl(pipe, F_SETPIPE_SZ, 4096);
    pid_t reader = fork();
    if (reader == 0) {
        char some[1024];
        for (;;) { usleep(300000); if (read(pipe, some, sizeof some) < 0 && errno != EAGAIN) _exit(1); }
    }
    struct timespec from, to;
    clock_gettime(CLOCK_MONOTONIC, &from);
    int timed_out = dump("pipe") == ETIMEDOUT;
    clock_gettime(CLOCK_MONOTONIC, &to);
    kill(reader, SIGKILL);
    /* It would wait for ever, if each byte began the time anew. */
    printf("%d %d\n", timed_out, to.tv_sec - from.tv_sec < 300);
    return 3;
}
"#;
    let built = build(source, "gcc -O1");
    built.run("mkfifo pipe");
    let words = "record --exact --no-symbolize --follow-children no -o out.pb.gz ./program";
    let words: Vec<&str> = words.split(' ').collect();
    let found = run(built.folder.path(), &words);
    assert_eq!(
        (found.out.as_str(), found.code),
        ("1 1\n", 3),
        "{}",
        found.err
    );
}

/// A dump is written to a device or a pipe. The file to which a dump's name leads is not replaced.
#[test]
fn a_dump_into_a_pipe() {
    if !have(&["gcc", "mkfifo"]) {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(void) {
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    int nobody = dump("pipe");
    FILE *reader = popen("head -c 2 pipe | od -An -tx1", "r");
    char text[20] = "";
    int done;
    while ((done = dump("pipe")) != 0) {}
    fgets(text, sizeof text, reader);
    printf("%d %d%s", nobody != 0, done, text);
}
"#;
    let built = build(source, "gcc -O1 -Wl,--no-as-needed -ldl");
    built.run("mkfifo pipe");
    let mut command = command(built.folder.path());
    command.args(["record", "--exact", "--follow-children", "no", "./program"]);
    let (text, code) = ends(&mut command);
    assert_eq!((text.as_str(), code), ("1 0 1f 8b\n", Some(0)));
}
