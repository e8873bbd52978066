// Calls malloc's family through copied pointers in many threads, for oracle/attach.py: with a signal
// each millisecond, half of them on a stack for signals, and a child by posix_spawn all the time.
// Counts its requests in a file that others may map: before each (the first number), and after (the
// second). Ends with 3 at SIGTERM, and with 5 if a block was changed.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 64, MAX_THREADS = 64 };

static struct {
    void *(*allocate)(size_t);
    void *(*allocate_many)(size_t, size_t);
    void *(*resize)(void *, size_t);
    void (*release)(void *);
} methods = {malloc, calloc, realloc, free}, *volatile used = &methods;

static struct counts {
    atomic_ulong begun, done;
} *counts;
static atomic_int over, wrong;
static atomic_ulong signals;
extern char **environ;

static void on_end(int signal) {
    (void)signal;
    over = 1;
}

static void on_signal(int signal) {
    (void)signal;
    signals++;
}

static void check(unsigned char *block, size_t size) {
    if (size && (block[0] != (unsigned char)size || block[size - 1] != (unsigned char)size))
        wrong = 1;
}

static void *work(void *given) {
    unsigned seed = (unsigned)(long)given + 1;
    unsigned char *blocks[BLOCKS] = {0};
    size_t sizes[BLOCKS] = {0};
    stack_t stack = {.ss_sp = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0),
                     .ss_size = 65536};
    if ((long)given % 2)
        sigaltstack(&stack, 0);
    while (!over) {
        seed = seed * 1103515245 + 12345;
        unsigned i = seed >> 16 & (BLOCKS - 1);
        size_t size = 1 + (seed >> 20) % 500;
        check(blocks[i], sizes[i]);
        if (blocks[i] && seed & 1 << 13) {
            used->release(blocks[i]);
            blocks[i] = 0, sizes[i] = 0;
            continue;
        }
        counts->begun++;
        if (blocks[i]) {
            unsigned char *made = used->resize(blocks[i], size);
            size_t kept = size < sizes[i] ? size : sizes[i];
            if (kept && made[0] != (unsigned char)sizes[i])
                wrong = 1;
            blocks[i] = made;
        } else if (seed & 1 << 14) {
            blocks[i] = used->allocate(size);
        } else {
            blocks[i] = used->allocate_many(1, size);
        }
        counts->done++;
        memset(blocks[i], (int)size, size);
        sizes[i] = size;
    }
    for (int i = 0; i < BLOCKS; i++)
        used->release(blocks[i]);
    return 0;
}

// Threads that begin and end all the time, and children that use this memory until they execute.
static void *begin_others(void *none) {
    char *words[] = {"true", 0};
    while (!over) {
        pid_t child;
        if (!posix_spawn(&child, "/bin/true", 0, 0, words, environ))
            waitpid(child, 0, 0);
        usleep(2000);
    }
    return none;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 1;
    int threads = atoi(argv[1]), file = open(argv[2], O_RDWR | O_CREAT, 0600);
    if (threads > MAX_THREADS || file < 0 || ftruncate(file, sizeof *counts))
        return 2;
    counts = mmap(0, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    signal(SIGTERM, on_end);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigaction(SIGPROF, &action, 0);
    struct itimerval each = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_PROF, &each, 0);
    pthread_t all[MAX_THREADS + 1];
    for (long i = 0; i < threads; i++)
        pthread_create(&all[i], 0, work, (void *)i);
    pthread_create(&all[threads], 0, begin_others, 0);
    if (write(1, "ready\n", 6) != 6)
        return 4;
    while (!over)
        usleep(10000);
    for (int i = 0; i <= threads; i++)
        pthread_join(all[i], 0);
    printf("rounds: %lu requests, %lu signals\n", (unsigned long)counts->done, (unsigned long)signals);
    return wrong ? 5 : 3;
}
