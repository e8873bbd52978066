// scenario: deadlock: malloc inside the callback of dl_iterate_phdr, which holds the loader's lock, in many threads
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <link.h>
#include <pthread.h>

static struct tally by_callback = {.name = "iterate_callback_block"}, by_outside = {.name = "iterate_outside"};

ALLOCATING void *iterate_callback_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_callback, size);
    return p;
}

ALLOCATING void *iterate_outside(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_outside, size);
    return p;
}

static int callback(struct dl_phdr_info *info, size_t size, void *data) {
    // How many libraries there are is not the program's to say: it allocates for the first one only.
    (void)info, (void)size;
    int *calls = data;
    if ((*calls)++ == 0) {
        free(iterate_callback_block(200));
        tally_free(&by_callback, 200);
        iterate_callback_block(50);
    }
    return 0;
}

static void *thread(void *argument) {
    for (int i = 0; i < 500; i++) {
        int calls = 0;
        dl_iterate_phdr(callback, &calls);
        free(iterate_outside(60));
        tally_free(&by_outside, 60);
    }
    return argument;
}

int main(void) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    expect_tally(&by_callback);
    expect_tally(&by_outside);
    say("iterated\n");
    return 0;
}
