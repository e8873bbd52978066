// scenario: lifecycle: destructors of pthread keys allocate, free, and set their key again for the next round
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>

#define KEYS 64
#define THREADS 20

static struct tally by_destructor = {.name = "key_destructor"}, by_thread = {.name = "key_thread"};
static pthread_key_t keys[KEYS];

ALLOCATING void *key_thread(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_thread, size);
    return p;
}

ALLOCATING void *key_destructor(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_destructor, size);
    return p;
}

struct value {
    int key, rounds;
};

static void destroy(void *argument) {
    struct value *value = argument;
    key_destructor(70); // Left behind.
    free(key_destructor(80));
    tally_free(&by_destructor, 80);
    if (++value->rounds < 4) {
        pthread_setspecific(keys[value->key], value);
        return;
    }
    free(value);
    tally_free(&by_thread, sizeof *value);
}

static void *thread(void *argument) {
    for (int i = 0; i < KEYS; i++) {
        struct value *value = key_thread(sizeof *value);
        *value = (struct value){.key = i};
        pthread_setspecific(keys[i], value);
    }
    return argument;
}

int main(void) {
    // More keys than fit in the first level of glibc's table, so that one more level is allocated.
    for (int i = 0; i < KEYS; i++) REQUIRE(pthread_key_create(&keys[i], destroy) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        REQUIRE(pthread_create(&id, NULL, thread, NULL) == 0);
        pthread_join(id, NULL);
    }
    expect_tally(&by_thread);
    expect_tally(&by_destructor);
    say_number("destroyed", by_destructor.freed_objects);
    return 0;
}
