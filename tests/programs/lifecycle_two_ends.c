// scenario: lifecycle: a second end comes while the first one's profile is being written (argument: by a signal or by _exit)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <signal.h>

static struct tally by_many = {.name = "two_ends_many"};

void *two_ends_left(int depth, unsigned way);
void *two_ends_right(int depth, unsigned way);

// A stack for each way, so that the profile takes its time.
static __attribute__((noinline)) void *down(int depth, unsigned way) {
    void *p = way & 1 ? two_ends_left(depth - 1, way >> 1) : two_ends_right(depth - 1, way >> 1);
    keep(p);
    return p;
}

ALLOCATING void *two_ends_left(int depth, unsigned way) {
    void *p;
    if (depth == 0) {
        p = malloc(64);
        tally_alloc(&by_many, 64);
    } else {
        p = down(depth, way);
    }
    keep(p);
    return p;
}

ALLOCATING void *two_ends_right(int depth, unsigned way) {
    void *p = depth == 0 ? two_ends_left(0, 0) : down(depth, way);
    keep(p);
    return p;
}

ALLOCATING void two_ends_many(void) {
    for (unsigned way = 0; way < 1 << 14; way++) down(15, way);
    stay();
}

static pthread_barrier_t together;

static void *waits(void *argument) {
    for (;;) pause();
    return argument;
}

static void *leaves(void *argument) {
    pthread_barrier_wait(&together);
    _exit(12);
    return argument;
}

int main(int argc, char **argv) {
    pthread_t thread;
    two_ends_many();
    expect_tally(&by_many);
    if (argc > 1 && strcmp(argv[1], "_exit") == 0) {
        pthread_barrier_init(&together, NULL, 2);
        REQUIRE(pthread_create(&thread, NULL, leaves, NULL) == 0);
        pthread_barrier_wait(&together);
        usleep(2000);
        _exit(12);
    }
    sigset_t terms;
    sigemptyset(&terms);
    sigaddset(&terms, SIGTERM);
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&thread, NULL, waits, NULL) == 0);
    pthread_sigmask(SIG_BLOCK, &terms, NULL);
    kill(getpid(), SIGTERM);
    usleep(2000);
    kill(getpid(), SIGTERM);
    for (;;) pause();
}
