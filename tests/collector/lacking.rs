//! Reports about what a recording could not see: stacks that end before their outermost frame,
//! allocators that are called by other names than malloc's, frees that bypassed the hooks.

use std::path::Path;

use heapprof_tests::built::{Built, build, have, library};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, run};

/// Four nested functions, of which the innermost allocates 100 blocks.
const NESTED: &str = r#"
#include <stdlib.h>
#include <string.h>
void *keep[100];
__attribute__((noinline)) void *leaf(int n) { void *p = malloc(n); memset(p, 1, n); return p; }
__attribute__((noinline)) void *middle(int n) { volatile int x = n; void *p = leaf(x); return p; }
__attribute__((noinline)) void *upper(int n) {
    char b[64];
    memset(b, n, 64);
    void *p = middle(n + b[3] - (char)n);
    return p;
}
int main(void) { for (int i = 0; i < 100; i++) keep[i] = upper(1000); return 0; }
"#;

const NO_TABLES: &str = "-fno-asynchronous-unwind-tables -fno-unwind-tables -fomit-frame-pointer";

fn record(built: &Built, more: &[&str]) -> Run {
    let words = [
        &["record", "--exact", "-o", "p.pb.gz"],
        more,
        &["--", "./program"],
    ]
    .concat();
    let recorded = run(built.folder.path(), &words);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    recorded
}

fn info(folder: &Path) -> serde_json::Value {
    json(folder, &["info", "-f", "json", "p.pb.gz"])
}

fn functions(folder: &Path) -> Vec<String> {
    let top = json(
        folder,
        &[
            "top",
            "-n",
            "0",
            "-t",
            "alloc_space",
            "-f",
            "json",
            "p.pb.gz",
        ],
    );
    let rows = top["rows"].as_array().unwrap();
    let names = rows.iter().map(|row| row["function"].as_str().unwrap());
    names.map(str::to_string).collect()
}

#[test]
fn stacks_without_unwind_tables_are_counted_by_file() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = build(NESTED, &format!("gcc -O1 {NO_TABLES}"));
    let folder = built.folder.path();
    let said = record(&built, &[]).err;
    assert!(
        said.contains(
            "some callers are missing, because a stack ends early: 1 stack (100 allocations, "
        ) && said.contains("/program, which has unwind tables that do not reach that code")
            && said.contains("-fno-omit-frame-pointer"),
        "{said}"
    );
    let ends = info(folder)["early_ends"].clone();
    let [end] = &ends.as_array().unwrap()[..] else {
        panic!("{ends}");
    };
    assert!(end["file"].as_str().unwrap().ends_with("/program"), "{end}");
    assert_eq!(
        (&end["stacks"], &end["alloc_objects"], &end["alloc_space"]),
        (&1.into(), &100.into(), &100_000.into())
    );
    let text = run(folder, &["info", "p.pb.gz"]).out;
    assert!(
        text.contains("Partial stacks   1 stack (100 allocations"),
        "{text}"
    );
    // The ledger of a killed program has this number, too.
    let killed = build(
        &NESTED
            .replace("return 0; }\n", "raise(9); return 0; }\n")
            .replace(
                "#include <string.h>",
                "#include <string.h>\n#include <signal.h>",
            ),
        &format!("gcc -O1 {NO_TABLES}"),
    );
    let words = ["record", "--exact", "-o", "p.pb.gz", "--", "./program"];
    let recorded = run(killed.folder.path(), &words);
    assert!(
        recorded.err.contains("a stack ends early: 1 stack"),
        "{}",
        recorded.err
    );
}

/// The unwind tables are read even if the linker made no search table for them.
#[test]
fn unwind_tables_without_a_header_are_read() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    for options in ["-Wl,--no-eh-frame-hdr", "-no-pie -Wl,--no-eh-frame-hdr"] {
        let built = build(NESTED, &format!("gcc -O1 -fomit-frame-pointer {options}"));
        let said = record(&built, &[]).err;
        assert!(!said.contains("early"), "{options}: {said}");
        let found = functions(built.folder.path());
        for function in ["leaf", "middle", "upper", "main"] {
            assert!(
                found.iter().any(|name| name == function),
                "{options}: {found:?}"
            );
        }
        assert!(info(built.folder.path())["early_ends"].is_null());
    }
    // A library that is loaded later is found when code is scanned again. Stacks through it that
    // were taken before that are counted.
    let built = build(
        "#include <dlfcn.h>\n#include <stdlib.h>\n#include <unistd.h>\n\
         int main(void) { void *l = dlopen(\"./later.so\", RTLD_NOW); \
         void (*f)(int) = (void (*)(int))dlsym(l, \"upper\"); \
         for (int i = 0; i < 100000; i++) f(1000); return 0; }",
        "gcc -O1",
    );
    let library = NESTED
        .replace(
            "int main(void) { for (int i = 0; i < 100; i++) keep[i] = upper(1000); return 0; }",
            "",
        )
        .replace(
            "void *p = middle(n + b[3] - (char)n);\n    return p;",
            "void *p = middle(n + b[3] - (char)n);\n    free(p);\n    return p;",
        );
    std::fs::write(built.path("later.c"), library).unwrap();
    built.run(
        "gcc -O1 -fomit-frame-pointer -shared -fPIC -Wl,--no-eh-frame-hdr -o later.so later.c",
    );
    record(&built, &[]);
    let found = functions(built.folder.path());
    assert!(found.iter().any(|name| name == "main"), "{found:?}");
}

/// Stacks that end where they should are not counted: those of threads, constructors, contexts and
/// signals.
#[test]
fn whole_stacks_are_not_counted() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let source = r#"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <ucontext.h>
void *volatile keep[100];
static ucontext_t back, context;
static char stack[65536];
static void in_context(void) { for (int i = 20; i < 30; i++) keep[i] = malloc(100); }
static void *in_thread(void *x) { for (int i = 0; i < 10; i++) keep[i] = malloc(50); return x; }
static void in_handler(int s) { keep[40] = malloc(77 + s - s); }
__attribute__((constructor)) static void begin(void) { keep[50] = malloc(66); }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, in_thread, 0);
    pthread_join(thread, 0);
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = sizeof stack;
    context.uc_link = &back;
    makecontext(&context, in_context, 0);
    swapcontext(&back, &context);
    signal(SIGUSR1, in_handler);
    raise(SIGUSR1);
    return 0;
}
"#;
    let built = build(source, "gcc -O1 -g -pthread");
    let said = record(&built, &[]).err;
    assert!(!said.contains("early"), "{said}");
    let info = info(built.folder.path());
    assert!(info["early_ends"].is_null(), "{info}");
    let found = functions(built.folder.path());
    for function in ["in_context", "in_thread", "in_handler", "begin"] {
        assert!(found.iter().any(|name| name == function), "{found:?}");
    }
}

/// A linked allocator with its own function names is named, with its file.
#[test]
fn an_allocator_inside_the_program_is_named() {
    if !have(&["gcc"]) {
        return;
    }
    for (allocates, frees, name) in [
        ("mi_malloc_aligned", "mi_free", "mimalloc"),
        ("_rjem_malloc", "_rjem_sdallocx", "jemalloc"),
        ("rpmalloc", "rpfree", "rpmalloc"),
        ("sn_rust_alloc", "sn_rust_dealloc", "snmalloc"),
        ("Perl_malloced_size", "Perl_mfree", "Perl's own malloc"),
    ] {
        let source = format!(
            "#include <sys/mman.h>\n#include <string.h>\n#include <stdlib.h>\n\
             __attribute__((noinline)) void *{allocates}(size_t n) {{ return memset(mmap(0, n, 3, \
             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, n); }}\n\
             __attribute__((noinline)) void {frees}(void *p) {{ *(char *)p = 0; }}\n\
             int main(void) {{ free(malloc(10)); {frees}({allocates}(10 << 20)); return 0; }}"
        );
        let built = build(&source, "gcc -O1 -w");
        let said = record(&built, &[]).err;
        let line = said.lines().find(|line| line.contains("are not recorded"));
        let line = line.unwrap_or_else(|| panic!("{name}: {said}"));
        assert!(
            line.contains(&format!("the blocks of {name}"))
                && line.contains(&format!("/program ({allocates})"))
                && line.contains("of the peak RSS 1")
                && line.contains("is not in the profile"),
            "{line}"
        );
        assert!(!said.contains("is not heap"), "{said}");
        let unseen = info(built.folder.path())["unseen_allocators"].clone();
        assert!(unseen[0].as_str().unwrap().contains(name), "{unseen}");
        let text = run(built.folder.path(), &["info", "p.pb.gz"]).out;
        assert!(text.contains("Not recorded     the blocks of "), "{text}");
    }
}

/// Other functions of a shared allocator are reported, because they bypass malloc.
#[test]
fn functions_of_a_shared_allocator_are_named() {
    let Some(jemalloc) = library("libjemalloc.so.2").filter(|_| have(&["gcc"])) else {
        return;
    };
    let calls = [
        ("keep = mallocx(1000, 0);", "mallocx", "such blocks"),
        (
            "keep = malloc(1000); sdallocx(keep, 1000, 0);",
            "sdallocx",
            "such frees",
        ),
    ];
    for (call, function, missing) in calls {
        let source = format!(
            "#include <stdlib.h>\nvoid *mallocx(size_t, int); void sdallocx(void *, size_t, int); \
             void *volatile keep; int main(void) {{ {call} return 0; }}"
        );
        let built = build(&source, "gcc -c -O1 -w");
        built.run("mv program program.o");
        built.run(&format!("gcc -o program program.o {jemalloc}"));
        let said = record(&built, &["--allocators", "none"]).err;
        let wanted = format!("/program calls {function} of jemalloc, bypassing malloc; {missing}");
        assert!(said.contains(&wanted), "{said}");
    }
    // A program that calls only malloc is recorded completely.
    let built = build(NESTED, "gcc -c -O1 -w");
    built.run("mv program program.o");
    built.run(&format!(
        "gcc -o program program.o -Wl,--no-as-needed {jemalloc}"
    ));
    let said = record(&built, &[]).err;
    assert!(!said.contains("are not recorded"), "{said}");
    assert!(info(built.folder.path())["unseen_allocators"].is_null());
}

#[test]
fn a_second_c_library_is_named() {
    if !have(&["gcc"]) {
        return;
    }
    let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdlib.h>\n\
                  int main(void) { free(malloc(10)); void *l = dlmopen(LM_ID_NEWLM, \
                  \"./part.so\", RTLD_NOW); \
                  void *(*f)(void) = (void *(*)(void))dlsym(l, \"part\"); \
                  return f() == 0; }";
    let built = build(source, "gcc -O1 -w");
    std::fs::write(
        built.path("part.c"),
        "#include <stdlib.h>\nvoid *part(void) { return malloc(5000); }",
    )
    .unwrap();
    built.run("gcc -O1 -shared -fPIC -o part.so part.c");
    let said = record(&built, &[]).err;
    assert!(
        said.contains("dlmopen has loaded a second C library (")
            && said.contains("libc.so.6), whose blocks are not recorded"),
        "{said}"
    );
}

/// Blocks whose free was not seen are no longer counted as in use once their addresses are
/// allocated again, and their number is reported.
#[test]
fn frees_by_other_ways_are_counted_when_addresses_come_again() {
    if !have(&["gcc"]) {
        return;
    }
    // The pointer is libc's own function, regardless of preloaded libraries.
    let source = "#include <dlfcn.h>\n#include <stdlib.h>\nvoid *volatile p[50];\n\
                  int main(void) { void *libc = dlopen(\"libc.so.6\", RTLD_NOW); \
                  void (*give)(void *) = (void (*)(void *))dlsym(libc, \"free\"); \
                  for (int i = 0; i < 50; i++) { p[i] = malloc(1000); give(p[i]); } return 0; }";
    let built = build(source, "gcc -O1 -w");
    let said = record(&built, &[]).err;
    assert!(
        said.contains(
            "the frees of 49 blocks (47.85KiB) were noticed only when their addresses were"
        ),
        "{said}"
    );
    let folder = built.folder.path();
    let unseen = info(folder)["unseen_frees"].clone();
    assert_eq!(unseen, serde_json::json!({"blocks": 49, "bytes": 49_000}));
    let top = json(
        folder,
        &[
            "top",
            "--all-code",
            "-t",
            "inuse_space",
            "-f",
            "json",
            "--focus",
            "main",
            "p.pb.gz",
        ],
    );
    let main = top["rows"]
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["function"] == "main");
    assert_eq!(main.unwrap()["flat"], 1000, "{top}");
}
