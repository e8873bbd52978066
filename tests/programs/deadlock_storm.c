// scenario: deadlock: a storm of threads that come and go while others allocate and libraries are opened (argument: rounds)
// build: gcc -O2 -g -pthread
// libs: lib_plugin.c -DPLUGIN=plugin_one -DSHIFT=16 -> libplugin_one.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

static struct tally by_thread = {.name = "storm_thread"};
static int rounds;
static volatile int done;

ALLOCATING void *storm_thread(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_thread, size);
    return p;
}

static void *brief(void *argument) {
    void *p = storm_thread(300);
    storm_thread(20);
    tally_free(&by_thread, 300);
    free(p);
    return argument;
}

static void *weather(void *argument) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setstacksize(&detached, 64 << 10);
    for (int i = 0; i < rounds; i++) {
        pthread_t threads[4];
        for (int j = 0; j < 4; j++) REQUIRE(pthread_create(&threads[j], &detached, brief, NULL) == 0);
        for (int j = 0; j < 4; j++) pthread_join(threads[j], NULL);
    }
    return argument;
}

static void *libraries(void *argument) {
    while (!done) {
        void *library = dlopen("libplugin_one.so", RTLD_NOW);
        REQUIRE(library && dlclose(library) == 0);
    }
    return argument;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    pthread_t threads[4];
    for (int i = 0; i < 3; i++) REQUIRE(pthread_create(&threads[i], NULL, weather, NULL) == 0);
    REQUIRE(pthread_create(&threads[3], NULL, libraries, NULL) == 0);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    done = 1;
    pthread_join(threads[3], NULL);
    expect_tally(&by_thread);
    say_number("rounds", rounds);
    return 0;
}
