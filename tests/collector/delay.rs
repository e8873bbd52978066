//! Children whose ledger is not saved in a file immediately: whatever such a child does, its
//! profile is the same as with a saved ledger.

use std::path::Path;
use std::process::{Command, Stdio};

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::fixtures::row_of;
use heapprof_tests::harness::{Run, command, is_root, run};
use heapprof_tests::waits::wait_until;

/// Allocates a little, does what the letters of its argument say, allocates much, frees some of it,
/// and kills itself.
const CHILD: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <threads.h>
    #include <time.h>
    #include <unistd.h>
    #include <sys/mman.h>
    #include <sys/resource.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    static void *volatile kept[4000], *volatile much[8000];
    __attribute__((noinline)) void *early(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    __attribute__((noinline)) void *late(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    static void *hold(void *from) {
        for (int i = 0; i < 1000; i++) kept[(size_t)from + i] = late(100);
        return 0;
    }
    static void ring(union sigval of) {}
    static int hold_for_c11(void *from) { hold(from); return 0; }
    int main(int argc, char **argv) {
        pthread_t thread;
        thrd_t other;
        for (int i = 0; i < 100; i++) kept[i] = early(100);
        for (const char *c = argv[1]; *c; c++) {
            if (*c == 'h') for (int i = 0; i < 8000; i++) much[i] = malloc(1000);
            if (*c == 'n') for (int i = 0; i < 8000; i++) free(much[i]);
            if (*c == 'u') unlink(argv[0]);
            if (*c == 'm') {
                mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
                raise(SIGKILL);
            }
            if (*c == 's') {
                int (*start)(const char *, unsigned long) = dlsym(RTLD_DEFAULT, "heapprof_start");
                if (!start || start(0, 0)) return 78;
            }
            if (*c == 'T') {
                struct sigevent in_thread = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = ring};
                timer_t timer;
                if (timer_create(CLOCK_MONOTONIC, &in_thread, &timer)) return 80;
            }
            if (*c == 'l') { struct rlimit none = {0, 0}; if (setrlimit(RLIMIT_NOFILE, &none)) return 79; }
            // The child of a fork goes on.
            if (*c == 'f' && fork()) { wait(0); return 0; }
            if (*c == 'c') close_range(3, ~0u, 0);
            if (*c == 'r' && chroot("/proc/self/fdinfo")) return 77;
            if (*c == 'R' && syscall(SYS_chroot, "/proc/self/fdinfo")) return 77;
            if (*c == 't') { pthread_create(&thread, 0, hold, (void *)2000); pthread_join(thread, 0); }
            if (*c == '1') { thrd_create(&other, hold_for_c11, (void *)3000); thrd_join(other, 0); }
            if (*c == 'g') for (int i = 0; access("go", F_OK) && i < 400000; i++) usleep(1000);
            if (*c == 'e') return 0;
            if (*c == 'k') raise(SIGKILL);
        }
        hold((void *)1000);
        for (int i = 0; i < 50; i++) free(kept[i]);
        raise(SIGKILL);
    }
"#;

/// Records a shell that runs the program through a launcher. The shell goes on until no process
/// writes to its output any more.
fn recorded(folder: &Path, options: &[&str], launcher: &str, program: &Path, does: &str) -> Run {
    let found = recording(folder, options, launcher, program, does)
        .output()
        .unwrap();
    let found = Run::from(found);
    assert_eq!(found.code, 3, "{}", found.err);
    found
}

/// Returns the command that records as [`recorded`] does.
fn recording(
    folder: &Path,
    options: &[&str],
    launcher: &str,
    program: &Path,
    does: &str,
) -> Command {
    let script = format!("{launcher} \"$0\" \"$1\" | while read line; do :; done; exit 3");
    let program = program.to_str().unwrap();
    let words = ["--", "sh", "-c", &script, program, does];
    let mut record = command(folder);
    record.args(["record", "-o", "a.pb.gz"]);
    record.args(options).args(words);
    record
}

/// Returns the `top` of each child's profile. Its addresses get names here.
fn tops(folder: &Path) -> Vec<String> {
    let children = std::fs::read_dir(folder.join("a.children"));
    let children = children.into_iter().flatten().flatten();
    let named = |path: &Path| {
        let symbolize = ["symbolize", path.to_str().unwrap(), "-o", "named.pb.gz"];
        assert_eq!(run(folder, &symbolize).code, 0);
        top(folder, "named.pb.gz")
    };
    children.map(|child| named(&child.path())).collect()
}

fn top(folder: &Path, profile: &str) -> String {
    let words = ["top", "-n", "0", "-f", "json", "-t", "inuse_space", profile];
    run(folder, &words).out
}

const EXACT: [&str; 2] = ["--exact", "--no-symbolize"];

/// A child that is killed after it has allocated much leaves its early and late bytes in use.
#[test]
fn a_killed_child_leaves_what_it_held_before_and_after() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    for (does, early, late) in [
        ("-", Some(5_000), 100_000),
        ("f", Some(5_000), 100_000),
        ("ff", Some(5_000), 100_000),
        ("c", Some(5_000), 100_000),
        ("l", Some(5_000), 100_000),
        ("T", Some(5_000), 100_000),
        ("fT", Some(5_000), 100_000),
        ("t", Some(5_000), 200_000),
        ("ft", Some(5_000), 200_000),
        ("1", Some(5_000), 200_000),
        ("f1t", Some(5_000), 300_000),
        ("r", Some(5_000), 100_000),
        ("fr", Some(5_000), 100_000),
        ("fR", Some(5_000), 100_000),
        // Eight thousand frees come before the first allocation.
        ("hfn", Some(5_000), 100_000),
        // The child begins its own recording.
        ("hfs", None, 100_000),
    ] {
        if does.contains(['r', 'R']) && !is_root() {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let found = recorded(folder.path(), &EXACT, "", &built.path("program"), does);
        let tops = tops(folder.path());
        let of_killed: Vec<_> = tops
            .iter()
            .filter(|top| row_of(top, "late").is_some())
            .collect();
        let [top] = &of_killed[..] else {
            panic!("{does}: {} profiles: {}", of_killed.len(), found.err);
        };
        assert_eq!(
            row_of(top, "early"),
            early.map(|bytes| [bytes; 2]),
            "{does}: {top}"
        );
        assert_eq!(row_of(top, "late"), Some([late; 2]), "{does}: {top}");
        let said = found.err.contains("shows the moment at which");
        assert!(said, "{does}: {}", found.err);
    }
}

/// A killed child's profile contains its mappings.
#[test]
fn a_killed_child_leaves_what_it_had_mapped() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    let folder = tempfile::tempdir().unwrap();
    let options = [&EXACT[..], &["--mmap"]].concat();
    let found = recorded(folder.path(), &options, "", &built.path("program"), "m");
    let tops = tops(folder.path());
    let [top] = &tops[..] else {
        panic!("{} profiles: {}", tops.len(), found.err);
    };
    let main = row_of(top, "main").unwrap();
    assert!(main[0] >= 1 << 20, "{top}");
}

/// A program that is no longer in its folder, and was not reported, is known through its child.
/// Once the parent has waited for the child, it is not always known whose child it was, and then
/// root's rights are not used to read it. But the parent is known often enough.
#[test]
fn a_forked_child_of_a_program_that_was_removed_has_names() {
    if !have(&["gcc"]) {
        return;
    }
    const TRIES: usize = 30;
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    let (program, copy) = (built.path("program"), built.path("copy"));
    let mut last = None;
    for _ in 0..TRIES {
        copy_program(&program, &copy);
        let folder = tempfile::tempdir().unwrap();
        let found = recorded(folder.path(), &["--exact"], "", &copy, "uf");
        let children = std::fs::read_dir(folder.path().join("a.children"));
        let child = children.unwrap().next().unwrap().unwrap().path();
        let top = top(folder.path(), child.to_str().unwrap());
        if row_of(&top, "late") == Some([100_000; 2]) {
            return;
        }
        last = Some((top, found.err));
    }
    panic!("{last:?}");
}

/// A child with a small heap leaves nothing, however it ends, and `--keep-small` keeps its profile.
/// A forked child that was killed before its first allocation leaves no trace.
#[test]
fn a_small_child_leaves_nothing() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    // The reader of its output is one of the counted children. A process before and after an exec
    // counts as one.
    for (does, count, all) in [("e", 2, 2), ("k", 2, 2), ("fe", 3, 3), ("fk", 2, 3)] {
        let said = format!("{count} children that used less than 64KiB");
        for options in [&["--exact"][..], &["--period=1KiB"]] {
            let folder = tempfile::tempdir().unwrap();
            let program = built.path("program");
            let found = recorded(folder.path(), options, "", &program, does);
            let left = folder.path().join("a.children").exists();
            assert!(!left, "{does} {options:?}: {}", found.err);
            assert!(
                found.err.contains(&said),
                "{does} {options:?}: {}",
                found.err
            );
        }
        let folder = tempfile::tempdir().unwrap();
        let options = ["--exact", "--keep-small"];
        let found = recorded(folder.path(), &options, "", &built.path("program"), does);
        let left = std::fs::read_dir(folder.path().join("a.children"));
        assert!(left.unwrap().count() >= all, "{does}: {}", found.err);
    }
}

/// Returns how many processes have handed their ledgers to a running `record`.
fn count_ledgers(record: u32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{record}/fd"));
    let links = files.into_iter().flatten().flatten();
    let links = links.filter_map(|file| std::fs::read_link(file.path()).ok());
    links
        .filter(|link| link.to_string_lossy().starts_with("/memfd:heapprof"))
        .count()
}

/// A process of another user reports itself immediately, because its ancestors, which prove that it
/// belongs to the recording, may be gone later. `record` can check them as long as the process is
/// there, so the child waits for that before it kills itself.
#[test]
fn a_child_of_another_user_is_known_at_once() {
    if !is_root() || !have(&["gcc", "setpriv"]) {
        return;
    }
    let built = build(CHILD, "gcc -O1 -g -fno-builtin -pthread");
    let folder = tempfile::tempdir().unwrap();
    for open in [folder.path(), built.path("").as_path()] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let launcher = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let program = built.path("program");
    let mut record = recording(folder.path(), &EXACT, launcher, &program, "fgk");
    let record = record.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let record = record.unwrap();
    // The shell, the program and its child.
    wait_until("the ledger of the child", || {
        count_ledgers(record.id()) == 3
    });
    std::fs::write(folder.path().join("go"), "").unwrap();
    let found = Run::from(record.wait_with_output().unwrap());
    let said = "3 children that used less than 64KiB";
    assert!(found.err.contains(said), "{}", found.err);
}

/// A library that counts the threads that are started through its pthread_create.
const WRAPPER: &str = r#"
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <pthread.h>
    int wrapped;
    int pthread_create(pthread_t *thread, const pthread_attr_t *with, void *(*run)(void *), void *of) {
        wrapped++;
        typeof(pthread_create) *real = dlsym(RTLD_NEXT, "pthread_create");
        return real(thread, with, run, of);
    }
"#;

const WRAPPED: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    extern int wrapped;
    static void *run(void *of) { return of; }
    int main() {
        pthread_t thread;
        int before = wrapped;
        pthread_create(&thread, 0, run, 0);
        pthread_join(thread, 0);
        printf("%d %d\n", before, wrapped);
    }
"#;

/// The program's threads are started through a library between it and libc, and ours are not.
#[test]
fn our_own_threads_are_libc_s() {
    if !have(&["gcc"]) {
        return;
    }
    let (library, built) = (
        build(WRAPPER, "gcc -fPIC -shared"),
        tempfile::tempdir().unwrap(),
    );
    let here = built.path();
    let wrapper = library.path("program");
    std::fs::copy(&wrapper, here.join("libwrap.so")).unwrap();
    std::fs::write(here.join("a.c"), WRAPPED).unwrap();
    let mut compiler = std::process::Command::new("gcc");
    compiler.args(["a.c", "-o", "a", "-L.", "-lwrap", "-Wl,-rpath,$ORIGIN"]);
    assert!(compiler.current_dir(here).status().unwrap().success());
    let interval = ["--interval=50ms", "--no-symbolize", "-o", "a.pb.gz"];
    let found = run(here, &[&["record"], &interval[..], &["--", "./a"]].concat());
    assert_eq!(
        (found.code, found.out.as_str()),
        (0, "0 1\n"),
        "{}",
        found.err
    );
}
