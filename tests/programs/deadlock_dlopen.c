// scenario: deadlock: one thread opens and closes libraries, others allocate through them (argument: rounds)
// build: gcc -O2 -g -pthread
// libs: lib_plugin.c -DPLUGIN=plugin_one -DSHIFT=16 -> libplugin_one.so
// libs: lib_plugin.c -DPLUGIN=plugin_two -DSHIFT=64 -> libplugin_two.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

static struct tally by_thread = {.name = "dlopen_thread"}, by_one = {.name = "plugin_one"},
                    by_two = {.name = "plugin_two"};
static volatile int done;

ALLOCATING void *dlopen_thread(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_thread, size);
    return p;
}

static void *allocate(void *argument) {
    unsigned long state = 17;
    while (!done) {
        size_t size = next_random(&state) % 2000;
        void *p = dlopen_thread(size);
        tally_free(&by_thread, size);
        free(p);
    }
    return argument;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1000;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) REQUIRE(pthread_create(&threads[i], NULL, allocate, NULL) == 0);
    for (int i = 0; i < rounds; i++) {
        struct tally *by = i % 2 ? &by_one : &by_two;
        void *library = dlopen(i % 2 ? "libplugin_one.so" : "libplugin_two.so", i % 3 ? RTLD_NOW : RTLD_LAZY);
        REQUIRE(library);
        void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
        void *p = (*entry)(100);
        tally_alloc(by, 100);
        if (i % 5) {
            free(p);
            tally_free(by, 100);
        }
        // Fails, with a message that is allocated.
        if (i % 10 == 0) REQUIRE(dlopen("libthere_is_none.so", RTLD_NOW) == NULL && dlerror());
        REQUIRE(dlclose(library) == 0);
    }
    done = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    expect_tally(&by_thread);
    expect_tally(&by_one);
    expect_tally(&by_two);
    say_number("rounds", rounds);
    return 0;
}
