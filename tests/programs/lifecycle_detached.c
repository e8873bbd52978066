// scenario: lifecycle: detached threads that never allocate; libc frees what was other threads' when their own end is announced no more; then recording starts anew
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

static struct tally by_main = {.name = "detached_main"};

ALLOCATING void *detached_main(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_main, size);
    return p;
}

static void *sleeps(void *argument) {
    usleep(500);
    return argument;
}

int main(void) {
    int (*start)(const char *, unsigned long);
    pthread_attr_t attributes;
    // Without the library there is nothing to start.
    *(void **)&start = dlsym(RTLD_DEFAULT, "heapprof_start");
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 16; i++) {
            pthread_t id;
            REQUIRE(pthread_create(&id, &attributes, sleeps, NULL) == 0);
        }
        usleep(3000);
    }
    usleep(50000);
    if (start) REQUIRE(start(NULL, 0) == 0);
    for (int i = 0; i < 40; i++) detached_main(70);
    expect_tally(&by_main);
    say("gone\n");
    return 0;
}
