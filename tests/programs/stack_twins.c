// scenario: stacks: stacks that differ in one return address only, at the same depth and place, in turn
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>

static struct tally by[4] = {{.name = "twin_a"}, {.name = "twin_b"}, {.name = "twin_c"}, {.name = "twin_d"}};

// Everything below and above the twins is the same function at the same address.
ALLOCATING void *twin_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

ALLOCATING void *twin_shared_4(size_t size) {
    void *p = twin_leaf(size);
    keep(p);
    return p;
}

ALLOCATING void *twin_shared_3(size_t size) {
    void *p = twin_shared_4(size);
    keep(p);
    return p;
}

#define TWIN(name, number) \
    ALLOCATING void *name(size_t size) { \
        void *p = twin_shared_3(size); \
        keep(p); \
        tally_alloc(&by[number], size); \
        return p; \
    }
TWIN(twin_a, 0)
TWIN(twin_b, 1)
TWIN(twin_c, 2)
TWIN(twin_d, 3)

static void *(*const twins[])(size_t) = {twin_a, twin_b, twin_c, twin_d};

ALLOCATING void *twin_shared_2(int which, size_t size) {
    void *p = twins[which](size);
    keep(p);
    return p;
}

ALLOCATING void *twin_shared_1(int which, size_t size) {
    void *p = twin_shared_2(which, size);
    keep(p);
    return p;
}

static void *run(void *argument) {
    unsigned long state = 3 + (unsigned long)(size_t)argument;
    for (int i = 0; i < 40000; i++) {
        int which = (int)(next_random(&state) % 4);
        size_t size = 10 + (size_t)which;
        void *p = twin_shared_1(which, size);
        if (i % 100) {
            free(p);
            tally_free(&by[which], size);
        }
    }
    return NULL;
}

int main(void) {
    pthread_t other;
    REQUIRE(pthread_create(&other, NULL, run, (void *)1) == 0);
    run(NULL);
    pthread_join(other, NULL);
    for (int i = 0; i < 4; i++) expect_tally(&by[i]);
    say("twins\n");
    return 0;
}
