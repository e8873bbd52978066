// scenario: lifecycle: a very large number of dumps asked for by the program itself, some while a thread allocates
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

static struct tally by_main = {.name = "dumps_main"}, by_thread = {.name = "dumps_thread"};
static volatile int done;

ALLOCATING void *dumps_main(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_main, size);
    return p;
}

ALLOCATING void *dumps_thread(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_thread, size);
    return p;
}

static void *thread(void *argument) {
    while (!done) {
        void *p = dumps_thread(300);
        tally_free(&by_thread, 300);
        free(p);
    }
    return argument;
}

int main(int argc, char **argv) {
    int dumps = argc > 1 ? atoi(argv[1]) : 200;
    // Run bare there is no such function, and nothing to ask for.
    void *found = dlsym(RTLD_DEFAULT, "heapprof_dump");
    int (*dump)(const char *);
    memcpy(&dump, &found, sizeof dump);
    pthread_t id;
    REQUIRE(pthread_create(&id, NULL, thread, NULL) == 0);
    for (int i = 0; i < dumps; i++) {
        dumps_main(100);
        if (dump) dump("asked for");
    }
    done = 1;
    pthread_join(id, NULL);
    expect_tally(&by_main);
    expect_tally(&by_thread);
    say_number("dumps", dumps);
    return 0;
}
