//! Small programs that lose memory, each in its own way.

/// Moves the blocks of a program under valgrind: `CHECK` is the number of bytes to allocate first.
macro_rules! moved {
    () => {
        r#"
static void *volatile before;
__attribute__((constructor)) static void moved(void) {
    if (getenv("CHECK")) before = malloc(atol(getenv("CHECK")));
}
"#
    };
}

/// Beginning of all programs. At `checkpoint`, LeakSanitizer and valgrind check for leaks and end;
/// otherwise the program waits there. Older values on the stack and in registers are wiped.
pub(super) const BEGIN: &str = concat!(
    r#"
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
static void *volatile kept[64];
"#,
    wipe!(),
    moved!(),
    r#"static __attribute__((noinline)) void checkpoint(void) {
    wipe();
    if (__lsan_do_recoverable_leak_check) {
        __lsan_do_recoverable_leak_check();
        _exit(0);
    }
    if (getenv("CHECK")) _exit(0);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
static void *volatile sink;
static __attribute__((noinline)) void lose(size_t size) {
    sink = malloc(size);
    memset(sink, 'x', size);
    sink = 0;
}
"#
);

/// The programs: a name, and the code up to the checkpoint.
pub(super) const PROGRAMS: &[(&str, &str)] = &[
    (
        "nothing is lost",
        "int main(void) { kept[0] = malloc(100); free(malloc(50)); checkpoint(); }",
    ),
    (
        "blocks of many sizes",
        "int main(void) { for (int i = 0; i < 50; i++) { lose(1 + 37 * i); kept[i] = malloc(20 * \
         i); } \
         checkpoint(); }",
    ),
    (
        "a list that is lost is one block and what only that leads to",
        "struct n { struct n *next; long v; }; \
         static __attribute__((noinline)) void make(void) { struct n *first = 0; \
         for (int i = 0; i < 20; i++) { struct n *n = malloc(sizeof *n); n->next = first; first = \
         n; } \
         sink = first; sink = 0; } \
         int main(void) { make(); checkpoint(); }",
    ),
    (
        "caches of a thread are free",
        "int main(void) { void *t[40]; for (int i = 0; i < 40; i++) t[i] = malloc(30); \
         for (int i = 0; i < 40; i++) free(t[i]); memset(t, 0, sizeof t); \
         __asm__ volatile(\"\" : : \"r\"(t) : \"memory\"); lose(30); checkpoint(); }",
    ),
    (
        "bins are free, and what lies between is not",
        "int main(void) { for (int i = 0; i < 30; i++) kept[i] = malloc(2000 + 16 * i); \
         for (int i = 0; i < 30; i += 2) { free(kept[i]); kept[i] = 0; } lose(3000); \
         checkpoint(); }",
    ),
    (
        "large blocks have mappings of their own",
        "int main(void) { lose(300000); kept[0] = malloc(5 << 20); lose(1 << 20); \
         kept[1] = aligned_alloc(4096, 409600); checkpoint(); }",
    ),
    (
        "pointers into the middle may lead there",
        "int main(void) { kept[0] = (char *)malloc(500) + 40; kept[1] = (char *)malloc(700) + 1; \
         lose(10); checkpoint(); }",
    ),
    (
        "only thread-local memory leads there",
        "static __thread void *volatile own; int main(void) { own = malloc(123); lose(321); \
         checkpoint(); }",
    ),
    (
        "only the stack leads there",
        "int main(void) { void *volatile here[2] = {malloc(444), 0}; lose(555); checkpoint(); \
         return here[0] != 0; }",
    ),
    (
        "blocks of a thread that has ended, and of one that waits",
        "static __thread void *volatile own; static volatile int ready; \
         static void *lives(void *p) { own = malloc(777); void *volatile here = malloc(99); \
         lose(222); \
         wipe(); ready = 1; for (;;) pause(); return here; } \
         static void *ends(void *p) { lose(333); kept[5] = malloc(88); return 0; } \
         int main(void) { pthread_t t; pthread_create(&t, 0, ends, 0); pthread_join(t, 0); \
         pthread_create(&t, 0, lives, 0); while (!ready) usleep(1000); lose(444); checkpoint(); }",
    ),
    (
        "many arenas",
        "static volatile int count; \
         static void *work(void *p) { for (int i = 0; i < 50; i++) lose(40 + i); wipe(); \
         __atomic_add_fetch(&count, 1, 5); for (;;) pause(); return 0; } \
         int main(void) { pthread_t t; for (int i = 0; i < 6; i++) pthread_create(&t, 0, work, 0); \
         while (count < 6) usleep(1000); checkpoint(); }",
    ),
    (
        "chains of realloc",
        "int main(void) { char *p = malloc(10); for (int i = 1; i < 300; i++) p = realloc(p, 10 + \
         50 * i); \
         kept[0] = p; p = realloc(malloc(100), 5000); sink = p; p = 0; sink = 0; checkpoint(); }",
    ),
    (
        "a tree that is reached",
        "struct t { struct t *a, *b; }; static struct t *make(int d) { struct t *t = \
         malloc(sizeof *t); \
         t->a = d ? make(d - 1) : 0; t->b = d ? make(d - 1) : 0; return t; } \
         int main(void) { kept[0] = make(8); ((struct t *)kept[0])->a = 0; checkpoint(); }",
    ),
    (
        "a child has the heap of its parent",
        "#include <sys/wait.h>\n int main(void) { lose(600); kept[0] = malloc(70); int s; \
         if (fork()) { wait(&s); _exit(0); } lose(700); checkpoint(); }",
    ),
    (
        "bins look the same two bins further, if a fast chunk stands where the top would be",
        "int main(void) { static char out[4096]; setvbuf(stdout, out, _IOFBF, sizeof out); \
         void *volatile t[8]; for (int i = 0; i < 8; i++) t[i] = malloc(120); \
         for (int i = 0; i < 5; i++) lose(700); void *volatile large = malloc(5000); \
         kept[0] = malloc(10); free(large); kept[1] = malloc(20000); \
         for (int i = 0; i < 8; i++) { free(t[i]); t[i] = 0; } large = 0; checkpoint(); }",
    ),
    (
        "links of malloc's own that were left in a block lead to no block",
        "int main(void) { lose(72); void *volatile free_1 = malloc(3000); kept[0] = malloc(24); \
         void *volatile free_2 = malloc(3000); kept[1] = malloc(24); free(free_1); free(free_2); \
         free_1 = free_2 = 0; kept[2] = malloc(3000); kept[3] = malloc(3000); checkpoint(); }",
    ),
    (
        "a list of the program's own leads from last word to last word",
        "struct n { long a, b; void *next; }; static void *volatile head; \
         static __attribute__((noinline)) void make(void) { void *first = 0; \
         for (int i = 0; i < 20; i++) { struct n *n = calloc(1, sizeof *n); n->next = first; \
         first = &n->next; } head = first; } int main(void) { make(); lose(7); checkpoint(); }",
    ),
    (
        "arrays and strings by what stands before them",
        "int main(void) { unsigned long *p = malloc(97); p[0] = 40; p[1] = 72; p[2] = 0; \
         kept[0] = (char *)p + 24; p = malloc(108); p[0] = 100; p[1] = 0; kept[1] = p + 1; \
         p = malloc(8 + 5 * 24); p[0] = 5; p[1] = 0; kept[2] = p + 1; \
         p = malloc(1000); p[0] = 23; kept[3] = p + 1; p = 0; lose(9); checkpoint(); }",
    ),
    (
        "bins are full, in two arenas",
        "static void fill(void **all) { for (int i = 0; i < 900; i++) { \
         all[i] = malloc(24 + 16 * (i % 300)); if (i % 2) malloc_usable_size(all[i]); } \
         for (int i = 0; i < 900; i += 2) { free(all[i]); all[i] = 0; } free(malloc(9000)); } \
         static void *one[900], *two[900]; static volatile int ready; \
         static void *work(void *p) { fill(two); lose(77); wipe(); ready = 1; for (;;) pause(); \
         return p; } \
         int main(void) { pthread_t t; fill(one); pthread_create(&t, 0, work, 0); \
         while (!ready) usleep(1000); lose(99); checkpoint(); }",
    ),
    (
        "aligned blocks have mappings of their own, side by side",
        "int main(void) { int at = 0; for (size_t a = 32; a <= 65536; a *= 2) { void *p; \
         for (int i = 0; i < 2; i++) if (!posix_memalign(&p, a, 300000)) kept[at++] = p; p = 0; } \
         lose(444); checkpoint(); }",
    ),
    (
        "the program takes some of the heap itself",
        "int main(void) { static void *all[3000]; for (int i = 0; i < 3000; i++) { \
         all[i] = malloc(280); if (i % 500 == 250) { volatile char *own = sbrk(70000); \
         own[100] = 1; } } for (int i = 0; i < 3000; i += 10) all[i] = 0; checkpoint(); }",
    ),
    (
        "memory that is shared without a file leads there",
        "int main(void) { void **own = mmap(0, 8192, 3, MAP_SHARED | MAP_ANONYMOUS, -1, 0); \
         own[7] = malloc(4321); own = 0; lose(12); checkpoint(); }",
    ),
    // The next two programs have the cases of Devel::Plumber's own tests.
    (
        "variables with and without a first value lead there, and nothing does",
        "struct foo { struct foo *left, *right; int x; char y[124]; }; static int count; \
         static __attribute__((noinline)) struct foo *foo(void) { \
         struct foo *f = calloc(1, sizeof *f); f->x = ++count; return f; } \
         struct foo *volatile data = (struct foo *)0x100, *volatile bss; \
         static __attribute__((noinline)) void make(void) { struct foo *volatile f = foo(); \
         data = foo(); bss = foo(); sink = foo(); sink = 0; free(f); } \
         int main(void) { make(); checkpoint(); }",
    ),
    (
        "arrays, chains and rings",
        "struct foo { struct foo *left, *right; int x; char y[12]; }; static int count; \
         static __attribute__((noinline)) struct foo *foo(void) { \
         struct foo *f = calloc(1, sizeof *f); f->x = ++count; return f; } \
         struct foo *volatile data = (struct foo *)0x100, *volatile bss, *bssring, *bssarray[5], \
         *dataring = (struct foo *)0x100, *dataarray[5] = {(struct foo *)0x100}, \
         **array = (struct foo **)0x100; \
         static __attribute__((noinline)) struct foo *ring(int n) { struct foo *first = 0, *f = 0; \
         for (int i = 0; i < n; i++) f = *(f ? &f->left : &first) = foo(); \
         f->left = first; return first; } \
         static __attribute__((noinline)) void fill(struct foo **a) { a[0] = foo(); \
         a[0]->left = foo(); a[0]->left->left = foo(); a[0]->left->right = foo(); a[1] = foo(); \
         a[2] = foo(); a[4] = foo(); a[4]->left = foo(); } \
         static __attribute__((noinline)) void make(void) { free(foo()); data = foo(); \
         bss = foo(); sink = foo(); for (int i = 0; i < 5; i++) if (i != 3) dataarray[i] = foo(); \
         dataarray[4]->left = foo(); dataarray[4]->left->left = foo(); fill(bssarray); \
         array = calloc(6, sizeof *array); fill(array); dataring = ring(5); bssring = ring(5); \
         sink = ring(5); sink = 0; } \
         int main(void) { make(); checkpoint(); }",
    ),
    (
        "objects with two bases",
        "", // The source is C++: see below.
    ),
];

pub(super) const CXX: &str = concat!(
    r#"
extern "C" { int __lsan_do_recoverable_leak_check(void) __attribute__((weak)); }
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>
struct A { virtual ~A() {} long a = 1; };
struct B { virtual ~B() {} long b = 2; };
struct C : A, B { long c = 3; };
static void *volatile kept[8];
"#,
    wipe!(),
    moved!(),
    r#"__attribute__((noinline)) static void make() {
    B *second = new C;
    kept[0] = second;
    kept[1] = new std::string[7];
    void *volatile lost = new C;
    lost = nullptr;
}
int main() {
    make();
    wipe();
    if (__lsan_do_recoverable_leak_check) { __lsan_do_recoverable_leak_check(); _exit(0); }
    if (getenv("CHECK")) _exit(0);
    puts("ready");
    fflush(stdout);
    for (;;) pause();
}
"#
);
