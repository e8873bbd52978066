//! Hooks at the entries of an allocator that is linked into the program or its library: what is
//! counted, and what the program does, is the same as without it.

mod hazards;
mod safety;

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::{json, rows_of};
use heapprof_tests::harness::{Run, heapprof};

/// An allocator with jemalloc's names and a prefix. Its functions call each other.
pub(crate) const ALLOCATOR: &str = r#"
    #include <errno.h>
    #include <pthread.h>
    #include <string.h>
    #include <sys/mman.h>
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct block { size_t size; struct block *next; } *unused[64];
    static char *place, *end;
    static int class_of(size_t size) { return size <= 64 ? 0 : 58 - __builtin_clzl(size - 1); }
    __attribute__((noinline)) void *je_malloc(size_t size) {
        if (size > 1 << 20) { errno = ENOMEM; return 0; }
        int class = class_of(size + 16);
        size_t whole = 64UL << class;
        pthread_mutex_lock(&lock);
        struct block *block = unused[class];
        if (block) unused[class] = block->next;
        else {
            if (end - place < whole) {
                int flags = MAP_PRIVATE | MAP_ANONYMOUS;
                place = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, flags, -1, 0);
                end = place + (64 << 20);
            }
            block = (struct block *)place;
            place += whole;
        }
        block->size = size;
        pthread_mutex_unlock(&lock);
        return (char *)block + 16;
    }
    __attribute__((noinline)) void je_free(void *p) {
        if (!p) return;
        struct block *block = (struct block *)((char *)p - 16);
        int class = class_of(block->size + 16);
        pthread_mutex_lock(&lock);
        block->next = unused[class];
        unused[class] = block;
        pthread_mutex_unlock(&lock);
    }
    __attribute__((noinline)) void *je_calloc(size_t n, size_t size) {
        void *p = je_malloc(n * size);
        return p ? memset(p, 0, n * size) : 0;
    }
    __attribute__((noinline)) void *je_realloc(void *old, size_t size) {
        void *p = je_malloc(size);
        if (!p || !old) return p;
        size_t before = ((size_t *)old)[-2];
        memcpy(p, old, before < size ? before : size);
        je_free(old);
        return p;
    }
    __attribute__((noinline)) int je_posix_memalign(void **to, size_t align, size_t size) {
        void *p = align <= 16 ? je_malloc(size) : 0;
        if (!p) return ENOMEM;
        *to = p;
        return 0;
    }
    __attribute__((noinline)) void je_sdallocx(void *p, size_t size, int flags) { je_free(p); }
"#;

/// Calls each function many times, in several threads and a forked child. Counts what it asks for.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    void *je_malloc(size_t), *je_calloc(size_t, size_t), *je_realloc(void *, size_t);
    void je_free(void *), je_sdallocx(void *, size_t, int);
    int je_posix_memalign(void **, size_t, size_t);
    static void *volatile kept[8][4000];
    static long counts[8], bytes[8], held[8];
    __attribute__((noinline)) void *work(void *given) {
        long of = (long)given, count = 0, sum = 0, live = 0;
        for (int i = 0; i < 1000; i++) {
            size_t size = 1 + i % 700;
            void *p = je_malloc(size), *q = je_calloc(2, size), *r = 0;
            if (je_posix_memalign(&r, 16, size) || je_malloc(2 << 20)) abort();
            p = je_realloc(p, 2 * size);
            r = je_realloc(r, size / 2 + 1);
            if (je_realloc(r, 4 << 20)) abort();
            void *s = je_realloc(0, 30);
            count += 6, sum += size + 2 * size + size + 2 * size + (size / 2 + 1) + 30;
            je_free(q), je_free(0), je_sdallocx(s, 30, 0);
            kept[of][2 * i] = p, kept[of][2 * i + 1] = r;
            live += 2 * size + size / 2 + 1;
        }
        counts[of] = count, bytes[of] = sum, held[of] = live;
        asm volatile("");
        return 0;
    }
    int main(int argc, char **argv) {
        pthread_t threads[8];
        for (long i = 0; i < 8; i++) pthread_create(&threads[i], 0, work, (void *)i);
        for (int i = 0; i < 8; i++) pthread_join(threads[i], 0);
        pid_t child = fork();
        if (!child) {
            for (int i = 0; i < 1000; i++) je_free(kept[0][i]), kept[0][i] = 0;
            work((void *)1);
            _exit(5);
        }
        int status;
        waitpid(child, &status, 0);
        for (int i = 1; i < 8; i++) {
            counts[0] += counts[i], bytes[0] += bytes[i], held[0] += held[i];
        }
        printf("%ld %ld %ld %d\n", counts[0], bytes[0], held[0], WEXITSTATUS(status));
        fflush(stdout);
        if (argc > 1) kill(getpid(), 9);
        return 3;
    }
"#;

/// Makes a folder with a source file, which the test builds.
fn with_source(name: &str, source: &str) -> Built {
    let built = build("int main(void) { return 0; }", "gcc");
    std::fs::write(built.path(name), source).unwrap();
    built
}

/// Builds a program with an allocator linked in, or in a library of its own.
fn built(allocator: &str, program: &str, is_library: bool) -> Built {
    let built = with_source("work.c", program);
    std::fs::write(built.path("allocator.c"), allocator).unwrap();
    if is_library {
        built.run("gcc -O2 -g -shared -fPIC allocator.c -o liballocator.so");
        built.run("gcc -O2 -g work.c -o work -pthread -L. -lallocator -Wl,-rpath,$ORIGIN");
    } else {
        built.run("gcc -O2 -g -c allocator.c");
        built.run("gcc -O2 -g work.c allocator.o -o work -pthread");
    }
    built
}

fn recorded(folder: &Path, built: &Built, options: &[&str], words: &[&str]) -> Run {
    let mut command = Command::new(heapprof());
    command.args(["record", "-o", "p.pb.gz"]).args(options);
    command.arg("--").arg(built.path("work")).args(words);

    Run::from(command.current_dir(folder).output().unwrap())
}

/// Returns the comments of the recorded profile.
fn comments(folder: &Path) -> String {
    let info = json(folder, &["info", "-f", "json", "p.pb.gz"]);
    info["comments"].to_string()
}

/// Returns what one function allocated itself.
fn flat(folder: &Path, sample_type: &str, function: &str) -> i64 {
    let words = [
        "top",
        "--all-code",
        "-t",
        sample_type,
        "-f",
        "json",
        "p.pb.gz",
    ];
    let top = json(folder, &words);
    let rows = rows_of(&top, function);
    rows.iter().map(|row| row["flat"].as_i64().unwrap()).sum()
}

fn is_supported() -> bool {
    cfg!(target_arch = "x86_64") && have(&["gcc"])
}

#[test]
fn counts_are_those_of_the_program() {
    if !is_supported() {
        return;
    }
    for is_library in [false, true] {
        let built = built(ALLOCATOR, PROGRAM, is_library);
        let folder = tempfile::tempdir().unwrap();
        let said = recorded(folder.path(), &built, &["--exact"], &[]);
        assert_eq!(said.code, 3, "{}", said.err);
        let own: Vec<i64> = said
            .out
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        let types = ["alloc_objects", "alloc_space", "inuse_space"];
        let found = types.map(|of| flat(folder.path(), of, "work"));
        assert_eq!((&found[..], 5), (&own[..3], own[3]), "{}", said.err);
        assert_eq!(flat(folder.path(), "inuse_objects", "work"), 16_000);
        assert!(!said.err.contains("not recorded"), "{}", said.err);
        let info = comments(folder.path());
        assert!(
            info.contains("allocator hooked: 6 functions of jemalloc"),
            "{info}"
        );
    }
}

#[test]
fn a_sample_is_near_and_a_killed_program_has_its_blocks() {
    if !is_supported() {
        return;
    }
    let built = built(ALLOCATOR, PROGRAM, false);
    for (options, words) in [
        (&["--period", "4KiB"][..], &[][..]),
        (&["--exact"], &["kill"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let said = recorded(folder.path(), &built, options, words);
        assert_eq!(
            said.code,
            if words.is_empty() { 3 } else { 137 },
            "{}",
            said.err
        );
        let own: i64 = said.out.split(' ').nth(1).unwrap().parse().unwrap();
        let found = flat(folder.path(), "alloc_space", "work");
        let is_exact = options[0] == "--exact";
        // Some 4,000 samples: an error of a fifth would be one of a dozen standard deviations.
        let limit = if is_exact { 0 } else { own / 5 };
        assert!((found - own).abs() <= limit, "{found} {own}\n{}", said.err);
        assert!(!said.err.contains("not recorded"), "{}", said.err);
        assert!(comments(folder.path()).contains("allocator hooked: 6 functions of jemalloc"));
    }
}

/// Two threads load and unload libraries that have an allocator inside, which their constructors
/// call. Each time, all functions are hooked, and the pages for that go with the library.
#[test]
fn libraries_that_are_loaded_later_are_hooked() {
    if !is_supported() {
        return;
    }
    const PLUGIN: &str = r#"
        static void *volatile first;
        __attribute__((constructor, noinline)) void begin(void) { first = je_malloc(24); }
        __attribute__((noinline)) void *plugin_work(int i) {
            je_free(je_calloc(3, i + 1));
            je_sdallocx(first, 24, 0);
            first = je_realloc(0, 100);
            return first;
        }
    "#;
    const LOADING: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <string.h>
        static int code_mappings(void) {
            char line[500];
            int count = 0;
            FILE *maps = fopen("/proc/self/maps", "r");
            while (fgets(line, 500, maps)) count += strstr(line, " r-xp 00000000 00:00 0 ") != 0;
            fclose(maps);
            return count;
        }
        static void *load(void *name) {
            for (int i = 0; i < 500; i++) {
                void *plugin = dlopen(name, i % 2 ? RTLD_NOW : RTLD_LAZY);
                if (!plugin) { puts(dlerror()); exit(1); }
                void *(*plugin_work)(int) = (void *(*)(int))dlsym(plugin, "plugin_work");
                if (!plugin_work(i)) abort();
                dlclose(plugin);
            }
            return 0;
        }
        int main(void) {
            pthread_t threads[2];
            int before = code_mappings();
            for (int i = 0; i < 2; i++)
                pthread_create(&threads[i], 0, load, i ? "./one.so" : "./two.so");
            for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
            printf("%d\n", code_mappings() - before);
            return 3;
        }
    "#;
    let built = built(&format!("{ALLOCATOR}{PLUGIN}"), LOADING, true);
    built.run("gcc -O2 -g -shared -fPIC allocator.c -o one.so");
    built.run("gcc -O1 -g -shared -fPIC -DTWO allocator.c -o two.so");
    built.run("gcc -O2 -g work.c -o work -pthread -ldl");
    let folder = tempfile::tempdir().unwrap();
    for name in ["one.so", "two.so"] {
        std::fs::copy(built.path(name), folder.path().join(name)).unwrap();
    }
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!((said.code, &*said.out), (3, "0\n"), "{}", said.err);
    assert!(!said.err.contains("not recorded"), "{}", said.err);
    let flat = |of, function| flat(folder.path(), of, function);
    assert_eq!(flat("alloc_objects", "begin"), 1000, "{}", said.err);
    assert_eq!(flat("alloc_objects", "plugin_work"), 2000);
    let sizes: i64 = (1..=500).map(|i| 2 * (3 * i + 100)).sum();
    assert_eq!(flat("alloc_space", "plugin_work"), sizes);
    assert_eq!(flat("inuse_objects", "plugin_work"), 1000);
    assert_eq!(flat("inuse_objects", "begin"), 0);
    let info = comments(folder.path());
    assert_eq!(info.matches("allocator hooked: ").count(), 2, "{info}");
    assert!(!info.contains("not hooked"), "{info}");
}

/// A program that is started by the loader's name is not the file that the process executes.
#[test]
fn a_program_behind_its_loader_is_hooked() {
    const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
    if !is_supported() || !Path::new(LOADER).exists() {
        eprintln!("SKIPPED: there is no {LOADER}");
        return;
    }
    let built = built(ALLOCATOR, PROGRAM, false);
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(heapprof());
    command.args(["record", "-o", "p.pb.gz", "--exact", "--", LOADER]);
    command.arg(built.path("work"));

    let said = Run::from(command.current_dir(folder.path()).output().unwrap());
    assert_eq!(said.code, 3, "{}", said.err);
    assert_eq!(flat(folder.path(), "alloc_objects", "work"), 48_000);
    let info = comments(folder.path());
    let own = format!("of jemalloc inside {}", built.path("work").display());
    assert!(info.contains(&own), "{info}");
}

/// `--allocators` names the allocators that are recorded, and wins over the variable.
#[test]
fn allocators_are_chosen_by_name() {
    if !is_supported() {
        return;
    }
    let built = built(ALLOCATOR, PROGRAM, false);
    let folder = tempfile::tempdir().unwrap();
    for (option, count) in [
        ("auto", 48_000),
        ("mimalloc,jemalloc", 48_000),
        ("mimalloc", 0),
        ("none", 0),
    ] {
        let options = ["--exact", "--allocators", option];
        let said = recorded(folder.path(), &built, &options, &[]);
        assert_eq!(said.code, 3, "{}", said.err);
        assert_eq!(flat(folder.path(), "alloc_objects", "work"), count);
        let is_missing = said.err.contains(") are not recorded");
        let is_there = said.err.contains(": also recorded: jemalloc inside");
        assert_eq!(
            (is_missing, is_there),
            (count == 0, count != 0),
            "{}",
            said.err
        );
    }
    let said = recorded(folder.path(), &built, &["--allocators", "jmalloc"], &[]);
    assert_eq!(said.code, 2);
    assert!(
        said.err
            .contains("'jmalloc' is no known allocator; auto, none"),
        "{}",
        said.err
    );
}

/// The functions that only jemalloc has are hooked in its shared library, too. malloc's family is
/// seen by name, and counts once.
#[test]
fn functions_of_a_shared_jemalloc_are_hooked() {
    const SHARED: &str = r#"
        #include <stdio.h>
        #include <stdlib.h>
        void *mallocx(size_t, int), *rallocx(void *, size_t, int);
        void dallocx(void *, int), sdallocx(void *, size_t, int);
        __attribute__((noinline)) void work(void) {
            for (int i = 0; i < 1000; i++) {
                void *p = mallocx(100, 0), *q = malloc(200), *r = calloc(3, 50);
                p = rallocx(p, 300, 0);
                q = realloc(q, 400);
                sdallocx(q, 400, 0);
                if (i % 2) dallocx(p, 0);
                else free(p);
                if (i % 4) free(r);
            }
        }
        int main(void) { work(); return 3; }
    "#;
    if !is_supported() {
        return;
    }
    let built = with_source("work.c", SHARED);
    let linked = Command::new("gcc")
        .args([
            "-O2",
            "-fno-builtin",
            "-g",
            "-w",
            "work.c",
            "-o",
            "work",
            "-l:libjemalloc.so.2",
        ])
        .current_dir(built.path(""))
        .output();
    if !linked.unwrap().status.success() {
        eprintln!("SKIPPED: there is no libjemalloc.so.2");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!(said.code, 3, "{}", said.err);
    let flat = |of| flat(folder.path(), of, "work");
    assert_eq!(flat("alloc_objects"), 5000, "{}", said.err);
    assert_eq!(flat("alloc_space"), 1000 * (100 + 200 + 150 + 300 + 400));
    assert_eq!(flat("inuse_objects"), 250);
    assert!(!said.err.contains("not recorded"), "{}", said.err);
}

/// A function that begins with a call through a pointer can't have a jump, and the arguments of a
/// clone are not known. Then no function of the allocator has a jump: blocks whose frees are not
/// seen would look like leaks.
#[test]
fn an_allocator_with_a_function_that_cannot_be_hooked_is_named() {
    if !is_supported() {
        return;
    }
    let calling = r#"
        void *(*const je_pointer)(size_t) = je_malloc;
        __asm__(".globl je_mallocx\n.type je_mallocx, @function\n"
                "je_mallocx: push %rax\ncall *je_pointer(%rip)\npop %rcx\nret\n"
                ".size je_mallocx, .-je_mallocx\n");
    "#;
    let built = built(&format!("{ALLOCATOR}{calling}"), PROGRAM, false);
    let folder = tempfile::tempdir().unwrap();
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert_eq!(flat(folder.path(), "alloc_objects", "work"), 0);
    assert!(
        said.err.contains("the blocks of jemalloc inside"),
        "{}",
        said.err
    );
    let info = comments(folder.path());
    let reason =
        "allocator not hooked: je_mallocx can't be hooked: one of its first instructions is";
    assert!(info.contains(reason), "{info}");
}
