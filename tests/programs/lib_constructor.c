// Part of deadlock_loader.c: constructor and destructor run with the loader's lock held, and wait for a thread there.
#include "expect.h"
#include <pthread.h>

static void *thread(void *argument) {
    for (int i = 0; i < 20; i++) {
        void *p = malloc(100 + (size_t)i);
        keep(p);
        free(p);
    }
    return argument;
}

static void wait_for_a_thread(void) {
    pthread_t id;
    if (pthread_create(&id, NULL, thread, NULL) == 0) pthread_join(id, NULL);
    void *p = malloc(300);
    keep(p);
    free(p);
}

__attribute__((constructor)) static void load(void) { wait_for_a_thread(); }
__attribute__((destructor)) static void unload(void) { wait_for_a_thread(); }

ALLOCATING void *constructor_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}
