// scenario: deadlock: a timer's handler waits for another thread, which frees what the interrupted one allocated (argument: signals)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static int there[2], back[2];
static void *volatile given;
static volatile int left;

// The interrupted thread may be in the middle of malloc, so the other one only frees (to its own cache).
static void *answer(void *argument) {
    char byte;
    while (read(there[0], &byte, 1) == 1 && byte != 'q') {
        void *p = __atomic_exchange_n(&given, NULL, __ATOMIC_ACQ_REL);
        free(p);
        REQUIRE(write(back[1], &byte, 1) == 1);
    }
    return argument;
}

static void ask(int number) {
    (void)number;
    int error = errno;
    char byte = 'a';
    if (left > 0 && write(there[1], &byte, 1) == 1 && read(back[0], &byte, 1) == 1) left--;
    errno = error;
}

int main(int argc, char **argv) {
    left = argc > 1 ? atoi(argv[1]) : 100;
    pthread_t thread;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    REQUIRE(pipe(there) == 0 && pipe(back) == 0);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    REQUIRE(pthread_create(&thread, NULL, answer, NULL) == 0);
    struct sigaction action = {.sa_handler = ask, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 1300}, {0, 1300}};
    setitimer(ITIMER_REAL, &every, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    while (left > 0) {
        void *p = malloc(40);
        keep(p);
        if (!given) {
            __atomic_store_n(&given, p, __ATOMIC_RELEASE);
        } else {
            free(p);
        }
    }
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    char byte = 'q';
    REQUIRE(write(there[1], &byte, 1) == 1);
    pthread_join(thread, NULL);
    say("answered\n");
    return 0;
}
