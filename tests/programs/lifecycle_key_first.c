// scenario: lifecycle: a thread allocates for the first time in a pthread key's destructor, and its stack goes with it; then recording starts anew
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

#define THREADS 20

static struct tally by_destructor = {.name = "first_in_destructor"};
static pthread_key_t key;

ALLOCATING void *first_in_destructor(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_destructor, size);
    return p;
}

static void destroy(void *argument) {
    free(first_in_destructor(90));
    tally_free(&by_destructor, 90);
    first_in_destructor(60); // Left behind.
    if (argument != &key) pthread_setspecific(key, &key);
}

static void *thread(void *argument) {
    pthread_setspecific(key, argument);
    return NULL;
}

static void threads(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    // Too large for libc to keep for the next thread.
    REQUIRE(pthread_attr_setstacksize(&attributes, 64 << 20) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        REQUIRE(pthread_create(&id, &attributes, thread, &by_destructor) == 0);
        pthread_join(id, NULL);
    }
}

int main(void) {
    int (*start)(const char *, unsigned long);
    // Without the library there is nothing to start.
    *(void **)&start = dlsym(RTLD_DEFAULT, "heapprof_start");
    REQUIRE(pthread_key_create(&key, destroy) == 0);
    threads();
    by_destructor = (struct tally){.name = by_destructor.name};
    if (start) REQUIRE(start(NULL, 0) == 0);
    threads();
    expect_tally(&by_destructor);
    say_number("destroyed", by_destructor.freed_objects);
    return 0;
}
