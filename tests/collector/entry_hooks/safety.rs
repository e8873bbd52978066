//! What the program does is the same with hooks as without: it leaves the allocator by exceptions
//! and jumps, keeps values in registers, and has functions of the same names.

use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::harness::Run;

use super::{comments, flat, is_supported, recorded, with_source};

/// An exception passes through the hook of an operator, and a signal handler jumps out of the
/// allocator. Both leave a call that never ends, and the thread's later calls are counted.
#[test]
fn calls_that_never_end_lose_nothing_later() {
    if !cfg!(target_arch = "x86_64") || !have(&["g++"]) {
        return;
    }
    const LEAVING: &str = r#"
        #include <csetjmp>
        #include <csignal>
        #include <cstdio>
        #include <cstdlib>
        #include <new>
        #include <unistd.h>
        static volatile bool waits;
        static sigjmp_buf before;
        static char memory[64 << 20], *place = memory;
        extern "C" __attribute__((noinline)) void *tc_new(size_t size) {
            if (waits) { kill(getpid(), SIGUSR1); pause(); }
            if (size > 1 << 20) throw std::bad_alloc();
            char *p = place;
            place += (size + 15) & ~15UL;
            return p;
        }
        extern "C" __attribute__((noinline)) void tc_delete(void *p) {
            if (!p) abort();
            *(char *)p = getpid() & 1;
        }
        extern "C" __attribute__((noinline)) void *tc_calloc(size_t n, size_t size) {
            return tc_new(n * size);
        }
        __attribute__((noinline)) int work() {
            int caught = 0;
            for (int i = 0; i < 100; i++) {
                tc_new(100);
                try { tc_new(2 << 20); } catch (const std::bad_alloc &) { caught++; }
                tc_delete(tc_new(50));
            }
            return caught;
        }
        static void leave(int) { siglongjmp(before, 1); }
        __attribute__((noinline)) void jump_out() {
            waits = true;
            if (!sigsetjmp(before, 1)) tc_new(10);
            waits = false;
        }
        int main() {
            signal(SIGUSR1, leave);
            int caught = work();
            for (int i = 0; i < 3; i++) jump_out(), caught += work();
            printf("%d\n", caught + (tc_calloc(0, 1) == 0));
            return 3;
        }
    "#;
    let built = with_source("work.cc", LEAVING);
    built.run("g++ -O2 -g work.cc -o work");
    let folder = tempfile::tempdir().unwrap();
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!((said.code, &*said.out), (3, "400\n"), "{}", said.err);
    // Each jump out of the allocator may hide the calls of up to 64 others behind it.
    let found = flat(folder.path(), "alloc_objects", "work()");
    assert!(
        (800 - 3 * 64..=800).contains(&found),
        "{found}\n{}",
        said.err
    );
    let found = flat(folder.path(), "inuse_space", "work()");
    assert!((40_000 - 3 * 64 * 100..=40_000).contains(&found), "{found}");
    assert!(!comments(folder.path()).contains("dropped"), "{}", said.err);
}

/// A thread that has left a call of the allocator is not at work in the engine: a signal ends the
/// program at once, and what is allocated after a fork is counted.
#[test]
fn a_call_that_never_ended_delays_nothing() {
    if !cfg!(target_arch = "x86_64") || !have(&["g++"]) {
        return;
    }
    const LEAVING: &str = r#"
        #include <csignal>
        #include <cstdio>
        #include <cstdlib>
        #include <new>
        #include <sys/wait.h>
        #include <unistd.h>
        extern "C" __attribute__((noinline)) void *tc_new(size_t size) {
            if (size > 1 << 20 || getpid() == 1) throw std::bad_alloc();
            return malloc(size);
        }
        extern "C" __attribute__((noinline)) void tc_delete(void *p) { free(p); }
        extern "C" __attribute__((noinline)) void *tc_calloc(size_t n, size_t size) {
            return tc_new(n * size);
        }
        __attribute__((noinline)) void work() {
            for (int i = 0; i < 100; i++) if (!malloc(1000)) abort();
        }
        int main(int argc, char **argv) {
            try { tc_new(2 << 20); } catch (const std::bad_alloc &) { puts("caught"); }
            fflush(stdout);
            if (argc > 1) {
                pid_t child = fork();
                if (!child) _exit(0);
                waitpid(child, 0, 0);
                work();
                tc_delete(tc_calloc(1, 1));
                return 3;
            }
            raise(SIGTERM);
            puts("went on");
            return 4;
        }
    "#;
    let built = with_source("work.cc", LEAVING);
    built.run("g++ -O2 -g work.cc -o work");
    let folder = tempfile::tempdir().unwrap();
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!((said.code, &*said.out), (143, "caught\n"), "{}", said.err);
    let said = recorded(folder.path(), &built, &["--exact"], &["fork"]);
    assert_eq!((said.code, &*said.out), (3, "caught\n"), "{}", said.err);
    assert_eq!(
        flat(folder.path(), "inuse_objects", "work()"),
        100,
        "{}",
        said.err
    );
}

/// A signal handler calls the allocator while a hook is at work. What the thread does afterwards is
/// counted.
#[test]
fn handlers_that_allocate_lose_nothing_later() {
    if !is_supported() {
        return;
    }
    const INTERRUPTED: &str = r#"
        #include <signal.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <sys/time.h>
        static char pool[16 << 20]; static _Atomic size_t used, freed;
        __attribute__((noinline)) void *je_malloc(size_t n) {
            if (!n) abort();
            return pool + (used += 64) % (8 << 20);
        }
        __attribute__((noinline)) void je_free(void *p) { if (p) freed++; }
        __attribute__((noinline)) void *je_calloc(size_t n, size_t m) { return je_malloc(n * m); }
        static volatile int hits;
        static void *volatile kept;
        __attribute__((noinline)) static void in_handler(void) { kept = je_calloc(8, 1); }
        __attribute__((noinline)) static void busy(void) { je_free(je_malloc(20)); }
        __attribute__((noinline)) static void later(void) { kept = je_malloc(20); }
        static void handle(int of) { hits++; je_free(0); in_handler(); }
        int main(void) {
            struct itimerval often = { { 0, 100 }, { 0, 100 } }, never = { 0 };
            signal(SIGALRM, handle);
            setitimer(ITIMER_REAL, &often, 0);
            while (hits < 500) busy();
            setitimer(ITIMER_REAL, &never, 0);
            for (int i = 0; i < 1000; i++) later();
            return 3;
        }
    "#;
    let built = with_source("work.c", INTERRUPTED);
    built.run("gcc -O2 -g -w work.c -o work");
    let folder = tempfile::tempdir().unwrap();
    let said = recorded(folder.path(), &built, &["--exact"], &[]);
    assert_eq!(said.code, 3, "{}", said.err);
    let found = flat(folder.path(), "alloc_objects", "later");
    assert_eq!(found, 1000, "{}", said.err);
}

/// The callers of an allocator that the compiler has seen whole keep values in registers, of
/// integers and of vectors.
#[test]
fn callers_keep_their_registers() {
    if !is_supported() {
        return;
    }
    const KEEPING: &str = r#"
        #include <stdio.h>
        #include <stddef.h>
        #define OWN __attribute__((noinline, noclone)) static
        static char pool[1 << 20]; static size_t used, freed;
        OWN void *je_malloc(size_t size) {
            char *p = pool + used % 1000000;
            used += (size + 15) & ~15UL;
            return p;
        }
        OWN void *je_calloc(size_t n, size_t size) {
            char *p = pool + used % 1000000;
            used += n * size;
            return p;
        }
        OWN void *je_realloc(void *old, size_t size) {
            char *p = pool + used % 1000000;
            used += size + (old == 0);
            return p;
        }
        OWN int je_free(void *p) { freed += ((size_t)p & 1) + 1; return freed % 7; }
        typedef double lanes __attribute__((vector_size(32)));
        int main(void) {
            long a = 1, b = 2, c = 3, d = 4;
            double e = 0.5, f = 1.5, g = 2.5;
            lanes v = { 1, 2, 3, 4 }, w = { 5, 6, 7, 8 };
            for (long i = 0; i < 1000; i++) {
                void *p = je_malloc(i + 1);
                a += b ^ i; e += f; v += w;
                p = je_realloc(p, 100);
                b += c * i; f += g * i; w += v * 0.001;
                void *q = je_calloc(2, 50);
                c ^= d + a; g -= e * 0.25;
                d += je_free(p);
                je_free(q);
                je_free((void *)5);
                d += i ^ a; e -= 0.125;
            }
            printf("%ld %ld %ld %ld %a %a %a", a, b, c, d, e, f, g);
            for (int i = 0; i < 4; i++) printf(" %a %a", v[i], w[i]);
            printf(" %zu %zu\n", used, freed);
            return 3;
        }
    "#;
    let built = with_source("work.c", KEEPING);
    for options in ["-O2", "-O3 -no-pie", "-O2 -mavx2", "-O2 -mavx512f"] {
        built.run(&format!("gcc {options} -g work.c -o work"));
        let bare = Run::from(Command::new(built.path("work")).output().unwrap());
        if bare.code != 3 {
            eprintln!("SKIPPED: this processor can't run code made with {options}");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let said = recorded(folder.path(), &built, &["--exact"], &[]);
        let found = (said.code, &said.out);
        assert_eq!(found, (3, &bare.out), "{options}: {}", said.err);
        let flat = |of| flat(folder.path(), of, "main");
        assert_eq!(flat("alloc_objects"), 3000, "{options}: {}", said.err);
        assert_eq!(flat("alloc_space"), 500_500 + 100_000 + 100_000);
        assert_eq!(flat("inuse_objects"), 0);
    }
}

/// Functions of the program that have an allocator's names by chance keep all their arguments and
/// results.
#[test]
fn what_only_resembles_an_allocator_is_left_alone() {
    if !is_supported() {
        return;
    }
    const RESEMBLING: &str = r#"
        #include <stdio.h>
        struct two { long a, b; };
        __attribute__((noinline)) struct two sn_alloc(int n) { return (struct two){ n, 2 * n }; }
        __attribute__((noinline))
        long sn_free(double d, int a, int b, int c, int e, int f, int g, int h) {
            return (long)d + a + b + c + e + f + 10 * g + 100 * h;
        }
        __attribute__((noinline)) int rpposix_memalign(int a, int b) { return puts("") < a - b; }
        __attribute__((noinline)) void rpfree(int a) { printf("%d\n", a); }
        int main(void) {
            long sum = 0;
            struct two both = sn_alloc(21);
            sum += both.a + both.b + sn_free(1.5, 1, 2, 3, 4, 5, 6, 7);
            rpfree(rpposix_memalign(3, 7));
            printf("%ld\n", sum);
            return 3;
        }
    "#;
    let built = with_source("work.c", RESEMBLING);
    for options in ["-O2", "-O3 -fno-plt", "-O1 -no-pie"] {
        built.run(&format!("gcc {options} -g work.c -o work"));
        let bare = Run::from(Command::new(built.path("work")).output().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let said = recorded(folder.path(), &built, &["--exact"], &[]);
        assert_eq!(
            (said.code, said.out),
            (3, bare.out),
            "{options}: {}",
            said.err
        );
    }
}
