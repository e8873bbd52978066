/* What heapwalk_peers.py preloads into programs: it plants blocks whose states are known, and stops
 * the program where it is looked at: when main returns, when the program calls exit or _exit, or
 * when it calls the function that AT names, which must be of a library. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <valgrind/memcheck.h>

extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));
extern void __lsan_register_root_region(const void *, size_t) __attribute__((weak));

static void *volatile kept[8];
static __thread void *volatile own;
static void *volatile sink;
static char ready[4096];
static pid_t planted;

/* Wipes the stack below its caller, and the registers that a caller does not keep. */
static __attribute__((noinline)) void wipe(void) {
    char stack[65536];
    memset(stack, 0, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9",
                     "r10", "r11");
}

static void *filled(size_t size) { return memset(malloc(size), 'x', size); }

/* EXPECTED in heapwalk_peers.py says the same. */
static __attribute__((noinline)) void plant(void) {
    /* Leaked: five of one size, one with a mapping of its own, and one from each of the family. */
    for (int i = 0; i < 5; i++) sink = filled(1000);
    sink = filled(300000);
    sink = memset(aligned_alloc(64, 640), 'x', 640);
    sink = memset(realloc(filled(100), 1234), 'x', 1234);
    sink = calloc(7, 111);
    sink = malloc(0);
    /* A list without a head, and a ring. */
    void **list = 0;
    for (int i = 0; i < 20; i++) {
        void **node = memset(malloc(56), 0, 56);
        *node = list;
        list = node;
    }
    void **ring[3];
    for (int i = 0; i < 3; i++) ring[i] = memset(malloc(72), 0, 72);
    for (int i = 0; i < 3; i++) ring[i][1] = ring[(i + 1) % 3];
    /* Leaked, and it leads into the middle of another one. */
    void **leads = filled(1100);
    leads[5] = (char *)filled(1200) + 100;
    /* Maybe: an inner pointer leads there, and from there an outer one to the next. */
    void **maybe = filled(500);
    maybe[3] = filled(600);
    kept[0] = (char *)maybe + 40;
    /* Reached: by a variable, by the thread's memory, and by a block that has a mapping. */
    kept[1] = filled(700);
    own = filled(808);
    void **mapped = filled(400000);
    mapped[1000] = filled(900);
    kept[2] = mapped;
    /* Free, in a cache and in a list of fast blocks, with one between that has leaked. */
    void *some[30];
    for (int i = 0; i < 30; i++) some[i] = filled(104);
    for (int i = 0; i < 30; i++)
        if (i != 15) free(some[i]);
    sink = 0;
}

static __attribute__((noinline)) void pause_here(void) {
    int file = open(ready, O_WRONLY | O_CREAT, 0600);
    if (file < 0) _Exit(99);
    close(file);
    for (;;) pause();
}

static __attribute__((noinline)) void checkpoint(void) {
    if (getpid() != planted) return;
    planted = 0;
    wipe();
    if (RUNNING_ON_VALGRIND) {
        VALGRIND_DO_LEAK_CHECK;
        (void)VALGRIND_MONITOR_COMMAND("block_list 1..1000000 unlimited");
        _Exit(0);
    }
    if (__lsan_do_recoverable_leak_check) {
        __lsan_do_recoverable_leak_check();
        _Exit(0);
    }
    pause_here();
}

static __attribute__((constructor)) void begin(void) {
    const char *name = getenv("HEAPWALK_READY");
    const char *program = getenv("HEAPWALK_PROGRAM");
    char own_program[4096] = "";
    /* valgrind's own program is left alone, and so are those that this one starts. */
    if (readlink("/proc/self/exe", own_program, sizeof own_program - 1) < 0) return;
    if (!name || strlen(name) >= sizeof ready || !program || strcmp(program, own_program)) return;
    strcpy(ready, name);
    unsetenv("HEAPWALK_READY");
    unsetenv("HEAPWALK_PROGRAM");
    unsetenv("LD_PRELOAD");
    planted = getpid();
    plant();
    wipe();
}

#ifdef AT
void AT(void);
void AT(void) { checkpoint(); }
#endif

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

void exit(int code) {
    checkpoint();
    NEXT(exit)(code);
    __builtin_unreachable();
}

void _exit(int code) {
    checkpoint();
    NEXT(_Exit)(code);
    __builtin_unreachable();
}

/* LeakSanitizer looks into the program's own mappings only if it is told to. */
void *mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    void *found = NEXT(mmap)(at, size, protection, flags, file, offset);
    if (planted && __lsan_register_root_region && found != MAP_FAILED && protection & PROT_WRITE)
        __lsan_register_root_region(found, size);
    return found;
}

void *mmap64(void *, size_t, int, int, int, off_t) __attribute__((alias("mmap")));

typedef int Main(int, char **, char **);
static Main *real_main;

static int wrapped_main(int count, char **words, char **environment) {
    int code = real_main(count, words, environment);
    checkpoint();
    return code;
}

typedef int Start(Main *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
Start __libc_start_main;

int __libc_start_main(Main *program, int count, char **words, void (*first)(void),
                      void (*last)(void), void (*end)(void), void *stack) {
    real_main = program;
    return NEXT(__libc_start_main)(wrapped_main, count, words, first, last, end, stack);
}
