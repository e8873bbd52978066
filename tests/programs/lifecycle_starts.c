// scenario: lifecycle: threads start the recording anew at the same time, while others allocate; what comes after the last start counts
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

static struct tally by_main = {.name = "starts_main"};
static int (*start)(const char *, unsigned long);
static volatile int done;

ALLOCATING void *starts_main(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_main, size);
    return p;
}

static void *starts(void *argument) {
    for (int i = 0; i < 50; i++)
        if (start) start(NULL, i % 2 ? 0 : 512);
    return argument;
}

static void *allocate(void *argument) {
    while (!done) {
        void *p = malloc(200);
        keep(p);
        free(p);
    }
    return argument;
}

int main(void) {
    pthread_t starting[4], allocating[2];
    // Without the library there is nothing to start.
    *(void **)&start = dlsym(RTLD_DEFAULT, "heapprof_start");
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&allocating[i], NULL, allocate, NULL) == 0);
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&starting[i], NULL, starts, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(starting[i], NULL);
    if (start) REQUIRE(start(NULL, 0) == 0);
    for (int i = 0; i < 500; i++) {
        void *p = starts_main(100);
        if (i % 5) {
            free(p);
            tally_free(&by_main, 100);
        }
    }
    done = 1;
    for (int i = 0; i < 2; i++) pthread_join(allocating[i], NULL);
    expect_tally(&by_main);
    say("started\n");
    return 0;
}
