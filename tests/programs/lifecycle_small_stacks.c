// scenario: lifecycle: threads of the smallest stack there may be allocate near its end
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <limits.h>
#include <pthread.h>

static struct tally by_thread = {.name = "small_stack_thread"};

ALLOCATING void *small_stack_thread(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_thread, size);
    return p;
}

static void *thread(void *argument) {
    for (int i = 0; i < 100; i++) {
        void *p = small_stack_thread(100 + (size_t)i);
        if (i % 2) {
            tally_free(&by_thread, 100 + (size_t)i);
            free(p);
        }
    }
    return argument;
}

int main(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    REQUIRE(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN) == 0);
    for (int round = 0; round < 50; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], &attributes, thread, NULL) == 0);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    }
    expect_tally(&by_thread);
    say("small stacks\n");
    return 0;
}
