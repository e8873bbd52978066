// scenario: deadlock: malloc in atfork handlers, before and after, in parent and child, while a thread allocates
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <sys/wait.h>

static struct tally by_prepare = {.name = "atfork_prepare"}, by_parent = {.name = "atfork_parent"},
                    by_child = {.name = "atfork_child"};
static volatile int done;
static void *prepared;

ALLOCATING void *atfork_prepare(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_prepare, size);
    return p;
}

ALLOCATING void *atfork_parent(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

ALLOCATING void *atfork_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_child, size);
    return p;
}

static void prepare(void) { prepared = atfork_prepare(100); }

static void in_parent(void) {
    free(prepared);
    tally_free(&by_prepare, 100);
    atfork_parent(30);
}

static void in_child(void) {
    free(prepared);
    atfork_child(40);
}

static void *allocate(void *argument) {
    while (!done) {
        void *p = malloc(500);
        keep(p);
        free(p);
    }
    return argument;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    pthread_t thread;
    REQUIRE(pthread_atfork(prepare, in_parent, in_child) == 0);
    REQUIRE(pthread_create(&thread, NULL, allocate, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            if (i == 0) expect_tally_of_child(&by_child);
            exit(36);
        }
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 36);
    }
    done = 1;
    pthread_join(thread, NULL);
    expect_tally(&by_prepare);
    expect_tally(&by_parent);
    expect_tally(&by_child);
    say_number("rounds", rounds);
    return 0;
}
