//! A program runs under jemalloc, and jeprof and heapprof both read its dumps.

use std::path::Path;
use std::process::Command;

use super::{assert_close, ours, stacks, theirs};
use heapprof_tests::built::{Built, build, have, library};
use heapprof_tests::needs::miss;

/// A program with two threads, recursion and inlined functions. It dumps to the files that its
/// arguments name.
pub(super) const LIVE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
static void *kept[100000];
static int count;
static void keep(void *p) { kept[__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED)] = p; }
static inline __attribute__((always_inline)) void *small(int i) { return malloc(16 + i % 50); }
__attribute__((noinline)) void fill(int n) {
    for (int i = 0; i < n; i++) {
        keep(small(i));
        free(malloc(100));
    }
}
__attribute__((noinline)) void nested(int depth) {
    keep(calloc(depth, 333));
    if (depth > 1) nested(depth - 1);
    keep(malloc(77));
}
__attribute__((noinline)) void other(int n) {
    for (int i = 0; i < n; i++) nested(1 + i % 7);
    fill(n);
}
static void *worker(void *n) {
    other((int)(long)n);
    keep(realloc(malloc(5000), 50000));
    return 0;
}
static void dump(const char *path) {
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    if (!mallctl || mallctl("prof.dump", 0, 0, &path, sizeof path)) exit(9);
}
int main(int argc, char **argv) {
    pthread_t threads[2];
    fill(300);
    void *big = malloc(300000);
    dump(argv[1]);
    free(big);
    for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, worker, (void *)(500 + 100 * i));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    other(200);
    dump(argv[2]);
    return argc - 3;
}
"#;

/// Makes the dumps `NAME.1` and `NAME.2` of the program under jemalloc. Returns whether this is
/// possible.
pub(super) fn dumped(built: &Built, name: &str, options: &str) -> bool {
    let Some(jemalloc) = library("libjemalloc.so.2") else {
        return false;
    };
    let status = Command::new(&built.program)
        .args([format!("{name}.1"), format!("{name}.2")])
        .current_dir(built.folder.path())
        .env("LD_PRELOAD", jemalloc)
        .env("MALLOC_CONF", format!("prof:true,{options}"))
        .status()
        .unwrap();
    if !status.success() {
        miss("a jemalloc that was built with prof", "libjemalloc2");
        return false;
    }
    for dump in [1, 2] {
        let file = built.path(&format!("{name}.{dump}"));
        without_system(&file);
    }
    true
}

/// Leaves only the program and jemalloc in a dump. Which other libraries have names depends on this
/// machine's debug packages, and jeprof takes long to search them.
fn without_system(dump: &Path) {
    let text = std::fs::read_to_string(dump).unwrap();
    let is_kept = |line: &str| line.contains("libjemalloc") || line.ends_with("/program");
    let lines = text.lines().map(|line| match is_kept(line) {
        true => format!("{line}\n"),
        false => line.replace(" /", " /nowhere/") + "\n",
    });
    std::fs::write(dump, lines.collect::<String>()).unwrap();
}

#[test]
fn a_live_dump() {
    if !have(&["jeprof", "gcc", "nm", "addr2line"]) {
        return;
    }
    let built = build(LIVE, "gcc -g -O1 -fno-omit-frame-pointer -pthread");
    let folder = built.folder.path();
    if !dumped(&built, "exact", "lg_prof_sample:0,prof_accum:true") {
        return;
    }
    for args in [
        &["--text"][..],
        &["--cum"],
        &["--show_bytes"],
        &["--inuse_objects"],
        &["--alloc_space", "--show_bytes"],
        &["--alloc_objects", "--cum"],
        &["--lines"],
        &["--lines", "--cum", "--show_bytes"],
        &["--addresses"],
        &["--focus=nested"],
        &["--ignore=fill", "--show_bytes"],
        &["--retain=nested|main", "--cum"],
        &["--exclude=nested", "--lines"],
        &["--base=exact.1", "--show_bytes"],
        &["--base=exact.1", "--show_bytes", "--drop_negative", "--cum"],
        &["--thread=1", "--show_bytes"],
        &["--thread=*", "--show_bytes", "--cum"],
    ] {
        let args = [args, &["./program", "exact.2"]].concat();
        let theirs = theirs("jeprof", folder, &args);
        assert!(theirs.lines().count() > 2, "{args:?}: {theirs}");
        assert_eq!(ours(folder, &args), theirs, "{args:?}");
    }
    // This difference has stacks that shrank, and rows below 0.
    let args = ["--base=exact.2", "--show_bytes", "./program", "exact.1"];
    let them = theirs("jeprof", folder, &args);
    assert!(them.starts_with("Total: -"), "{them}");
    assert_eq!(ours(folder, &args), them);

    let args = ["--collapsed", "./program", "exact.2"];
    let them = stacks(&theirs("jeprof", folder, &args));
    let recursive = |stack: &String| stack.contains("main;other;nested;nested;nested;nested");
    assert!(them.keys().any(recursive), "{them:?}");
    assert_eq!(stacks(&ours(folder, &args)), them);
}

/// A C++ program: it has names that are cut, templates that it exports besides its own `main`, and
/// `operator new`.
const LIVE_CXX: &str = r#"
#include <map>
#include <string>
#include <vector>
namespace shop {
struct Item { std::string name; std::vector<int> sizes; };
template <class T> struct Shelf {
    std::vector<T> goods;
    __attribute__((noinline)) void put(const T &good) { goods.push_back(good); }
};
__attribute__((noinline)) int stock(Shelf<Item> &shelf, int n) {
    for (int i = 0; i < n; i++) shelf.put(Item{std::string(100 + i % 7, 'x'), std::vector<int>(i % 50)});
    return n;
}
}
int main() {
    auto &shelf = *new shop::Shelf<shop::Item>;
    auto &names = *new std::map<int, std::string>;
    for (int i = 0; i < 500; i++) names[i] = std::string(50, 'z');
    return shop::stock(shelf, 2000) - 2000;
}
"#;

#[test]
fn a_live_dump_of_cxx() {
    if !have(&["jeprof", "g++", "nm", "addr2line"]) {
        return;
    }
    let Some(jemalloc) = library("libjemalloc.so.2") else {
        return;
    };
    let built = build(LIVE_CXX, "g++ -g -O1 -fno-omit-frame-pointer");
    let folder = built.folder.path();
    let options = "prof:true,prof_final:true,lg_prof_sample:0,prof_prefix:cxx";
    let program = Command::new(&built.program)
        .current_dir(folder)
        .env("LD_PRELOAD", jemalloc)
        .env("MALLOC_CONF", options)
        .status();
    assert!(program.unwrap().success());
    let mut files = std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path());
    let Some(dump) = files.find(|file| file.extension().is_some_and(|e| e == "heap")) else {
        return miss("a jemalloc that was built with prof", "libjemalloc2");
    };
    without_system(&dump);
    let dump = dump.to_str().unwrap();
    for args in [
        &["--show_bytes"][..],
        &["--cum", "--inuse_objects"],
        &["--lines", "--show_bytes"],
        &["--addresses", "--cum"],
        &["--focus=stock", "--show_bytes"],
        &["--ignore=string", "--inuse_objects"],
        &["--exclude=std::", "--show_bytes"],
    ] {
        let args = [args, &["./program", dump]].concat();
        let theirs = theirs("jeprof", folder, &args);
        assert!(theirs.contains(" main"), "{args:?}: {theirs}");
        assert_eq!(ours(folder, &args), theirs, "{args:?}");
    }
    // All functions that allocate below `operator new(unsigned long)` are cut with it.
    let collapsed = ours(folder, &["--collapsed", "./program", dump]);
    assert!(!collapsed.contains("operator new"), "{collapsed}");
}

/// Sampled values have fractions.
#[test]
fn a_live_sampled_dump() {
    if !have(&["jeprof", "gcc", "nm", "addr2line"]) {
        return;
    }
    let built = build(LIVE, "gcc -g -O1 -fno-omit-frame-pointer -pthread");
    let folder = built.folder.path();
    if !dumped(&built, "sampled", "lg_prof_sample:10,prof_accum:true") {
        return;
    }
    let text = std::fs::read_to_string(folder.join("sampled.2")).unwrap();
    let stacks = text.matches('@').count();
    for args in [
        &["--show_bytes"][..],
        &["--alloc_space", "--show_bytes", "--lines"],
        &["--inuse_objects", "--cum"],
        &["--base=sampled.1", "--show_bytes"],
        &["--thread=2", "--show_bytes"],
        &["--thread=*", "--alloc_objects"],
    ] {
        let args = [args, &["./program", "sampled.2"]].concat();
        let theirs = theirs("jeprof", folder, &args);
        let ours = ours(folder, &args);
        // Both sides of a difference have their fractions cut off.
        assert_close(&theirs, &ours, 2 * stacks, &format!("{args:?}"));
    }
}
