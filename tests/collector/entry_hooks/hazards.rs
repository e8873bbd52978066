//! Code that runs while an allocator is at work: callbacks of the program, and signal handlers that
//! look at the stack.

use heapprof_tests::built::{build, have};
use heapprof_tests::fixtures::{json, rows_of};

use super::{ALLOCATOR, flat, is_supported, recorded, with_source};

/// A callback of the program, which its allocator calls, allocates. This counts as the allocator's
/// own work, so each request of the program counts once.
#[test]
fn a_callback_inside_an_allocator_is_part_of_the_call() {
    if !is_supported() {
        return;
    }
    const CALLED_BACK: &str = r#"
        static void *given[100];
        static int count;
        __attribute__((noinline)) void callback(void) { given[count] = je_malloc(7); }
        void (*volatile on_request)(void) = callback;
        __attribute__((noinline)) void *je_aligned_alloc(unsigned long align, unsigned long size) {
            on_request();
            return je_malloc(size);
        }
        __attribute__((noinline)) void work(void) {
            for (count = 0; count < 100; count++) {
                void *volatile p = je_aligned_alloc(8, 1000);
                je_free(given[count]);
            }
        }
        int main(void) { work(); return 3; }
    "#;
    let built = with_source("work.c", &format!("{ALLOCATOR}\n{CALLED_BACK}"));
    built.run("gcc -O1 -g -pthread work.c -o work");
    let folder = tempfile::tempdir().unwrap();
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!(said.code, 3, "{}", said.err);
    assert_eq!(
        flat(folder.path(), "alloc_objects", "work"),
        100,
        "{}",
        said.err
    );
    assert_eq!(
        flat(folder.path(), "inuse_space", "work"),
        100_000,
        "{}",
        said.err
    );
    let words = ["top", "-n", "0", "--all-code", "-f", "json", "p.pb.gz"];
    let rows = json(folder.path(), &words);
    assert!(rows_of(&rows, "callback").is_empty(), "{rows}");
}

/// A signal handler unwinds the stack wherever it has interrupted the program: in a stub, in a copy
/// of instructions, in a hook.
#[test]
fn a_handler_unwinds_from_anywhere() {
    if !is_supported() || !have(&["gcc"]) {
        return;
    }
    const UNWOUND: &str = r#"
        #include <execinfo.h>
        #include <signal.h>
        #include <stdio.h>
        #include <sys/time.h>
        void *je_malloc(size_t), *je_realloc(void *, size_t);
        void je_free(void *);
        static volatile int handled;
        static void on_signal(int signal) {
            void *stack[64];
            if (backtrace(stack, 64) < 2) handled = -1000000;
            handled++;
        }
        int main(void) {
            void *stack[1];
            backtrace(stack, 1);
            signal(SIGPROF, on_signal);
            struct itimerval each = {{0, 1000}, {0, 1000}};
            setitimer(ITIMER_PROF, &each, 0);
            for (long i = 0; handled >= 0 && handled < 100; i++)
                je_free(je_realloc(je_malloc(i % 100), 200));
            printf("%d\n", handled);
            return 3;
        }
    "#;
    let built = build(&format!("{ALLOCATOR}\n{UNWOUND}"), "gcc -O1 -g -pthread");
    built.run("cp program work");
    for options in [&["--exact"][..], &["--period", "1MiB"]] {
        let folder = tempfile::tempdir().unwrap();
        let said = recorded(folder.path(), &built, options, &[]);
        assert_eq!((said.code, &*said.out), (3, "100\n"), "{}", said.err);
    }
}
