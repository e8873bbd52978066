// scenario: deadlock: main returns while another thread forks, again and again (argument: rounds)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static volatile int begun;

static void *fork_on(void *argument) {
    begun = 1;
    for (;;) {
        pid_t pid = fork();
        // As it is no end that a library hears of: nothing is written for it.
        if (pid == 0) syscall(SYS_exit_group, 0);
        while (waitpid(pid, NULL, 0) != pid) {}
    }
    return argument;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 30;
    // A fork takes a while.
    char *large = malloc(64 << 20);
    memset(large, 1, 64 << 20);
    keep(large);
    for (int round = 0; round < rounds; round++) {
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            pthread_t thread;
            REQUIRE(pthread_create(&thread, NULL, fork_on, NULL) == 0);
            while (!begun) {}
            usleep(round % 10 * 300);
            return 3;
        }
        int status = 0;
        while (waitpid(pid, &status, 0) != pid) {}
        REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    free(large);
    return 0;
}
