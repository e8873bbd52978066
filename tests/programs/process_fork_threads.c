// scenario: process: fork, again and again, while other threads allocate (argument: rounds)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <sys/wait.h>

static struct tally by_thread = {.name = "forking_thread"}, by_child = {.name = "forking_child"};
static volatile int done;

ALLOCATING void *forking_thread(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_thread, size);
    return p;
}

ALLOCATING void *forking_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_child, size);
    return p;
}

static void *thread(void *argument) {
    unsigned long state = 5;
    while (!done) {
        size_t size = 1 + next_random(&state) % 4000;
        void *p = forking_thread(size);
        tally_free(&by_thread, size);
        free(p);
    }
    return argument;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            for (int j = 0; j < 50; j++) {
                void *p = forking_child(100);
                if (j % 2) {
                    tally_free(&by_child, 100);
                    free(p);
                }
            }
            // One road out with handlers and one without.
            if (i == 0) expect_tally_of_child(&by_child);
            if (i % 2) _exit(30);
            exit(30);
        }
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 30);
    }
    done = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    expect_tally(&by_thread);
    expect_tally(&by_child);
    say_number("rounds", rounds);
    return 0;
}
