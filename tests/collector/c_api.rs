//! The functions of include/heapprof.h, called by programs that link the library or look the
//! functions up.

mod meeting;

use std::path::Path;
use std::process::Command;

use heapprof_profile::{Profile, decode};

use heapprof_tests::built::{build, example, have};
use heapprof_tests::harness::{ok, preloaded, root};

/// Returns the sum of `sample_type` over all samples.
fn total(profile: &Profile, sample_type: &str) -> i64 {
    let column = profile.find_sample_type(sample_type).unwrap();
    let samples = &profile.samples;
    (0..samples.len()).map(|i| samples.values(i)[column]).sum()
}

/// Reads the profile in a file, which must have this comment.
fn read(path: &Path, comment: &str) -> Profile {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let profile = decode(file).unwrap();
    let mut comments = profile.comment.iter().map(|&c| profile.text(c));
    assert!(comments.any(|c| c == comment), "{comment}");
    profile
}

/// Runs an example program in its folder and returns its output.
fn run(folder: &Path, name: &str, variables: &[(&str, &str)]) -> String {
    let mut command = Command::new(folder.join(name));
    for variable in ["HEAPPROF_OUTPUT", "HEAPPROFILE", "LD_PRELOAD"] {
        command.env_remove(variable);
    }
    let output = command
        .current_dir(folder)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {err}");
    assert_eq!(err, "", "{name}");
    String::from_utf8(output.stdout).unwrap()
}

/// Copies the library and its header to one folder, as -I and -L need them. Returns the options to
/// link with the library.
fn linked(folder: &Path) -> String {
    for option in [&["preload-path"][..], &["preload-path", "--header"]] {
        let path = ok(option);
        let path = Path::new(path.trim());
        std::fs::copy(path, folder.join(path.file_name().unwrap())).unwrap();
    }
    "-I. -L. -lheapprof -Wl,-rpath,$ORIGIN".to_string()
}

#[test]
fn the_page_shows_the_programs_and_the_header() {
    let page = std::fs::read_to_string(root().join("docs/c-api.md")).unwrap();
    for name in ["ask", "report"] {
        let source = root().join(format!("docs/examples/{name}.c"));
        let source = std::fs::read_to_string(source).unwrap();
        assert!(page.contains(&format!("```c\n{source}```\n")), "{name}.c");
    }
    let header = std::fs::read_to_string(root().join("include/heapprof.h")).unwrap();
    let declared = regex::Regex::new(r"(?m)^(\w[\w ]*[ *]\w+\(.*\));$").unwrap();
    for found in declared.captures_iter(&header) {
        assert!(page.contains(&format!("`{}`", &found[1])), "{}", &found[1]);
    }
}

#[test]
fn a_program_looks_the_functions_up() {
    let folder = tempfile::tempdir().unwrap();
    if !example(folder.path(), "ask", "-ldl") {
        return;
    }
    let alone = run(folder.path(), "ask", &[]);
    assert_eq!(alone, "not recorded: libheapprof.so is not loaded\n");
    let library = ok(&["preload-path"]);
    let out = run(folder.path(), "ask", &[("LD_PRELOAD", library.trim())]);
    assert_eq!(out, "half.pb.gz: written\n");
    let half = read(&folder.path().join("half.pb.gz"), "dump: request");
    // The block of 1,000 was allocated before the start, and that of 2,000 after it.
    for (sample_type, expected) in [
        ("alloc_objects", 1),
        ("alloc_space", 2000),
        ("inuse_objects", 1),
        ("inuse_space", 2000),
    ] {
        assert_eq!(total(&half, sample_type), expected, "{sample_type}");
    }
    let end = read(&folder.path().join("ask.pb.gz"), "dump: exit");
    assert_eq!(end.period, 1);
    // The buffer of stdout is counted, too.
    assert!(total(&end, "alloc_space") > 2000);
    assert!(total(&end, "peak_space") >= 2000);
}

/// HeapProfilerStart obeys the same variables as HEAPPROFILE.
#[test]
fn intervals_of_gperftools_hold_for_its_functions() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
int main(void) {
    void (*start)(const char *);
    *(void **)&start = dlsym(RTLD_DEFAULT, "HeapProfilerStart");
    start("x");
    for (int i = 0; i < 100; i++) {
        void *volatile block = malloc(100000);
        free(block);
    }
    return 0;
}
"#;
    let built = build(source, "gcc -Wl,--no-as-needed -ldl");
    let dumps = |variable: &str, value: &str| {
        let output = preloaded(&built.program)
            .current_dir(built.folder.path())
            .env(variable, value)
            .output()
            .unwrap();
        assert!(output.status.success());
        let found = (1..).take_while(|n| built.path(&format!("x.{n:04}.heap")).is_file());
        let found = found.count();
        for n in 1..=found {
            std::fs::remove_file(built.path(&format!("x.{n:04}.heap"))).unwrap();
        }
        (found, String::from_utf8(output.stderr).unwrap())
    };
    // The program allocates 10 MB. The number of dumps must equal that of tcmalloc 2.10. The last
    // dump is made at exit.
    for (interval, expected) in [("2000000", 6), ("1000000", 11), ("300000", 34)] {
        for what in ["ALLOCATION", "DEALLOCATION"] {
            let variable = format!("HEAP_PROFILE_{what}_INTERVAL");
            assert_eq!(
                dumps(&variable, interval).0,
                expected,
                "{variable}={interval}"
            );
        }
    }
    assert_eq!(dumps("HEAP_PROFILE_INUSE_INTERVAL", "1000000").0, 1);
    let (found, err) = dumps("HEAP_PROFILE_TIME_INTERVAL", "soon");
    assert_eq!(found, 0);
    assert_eq!(
        err,
        "heapprof: HEAP_PROFILE_TIME_INTERVAL: expected seconds; not recording\n"
    );
}

#[test]
fn a_program_links_the_library() {
    let folder = tempfile::tempdir().unwrap();
    let options = linked(folder.path());
    if !example(folder.path(), "report", &options) {
        return;
    }
    let out = run(folder.path(), "report", &[]);
    let mut lines = out.lines();
    // gperftools' readers expect objects and bytes in use, then objects and bytes allocated.
    assert_eq!(
        lines.next().unwrap(),
        "heap profile:      3:     3000 [     4:     4000] @ heapprofile"
    );
    let stacks: Vec<&str> = lines.by_ref().take_while(|l| !l.is_empty()).collect();
    assert!(!stacks.is_empty());
    for stack in stacks {
        assert!(stack.contains("] @ 0x"), "{stack}");
    }
    assert_eq!(lines.next().unwrap(), "MAPPED_LIBRARIES:");
    assert!(lines.any(|l| l.ends_with("/report")), "{out}");
    let dumped = folder.path().join("report.hprof.0001.heap");
    let dumped = std::fs::read_to_string(dumped).unwrap();
    assert!(
        dumped.starts_with("heap profile:      3:     3000 [     4:     4000] @ heapprofile\n"),
        "{dumped}"
    );
    // The recording was stopped before the end, so there is no last dump.
    assert!(!folder.path().join("report.hprof.0002.heap").exists());
    let pprof = read(&folder.path().join("report.pb.gz"), "mode: exact");
    assert_eq!(total(&pprof, "inuse_space"), 3000);
    assert_eq!(total(&pprof, "alloc_objects"), 4);
    assert_eq!(total(&pprof, "temporary_objects"), 1);
}

/// A program or a plugin may look up the functions and close the library again. A period that is
/// too long is refused with an error.
#[test]
fn the_library_may_be_opened_and_closed() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
    void *library = dlopen(argv[argc - 1], RTLD_NOW);
    if (!library) return puts(dlerror());
    int (*running)(void) = (int (*)(void))dlsym(library, "heapprof_is_running");
    int (*start)(const char *, unsigned long) = (int (*)(const char *, unsigned long))dlsym(library, "heapprof_start");
    int before = running(), too_long = start(NULL, 1ul << 41), longest = start(NULL, 1ul << 40);
    printf("%d %d %d %d\n", before, too_long, longest, dlclose(library));
    return 0;
}
"#;
    let built = build(source, "gcc -Wl,--no-as-needed -ldl");
    let library = ok(&["preload-path"]);
    let mut command = Command::new(&built.program);
    let output = command.arg(library.trim()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 22 0 0\n");
}

/// Recordings of other periods begin while threads allocate: an event counts in one recording or in
/// none.
#[test]
fn recordings_begin_under_load() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static volatile int done;
static void *work(void *seed) {
    unsigned r = (unsigned)(long)seed;
    void *p[64] = {0};
    while (!done) {
        r = r * 1103515245 + 12345;
        void **at = &p[r >> 16 & 63];
        if (r & 0x40000000) free(*at), *at = malloc(16 + (r >> 8 & 255));
        else *at = realloc(*at, 16 + (r >> 8 & 255));
    }
    for (int i = 0; i < 64; i++) free(p[i]);
    return NULL;
}
int main(int argc, char **argv) {
    int (*start)(const char *, unsigned long) = (int (*)(const char *, unsigned long))dlsym(RTLD_DEFAULT, "heapprof_start");
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work, (void *)(i + 1));
    int failed = 0;
    for (int i = 0; i < 600; i++) {
        failed += start(NULL, i % 2 ? 512 : i % 3 ? 8192 : 0) != 0;
        usleep(2000);
        char path[4096];
        snprintf(path, sizeof path, "%s/%d.pb.gz", argv[argc - 1], i);
        if (i % 4 < 2) failed += dump(path) != 0;
    }
    done = 1;
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%d\n", failed);
    return 0;
}
"#;
    let built = build(source, "gcc -O1 -pthread");
    let folder = tempfile::tempdir().unwrap();
    let output = preloaded(&built.program)
        .arg(folder.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}");
    let mut dumps = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let profile = decode(std::fs::File::open(&path).unwrap()).unwrap();
        let samples = &profile.samples;
        for i in 0..samples.len() {
            let values = samples.values(i);
            assert!(values.iter().all(|&v| v >= 0), "{path:?}: {values:?}");
        }
        dumps += 1;
    }
    assert_eq!(dumps, 300);
}

/// A dump that a program makes from another folder is written to that folder. A file of the same
/// name in the first folder stays as it is.
#[test]
fn a_dump_from_another_folder() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>
void *kept;
__attribute__((noinline)) void keep_some(void) { kept = malloc(1000); }
int main(void) {
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    keep_some();
    return chdir("below") || dump("half.pb.gz");
}
"#;
    let built = build(source, "gcc -O1 -g");
    let here = built.folder.path();
    std::fs::create_dir(here.join("below")).unwrap();
    std::fs::write(here.join("half.pb.gz"), "another one").unwrap();
    let words = "record --exact -o out.pb.gz ./program";
    let found = heapprof_tests::harness::run(here, &words.split(' ').collect::<Vec<_>>());
    assert_eq!(found.code, 0, "{}", found.err);
    assert_eq!(
        std::fs::read(here.join("half.pb.gz")).unwrap(),
        b"another one"
    );
    let profile = read(&here.join("below/half.pb.gz"), "dump: request");
    let mut names = profile.function.iter().map(|f| profile.text(f.name));
    assert!(names.any(|name| name == "keep_some"), "{}", found.err);
}

/// The interval timer of a recording ends with the recording. A profile that is requested by name
/// is in pprof's format, regardless of the recording's format.
#[test]
fn a_recording_without_an_interval_has_none() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(void) {
    void (*of_gperftools)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "HeapProfilerStart");
    int (*start)(const char *, unsigned long) = (int (*)(const char *, unsigned long))dlsym(RTLD_DEFAULT, "heapprof_start");
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    of_gperftools("first");
    int failed = dump("named.pb.gz");
    failed += start("second.%n.pb.gz", 0);
    for (int i = 0; i < 150; i++) {
        usleep(10000);
        free(malloc(3 << 20));
    }
    printf("%d\n", failed);
    return 0;
}
"#;
    let built = build(source, "gcc -O1 -pthread");
    let folder = tempfile::tempdir().unwrap();
    let output = preloaded(&built.program)
        .current_dir(folder.path())
        .env("HEAP_PROFILE_TIME_INTERVAL", "1")
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert_eq!(out, "0\n", "{output:?}");
    read(&folder.path().join("named.pb.gz"), "dump: request");
    let entries = std::fs::read_dir(folder.path()).unwrap();
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    assert_eq!(names, ["named.pb.gz", "second.0001.pb.gz"]);
}

/// If a program starts recording again, the numbers of gperftools dumps continue.
#[test]
fn a_second_start_keeps_the_first_ones_dumps() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
int main(void) {
    void (*start)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "HeapProfilerStart");
    void (*dump)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "HeapProfilerDump");
    void (*stop)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "HeapProfilerStop");
    start("x"), dump("a"), dump("b"), stop();
    start("x"), dump("c"), stop();
    return 0;
}
"#;
    let built = build(source, "gcc");
    assert!(
        preloaded(&built.program)
            .current_dir(built.folder.path())
            .status()
            .unwrap()
            .success()
    );
    for number in 1..4 {
        let name = format!("x.{number:04}.heap");
        assert!(built.path(&name).exists(), "{name}");
    }
}

/// Functions of a library between ours and libc are called: libjsig preserves a JVM's signal
/// handlers through sigaction.
#[test]
fn libraries_between_are_called() {
    if !have(&["gcc"]) {
        return;
    }
    let between = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static void told(const char *what) { write(1, what, 2); }
int sigaction(int n, const struct sigaction *new, struct sigaction *old) {
    if (n == SIGUSR2) told("s ");
    return ((int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction"))(n, new, old);
}
int munmap(void *at, size_t len) {
    if (len == 12288) told("u ");
    return syscall(SYS_munmap, at, len);
}
void *mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset) {
    if (len == 12288) told("m ");
    return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
}
void _exit(int status) {
    told("e ");
    for (;;) syscall(SYS_exit_group, status);
}
"#;
    let program = r#"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
    struct sigaction action = {.sa_handler = SIG_IGN};
    void *at = mmap(0, 12288, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED || munmap(at, 12288) || sigaction(SIGUSR2, &action, 0)) return 1;
    _exit(munmap((void *)1, 12288) == -1 ? 5 : 6);
}
"#;
    let between = build(between, "gcc -shared -fPIC");
    let built = build(program, "gcc");
    let preload = ok(&["preload-path"]);
    let folder = tempfile::tempdir().unwrap();
    for mmap in ["no", "yes"] {
        let preload = format!("{} {}", preload.trim(), between.program.display());
        let output = Command::new(&built.program)
            .env("LD_PRELOAD", preload)
            .env("HEAPPROF_OUTPUT", folder.path().join("x.pb.gz"))
            .env("HEAPPROF_MMAP", mmap)
            .output()
            .unwrap();
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            (out.as_ref(), output.status.code()),
            ("m u s u e ", Some(5)),
            "{output:?}"
        );
    }
}

/// heapprof_start takes its argument as a path and not as a prefix, regardless of a gperftools
/// setup in the environment. No start deletes files that this run has written.
#[test]
fn a_path_of_its_own_beside_gperftools_prefix() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <dlfcn.h>
int main(void) {
    int (*start)(const char *, unsigned long) = (int (*)(const char *, unsigned long))dlsym(RTLD_DEFAULT, "heapprof_start");
    int (*dump)(const char *) = (int (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_dump");
    if (dump(0) || dump(0) || start(0, 0) || dump(0) || start("y.%p.%n.pb.gz", 0)) return 1;
    return dump(0);
}
"#;
    let built = build(source, "gcc");
    let earlier = built.path("y.0001.heap");
    std::fs::write(&earlier, "of an earlier run").unwrap();
    let mut program = preloaded(&built.program);
    program
        .current_dir(built.folder.path())
        .env("HEAPPROFILE", "x");
    assert!(program.status().unwrap().success());
    for number in 1..4 {
        assert!(
            built.path(&format!("x.{number:04}.heap")).exists(),
            "{number}"
        );
    }
    assert!(earlier.exists());
    let names = std::fs::read_dir(built.folder.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().path());
    let own: Vec<_> = names
        .filter(|p| p.to_string_lossy().ends_with(".pb.gz"))
        .collect();
    assert_eq!(own.len(), 2, "{own:?}");
    for path in own {
        heapprof_profile::decode(std::fs::File::open(path).unwrap()).unwrap();
    }
}

/// A program that is linked with one copy of the library and recorded with another uses only one of
/// them, and this copy obeys the program.
#[test]
fn a_linked_program_is_recorded_once() {
    if !have(&["gcc"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let flags = linked(folder.path());
    let source = r#"
#include <heapprof.h>
#include <stdlib.h>
static void *volatile kept;
__attribute__((noinline)) static void before(void) { kept = malloc(12345); }
__attribute__((noinline)) static void after(void) { kept = malloc(54321); }
int main(void) { before(); heapprof_stop(); after(); return heapprof_is_running(); }
"#;
    let file = folder.path().join("once.c");
    std::fs::write(&file, source).unwrap();
    let compile = format!("gcc -O1 -g -o once once.c {flags}").replace("$ORIGIN", "'$ORIGIN'");
    let status = std::process::Command::new("sh")
        .args(["-c", &compile])
        .current_dir(folder.path())
        .status();
    assert!(status.unwrap().success(), "{compile}");
    let words = ["record", "--exact", "-o", "once.pb.gz", "./once"];
    let recorded = heapprof_tests::harness::run(folder.path(), &words);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let top = heapprof_tests::harness::run(folder.path(), &["top", "once.pb.gz"]).out;
    assert!(top.contains("before") && !top.contains("after"), "{top}");
}
