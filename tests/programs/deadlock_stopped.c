// scenario: deadlock: a thread is stopped by a signal wherever it is, as garbage collectors do, and the other one forks (argument: rounds)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

static volatile int ready, stopped, go, quit;

static void stop(int number) {
    (void)number;
    int error = errno;
    stopped = 1;
    while (!go) usleep(100);
    stopped = 0;
    errno = error;
}

static void *allocate(void *argument) {
    while (!quit) {
        void *p = malloc(40);
        keep(p);
        free(p);
        ready = 1;
    }
    return argument;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20;
    struct sigaction action = {.sa_handler = stop, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, allocate, NULL) == 0);
    // A thread that is stopped while its first malloc makes an arena holds a lock that libc's fork
    // waits for, so even a program that is not recorded would hang.
    while (!ready) {}
    for (int i = 0; i < rounds; i++) {
        go = 0;
        REQUIRE(pthread_kill(thread, SIGUSR1) == 0);
        while (!stopped) {}
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) _exit(0);
        int status = -1;
        go = 1;
        REQUIRE(waitpid(child, &status, 0) == child && status == 0);
        while (stopped) {}
    }
    quit = 1;
    REQUIRE(pthread_join(thread, NULL) == 0);
    say("forked\n");
    return 0;
}
