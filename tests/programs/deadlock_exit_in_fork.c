// scenario: deadlock: a timer's handler ends the process by _exit, at whatever moment of a fork (argument: signals until then)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile int left;

static void leave(int number) {
    (void)number;
    if (--left <= 0) _exit(11);
}

static void *allocate(void *argument) {
    for (;;) {
        void *p = malloc(300);
        keep(p);
        free(p);
    }
    return argument;
}

int main(int argc, char **argv) {
    left = argc > 1 ? atoi(argv[1]) : 50;
    pthread_t thread;
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    // The timer is for the thread that forks.
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    REQUIRE(pthread_create(&thread, NULL, allocate, NULL) == 0);
    struct sigaction action = {.sa_handler = leave};
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    struct itimerval every = {{0, 1700}, {0, 1700}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (;;) {
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) _exit(0);
        while (waitpid(pid, NULL, 0) != pid) {}
    }
}
