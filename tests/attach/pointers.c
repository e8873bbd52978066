// A program that calls malloc's family through pointers that it has copied before somebody attaches,
// as expat, zlib and SQLite do. It says "ready", works whenever it gets a line, says "done", and
// ends with 7 when there are no more lines. Compiled with the allocator of entry_hooks.rs and
// -DINNER, it calls that one.
//
// With the argument "interrupted", a second thread calls malloc all the time. The program says the
// number of this thread and the address of malloc in a line. A signal handler of this thread says
// "interrupted", and goes on when the program gets a line.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef INNER
void *je_malloc(size_t), *je_calloc(size_t, size_t), *je_realloc(void *, size_t);
void je_free(void *);
#define NAME(function) je_##function
#else
#define NAME(function) function
#endif

static struct methods {
    void *(*allocate)(size_t);
    void *(*allocate_many)(size_t, size_t);
    void *(*resize)(void *, size_t);
    void (*release)(void *);
} methods = {NAME(malloc), NAME(calloc), NAME(realloc), NAME(free)};
static struct methods *volatile used = &methods;

static void *volatile held[10];
static atomic_int released;
static atomic_long rounds;

// 50 allocations, of which 10 with 1000 bytes stay until the next time.
__attribute__((noinline)) static void work(void) {
    for (int i = 0; i < 10; i++) {
        used->release(held[i]);
        held[i] = used->resize(used->allocate(10), 1000);
        used->release(used->allocate_many(3, 100));
        used->release(used->resize(0, 50));
        used->release(used->allocate(20));
    }
}

static void *loop(void *none) {
    char line[100];
    int len = snprintf(line, sizeof line, "%ld %p\n", (long)syscall(SYS_gettid), (void *)methods.allocate);
    if (write(1, line, len) != len)
        _exit(90);
    for (;;) {
        used->release(used->allocate(100));
        rounds++;
    }
    return none;
}

static void wait_for_line(int signal) {
    int before = released;
    if (write(1, "interrupted\n", 12) != 12)
        _exit(91);
    while (released == before)
        usleep(100);
    (void)signal;
}

int main(int argc, char **argv) {
    int is_interrupted = argc > 1 && !strcmp(argv[1], "interrupted");
    char byte;
    alarm(600);
    work();
    if (write(1, "ready\n", 6) != 6)
        return 92;
    if (is_interrupted) {
        pthread_t thread;
        signal(SIGUSR1, wait_for_line);
        pthread_create(&thread, 0, loop, 0);
    }
    while (read(0, &byte, 1) == 1) {
        if (is_interrupted) {
            long before = rounds;
            released++;
            while (rounds < before + 1000)
                usleep(100);
        } else {
            work();
        }
        if (write(1, "done\n", 5) != 5)
            return 93;
    }
    _exit(7);
}
