// scenario: accounting: N threads count themselves, each freeing only what it allocated itself (argument: N)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>

#define SLOTS 512

static struct tally by_small = {.name = "threads_small"}, by_large = {.name = "threads_large"},
                    by_regrow = {.name = "threads_regrow"};
static int rounds;

ALLOCATING void *threads_small(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_small, size);
    return p;
}

ALLOCATING void *threads_large(size_t size) {
    void *p = calloc(1, size);
    keep(p);
    tally_alloc(&by_large, size);
    return p;
}

ALLOCATING void *threads_regrow(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_regrow, size);
    return p;
}

struct slot {
    void *block;
    size_t size;
    struct tally *owner;
};

static void *thread(void *argument) {
    // On the stack: the tables of the test itself are no allocations.
    struct slot slots[SLOTS];
    unsigned long state = 0x9e3779b97f4a7c15UL + (unsigned long)(size_t)argument * 77;
    memset(slots, 0, sizeof slots);
    for (int i = 0; i < rounds; i++) {
        struct slot *slot = &slots[next_random(&state) % SLOTS];
        if (slot->block && i % 4 == 0) {
            size_t size = 1 + next_random(&state) % 2000;
            tally_free(slot->owner, slot->size);
            slot->block = threads_regrow(slot->block, size);
            slot->size = size;
            slot->owner = &by_regrow;
            continue;
        }
        if (slot->block) {
            tally_free(slot->owner, slot->size);
            free(slot->block);
            slot->block = NULL;
            continue;
        }
        int large = i % 64 == 0;
        slot->size = next_random(&state) % (large ? 200000 : 500);
        slot->owner = large ? &by_large : &by_small;
        slot->block = large ? threads_large(slot->size) : threads_small(slot->size);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 2;
    REQUIRE(count >= 1 && count <= 64);
    rounds = 400000 / count;
    pthread_t threads[64];
    for (long i = 0; i < count; i++) REQUIRE(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    expect_tally(&by_small);
    expect_tally(&by_large);
    expect_tally(&by_regrow);
    say_number("threads", count);
    return 0;
}
