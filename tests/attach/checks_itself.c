// A program that checks itself while others attach to it: it waits in every way, forks, opens and
// closes libraries, raises signals, computes, and knows what each of these must give.
// Its argument is a number of seconds; 0 means until SIGTERM. It exits with 0 if nothing was wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A library that is loaded and unloaded. */
#ifdef __GLIBC__
#define LIBRARY "libresolv.so.2"
#else
#define LIBRARY "libplugin.so"
#endif

static atomic_int over, wrong;
static atomic_long rounds, signals;
static long alone;

static void bad(const char *what, long value) {
    fprintf(stderr, "checks_itself: %s: %ld (errno %d)\n", what, value, errno);
    wrong = 1;
}

enum { MAIN, EPOLL, SIGWAIT, SEMOP, RECV, POLL, SLEEP, READ, FUTEX, SELECT, KINDS };
static const char *const names[KINDS] = {
    "the first thread's nanosleep", "epoll_wait", "sigtimedwait", "semtimedop", "recv", "poll", "nanosleep", "read", "futex", "select"};
static atomic_long interrupted[KINDS], waits[KINDS];
static int pipes[2], sockets[2], semaphore, epoll;

static int wait_once(int kind) {
    struct timespec ms = {0, 3000000};
    struct timeval tv = {0, 3000};
    struct epoll_event event;
    struct sembuf down = {0, -1, 0};
    struct pollfd fd = {sockets[1], POLLIN, 0};
    sigset_t usr2;
    fd_set set;
    char byte;
    int word = 0;
    switch (kind) {
    case EPOLL: return epoll_wait(epoll, &event, 1, 3);
    case SIGWAIT:
        sigemptyset(&usr2);
        sigaddset(&usr2, SIGUSR2);
        return sigtimedwait(&usr2, 0, &ms) < 0 && errno == EAGAIN ? 0 : -1;
    case SEMOP: return semtimedop(semaphore, &down, 1, &ms) < 0 && errno == EAGAIN ? 0 : -1;
    case RECV: return recv(sockets[0], &byte, 1, 0) < 0 && errno == EAGAIN ? 0 : -1;
    case POLL: return poll(&fd, 1, 3);
    case SLEEP: return nanosleep(&ms, 0);
    case READ: return read(pipes[0], &byte, 1) == 1 && byte == 'x' ? 0 : -1;
    case FUTEX:
        return syscall(SYS_futex, &word, FUTEX_WAIT, 0, &ms, 0, 0) < 0 && errno == ETIMEDOUT ? 0 : -1;
    default:
        FD_ZERO(&set);
        FD_SET(sockets[1], &set);
        return select(sockets[1] + 1, &set, 0, 0, &tv);
    }
}

static void *waiter(void *kind_p) {
    int kind = (int)(long)kind_p;
    while (!over) {
        int failed = wait_once(kind);
        waits[kind]++;
        if (failed && errno == EINTR)
            interrupted[kind]++;
        else if (failed)
            bad(names[kind], failed);
    }
    return 0;
}

static void *writer(void *none) {
    while (!over) {
        if (write(pipes[1], "x", 1) != 1)
            bad("write", 0);
        usleep(2000);
    }
    return none;
}

static __attribute__((noinline)) void *block(size_t size, int fill) {
    unsigned char *p = malloc(size);
    if (!p)
        bad("malloc", size);
    memset(p, fill, size);
    return p;
}

static void *churner(void *seed_p) {
    unsigned long seed = (unsigned long)seed_p * 7919 + 1;
    unsigned char *held[64] = {0};
    size_t size[64] = {0};
    while (!over) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        int i = seed >> 58;
        for (size_t k = 0; k < size[i]; k++)
            if (held[i][k] != (unsigned char)(i + 1)) {
                bad("a block changed", i);
                break;
            }
        if (held[i] && (seed >> 50 & 3) == 0) {
            size_t more = size[i] + 100;
            held[i] = realloc(held[i], more);
            memset(held[i] + size[i], i + 1, 100);
            size[i] = more;
            continue;
        }
        free(held[i]);
        size[i] = 1 + (seed >> 40) % 3000;
        held[i] = block(size[i], i + 1);
        rounds++;
        if ((rounds & 1023) == 0)
            usleep(100);
    }
    for (int i = 0; i < 64; i++)
        free(held[i]);
    return 0;
}

static double sum_of_first;

static void *computer(void *none) {
    while (!over) {
        volatile double one = 1.0;
        volatile long double x87 = 1.0L;
        double sum = 0, eight[8] = {0};
        long double long_sum = 0;
        for (int i = 1; i < 20000; i++) {
            sum += one / i;
            long_sum += x87 / i;
            for (int k = 0; k < 8; k++)
                eight[k] += one * k;
        }
        if (sum_of_first == 0)
            sum_of_first = sum;
        if (sum != sum_of_first || fabsl(long_sum - sum) > 1e-9L)
            bad("a sum", (long)(sum * 1e6));
        for (int k = 0; k < 8; k++)
            if (eight[k] != 19999.0 * k)
                bad("a product", k);
    }
    return none;
}

static void *opener(void *none) {
    while (!over) {
        void *handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
        int (*function)(void) = handle ? (int (*)(void))dlsym(handle, "__ns_get16") : 0;
        if (!handle || (!function && !dlsym(handle, "ns_get16")))
            bad("dlopen", 0);
        if (handle && dlclose(handle))
            bad("dlclose", 0);
        usleep(1000);
    }
    return none;
}

static void *forker(void *none) {
    while (!over) {
        pid_t child = fork();
        if (child == 0) {
            for (int i = 0; i < 100; i++)
                free(block(100 + i, 1));
            _exit(42);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child)
            bad("fork", child);
        else if (!WIFEXITED(status) || WEXITSTATUS(status) != 42)
            bad("a child ended", status);
        usleep(5000);
    }
    return none;
}

static void *starter(void *none) {
    while (!over) {
        pthread_t thread;
        extern void *short_lived(void *);
        void *result = 0;
        if (pthread_create(&thread, 0, short_lived, (void *)5) || pthread_join(thread, &result))
            bad("pthread_create", 0);
        else if (result != (void *)6)
            bad("a thread's result", (long)result);
        usleep(1000);
    }
    return none;
}

void *short_lived(void *five) {
    free(block(500, 1));
    return (char *)five + 1;
}

static void on_usr1(int signal) {
    (void)signal;
    signals++;
}

static void *raiser(void *target_p) {
    while (!over) {
        if (pthread_kill(*(pthread_t *)target_p, SIGUSR1))
            bad("pthread_kill", 0);
        alone++;
        usleep(1000);
    }
    return 0;
}

static void on_term(int signal) {
    (void)signal;
    over = 1;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 5;
    struct sigaction usr1 = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
    struct sigaction term = {.sa_handler = on_term};
    struct timeval tv = {0, 3000};
    sigset_t most;
    sigaction(SIGUSR1, &usr1, 0);
    sigaction(SIGTERM, &term, 0);
    epoll = epoll_create1(0);
    semaphore = semget(IPC_PRIVATE, 1, 0600);
    if (pipe(pipes) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) || epoll < 0 || semaphore < 0)
        bad("setup", 0);
    setsockopt(sockets[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
    // Only the first churner gets signals.
    sigemptyset(&most);
    sigaddset(&most, SIGUSR1);
    sigaddset(&most, SIGUSR2);
    sigaddset(&most, SIGTERM);
    // docs/dev/attach.md says how this signal can end a wait of another thread.
    sigaddset(&most, SIGCHLD);
    pthread_t threads[32], first;
    int count = 0;
    pthread_create(&first, 0, churner, (void *)1);
    pthread_sigmask(SIG_BLOCK, &most, 0);
    for (long kind = EPOLL; kind < KINDS; kind++)
        pthread_create(&threads[count++], 0, waiter, (void *)kind);
    pthread_create(&threads[count++], 0, writer, 0);
    pthread_create(&threads[count++], 0, churner, (void *)2);
    pthread_create(&threads[count++], 0, computer, 0);
    pthread_create(&threads[count++], 0, opener, 0);
    pthread_create(&threads[count++], 0, forker, 0);
    pthread_create(&threads[count++], 0, starter, 0);
    pthread_create(&threads[count++], 0, raiser, &first);
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; !over && (seconds == 0 || i < seconds * 20); i++) {
        struct timespec tick = {0, 50000000};
        waits[MAIN]++;
        if (nanosleep(&tick, 0) && !over)
            interrupted[MAIN]++;
    }
    over = 1;
    // The reader waits for one more.
    if (write(pipes[1], "x", 1) != 1)
        bad("the last write", 0);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], 0);
    pthread_join(first, 0);
    semctl(semaphore, 0, IPC_RMID);
    printf("rounds %ld signals %ld of %ld\n", (long)rounds, (long)signals, alone);
    for (int kind = 0; kind < KINDS; kind++)
        printf("%s waits %ld interrupted %ld\n", names[kind], (long)waits[kind], (long)interrupted[kind]);
    printf(wrong ? "WRONG\n" : "all is well\n");
    return wrong;
}
