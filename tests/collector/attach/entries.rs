//! Jumps at the entries of a running program's allocator: all calls are recorded, whatever leads to
//! them, the code is as before afterwards, and no thread notices that it changes.

use std::os::unix::fs::FileExt;
use std::process::Command;

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::{json, rows_of};
use heapprof_tests::harness::root;
use heapprof_tests::needs;

use super::{Attach, Waiting, compilers, total};
use crate::entry_hooks::ALLOCATOR;

const POINTERS: &str = include_str!("../../attach/pointers.c");

fn pointers(compiler: &str) -> Built {
    build(POINTERS, &format!("{compiler} -O1 -g -pthread"))
}

/// Tests that calls through pointers that were copied before are recorded, and that frees of older
/// blocks are no leaks.
#[test]
fn calls_through_copied_pointers_are_recorded() {
    for compiler in compilers() {
        let built = pointers(compiler);
        let mut program = Waiting::new(&built.path("program"), "");
        for times in [1, 3, 0, 2] {
            let said = program.attached(times);
            assert_eq!(said.code, 0, "{}", said.err);
            let expected = 50 * times as i64;
            assert_eq!(program.total("alloc_objects"), expected, "{compiler}");
            let in_use = if times == 0 { 0 } else { 10 };
            assert_eq!(program.total("inuse_objects"), in_use, "{compiler}");
            assert_eq!(program.total("inuse_space"), 1000 * in_use, "{compiler}");
        }
        assert_eq!(program.end().code(), Some(7), "{compiler}");
    }
}

/// Tests that an allocator inside the program is recorded, unless that is not wanted.
#[test]
fn an_allocator_inside_a_running_program_is_recorded() {
    if !have(&["gcc"]) {
        return;
    }
    let source = format!(
        "{ALLOCATOR}\n{}",
        POINTERS.replace("#define _GNU_SOURCE", "")
    );
    let built = build(&source, "gcc -D_GNU_SOURCE -DINNER -O1 -g -pthread");
    let mut program = Waiting::new(&built.path("program"), "");
    for (choice, expected) in [
        ("none", 0),
        ("auto", 100),
        ("jemalloc", 100),
        ("none", 0),
        ("auto", 100),
    ] {
        let options = ["--exact", "--allocators", choice];
        let attach = Attach::begin(program.folder.path(), &program.pid(), &options);
        program.work();
        program.work();
        let said = attach.leave();
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(program.total("alloc_objects"), expected, "{choice}");
        let shown = format!(
            "also recorded: jemalloc inside {}",
            built.path("program").display()
        );
        assert_eq!(said.err.contains(&shown), expected > 0, "{}", said.err);
    }
    assert_eq!(program.end().code(), Some(7));
}

/// Tests that a program is recorded which has its own malloc. The thread that loads the library
/// waits for input then, and the loader calls this malloc.
#[test]
fn a_program_with_a_malloc_of_its_own_is_recorded() {
    if !have(&["gcc"]) {
        return;
    }
    let malloc = ALLOCATOR.replace("je_", "");
    let source = format!("{malloc}\n{}", POINTERS.replace("#define _GNU_SOURCE", ""));
    let built = build(
        &source,
        "gcc -D_GNU_SOURCE -O1 -g -pthread -fno-builtin -rdynamic",
    );
    let mut program = Waiting::new(&built.path("program"), "");
    for times in [2, 1] {
        let said = program.attached(times);
        assert_eq!(said.code, 0, "{}", said.err);
        assert_eq!(program.total("alloc_objects"), 50 * times as i64);
        assert_eq!(program.total("inuse_space"), 10_000);
    }
    assert_eq!(program.end().code(), Some(7));
}

/// Tests that code which the program has changed itself is left alone: another tool may have hooked
/// it, or a debugger may have a breakpoint there.
#[test]
fn code_that_was_changed_is_left_alone() {
    if !have(&["gcc"]) {
        return;
    }
    const CHANGED: &str = r#"
        #include <sys/mman.h>
        static void *other(size_t size) { return je_calloc(1, size); }
        __attribute__((constructor)) static void change(void) {
            char *at = (char *)je_malloc;
            char *page = (char *)((unsigned long)at & ~4095UL);
            int all = PROT_READ | PROT_WRITE | PROT_EXEC;
            if (mprotect(page, 8192, all)) __builtin_trap();
            int distance = (int)((char *)other - at - 5);
            *at = (char)0xe9;
            __builtin_memcpy(at + 1, &distance, 4);
            if (mprotect(page, 8192, PROT_READ | PROT_EXEC)) __builtin_trap();
        }
    "#;
    // je_calloc has memory of its own, so that je_malloc can lead there.
    let allocator = ALLOCATOR
        .replace(
            "void *je_malloc(size_t size) {",
            "void *first_malloc(size_t size) {",
        )
        .replace("void *p = je_malloc(", "void *p = first_malloc(")
        .replace(
            "__attribute__((noinline)) void je_free",
            "__attribute__((noinline, aligned(64))) void *je_malloc(size_t size) {
                 return first_malloc(size);
             }
             __attribute__((noinline)) void je_free",
        )
        .replace(
            "#include <errno.h>",
            "#include <errno.h>\n#include <stddef.h>",
        );
    let pointers = POINTERS.replace("#define _GNU_SOURCE", "");
    let source = format!("{allocator}\n{pointers}\n{CHANGED}")
        .replace("align <= 16 ? je_malloc", "align <= 16 ? first_malloc");
    let built = build(
        &source,
        "gcc -D_GNU_SOURCE -DINNER -O1 -g -pthread -fno-optimize-sibling-calls",
    );
    let mut program = Waiting::new(&built.path("program"), "");
    let said = program.attached(2);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(program.total("alloc_objects"), 0, "{}", said.err);
    let info = program.run(&["info", "p.pb.gz"]).out;
    assert!(info.contains("je_malloc was changed in memory"), "{info}");
    assert_eq!(program.end().code(), Some(7));
}

/// Returns the code of all files in a process's memory, as it differs from the files: the path and
/// the number of bytes.
fn changed_code(pid: &str) -> Vec<(String, usize)> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = std::fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut changed = Vec::new();
    for line in maps.lines().filter(|line| line.contains("r-xp")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(path) = words
            .get(5)
            .filter(|path| path.starts_with("/usr/") || path.starts_with("/tmp"))
        else {
            continue;
        };
        let (from, to) = words[0].split_once('-').unwrap();
        let [from, to, offset] =
            [from, to, words[2]].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut loaded = vec![0; (to - from) as usize];
        memory.read_exact_at(&mut loaded, from).unwrap();
        let file = std::fs::read(path).unwrap();
        let file = &file[offset as usize..];
        let differs = loaded.iter().zip(file).filter(|(a, b)| a != b).count();
        if differs > 0 {
            changed.push((path.to_string(), differs));
        }
    }
    changed
}

#[test]
fn the_code_is_as_before_afterwards() {
    if !have(&["gcc"]) {
        return;
    }
    let built = pointers("gcc");
    let mut program = Waiting::new(&built.path("program"), "");
    let pid = program.pid();
    for _ in 0..2 {
        assert_eq!(changed_code(&pid), []);
        let attach = Attach::begin(program.folder.path(), &pid, &[]);
        program.work();
        let changed = changed_code(&pid);
        // libc's malloc, and the loader's function for debuggers.
        let files: Vec<&str> = changed
            .iter()
            .filter_map(|(path, _)| path.rsplit('/').next())
            .collect();
        assert!(
            files.iter().any(|file| file.starts_with("libc")),
            "{changed:?}"
        );
        assert!(files.len() <= 2, "{changed:?}");
        assert!(
            changed.iter().all(|(_, bytes)| *bytes <= 5 * 20),
            "{changed:?}"
        );
        let said = attach.leave();
        assert_eq!(said.code, 0, "{}", said.err);
        program.work();
    }
    assert_eq!(changed_code(&pid), []);
    assert_eq!(program.end().code(), Some(7));
}

/// Tests that a thread goes on which a signal has interrupted between the instructions that a jump
/// replaces.
#[test]
fn an_interrupted_thread_goes_on_behind_the_jump() {
    if !have(&["gcc"]) {
        return;
    }
    let built = pointers("gcc");
    let source = std::fs::read_to_string(root().join("tests/attach/interrupter.c")).unwrap();
    let interrupter = build(&source, "gcc -O1 -g");
    for _ in 0..5 {
        let mut program = Waiting::new(&built.path("program"), "interrupted");
        let place = program.answer();
        let words: Vec<&str> = place.split_whitespace().collect();
        let done = Command::new(interrupter.path("program"))
            .args(&words)
            .output()
            .unwrap();
        if done.status.code() == Some(3) {
            needs::miss("hardware breakpoints", "ptrace with debug registers");
            return;
        }
        assert!(done.status.success(), "{done:?}");
        let offset: i64 = String::from_utf8(done.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert!(offset > 0, "{offset}");
        assert_eq!(program.answer(), "interrupted\n");
        let attach = Attach::begin(program.folder.path(), &program.pid(), &["--exact"]);
        program.work();
        let said = attach.leave();
        assert_eq!(said.code, 0, "{}", said.err);
        assert!(total(program.folder.path(), "p.pb.gz", "alloc_objects") >= 999);
        program.work();
        assert_eq!(program.end().code(), Some(7));
    }
}

/// Tests that a library is searched again which was replaced while nobody was attached. The loader
/// maps it to where the one before was.
#[test]
fn a_library_that_was_replaced_meanwhile_is_searched_again() {
    if !have(&["gcc"]) {
        return;
    }
    const RELOADS: &str = r#"
        #include <dlfcn.h>
        #include <stdio.h>
        #include <unistd.h>
        static void *library;
        static void work(void) {
            void *(*allocate)(unsigned long);
            *(void **)&allocate = dlsym(library, "je_malloc");
            void (*release)(void *) = (void (*)(void *))dlsym(library, "je_free");
            for (int i = 0; i < 50; i++) release(allocate(100));
        }
        int main(int argc, char **argv) {
            char byte;
            library = dlopen(argv[1], RTLD_NOW);
            if (write(1, "ready\n", 6) != 6) return 1;
            for (int line = 1; read(0, &byte, 1) == 1; line++) {
                // Each second time, the library is loaded anew.
                if (line % 2 == 0) {
                    dlclose(library);
                    library = dlopen(argv[1], RTLD_NOW);
                }
                work();
                if (write(1, "done\n", 5) != 5) return 2;
            }
            return 7;
        }
    "#;
    let built = build(RELOADS, "gcc -O1 -g");
    let source = |file: &str, text: &str| std::fs::write(built.path(file), text).unwrap();
    source("one.c", ALLOCATOR);
    // Its functions are elsewhere.
    let other = format!("int padding(int n) {{ return n * n + 7; }}\n{ALLOCATOR}");
    source(
        "other.c",
        &other
            .replace("+ 16", "+ 32")
            .replace("- 16", "- 32")
            .replace("[-2]", "[-4]"),
    );
    built.run("gcc -O1 -g -shared -fPIC one.c -o library.so");
    built.run("gcc -O2 -g -shared -fPIC other.c -o other.so");
    let path = built.path("library.so");
    let mut program = Waiting::new(&built.path("program"), &path.to_string_lossy());
    program.work();
    let said = program.attached(2);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(recorded_in_library(&program), 100, "{}", said.err);
    std::fs::rename(built.path("other.so"), &path).unwrap();
    program.work();
    let said = program.attached(1);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(recorded_in_library(&program), 50, "{}", said.err);
    assert_eq!(program.end().code(), Some(7));
}

/// Returns how many allocations the function `work` has made itself.
fn recorded_in_library(program: &Waiting) -> i64 {
    let words = [
        "top",
        "-n",
        "0",
        "--all-code",
        "-t",
        "alloc_objects",
        "-f",
        "json",
    ];
    let top = json(program.folder.path(), &[&words[..], &["p.pb.gz"]].concat());
    let rows = rows_of(&top, "work");
    rows.iter().filter_map(|row| row["flat"].as_i64()).sum()
}
