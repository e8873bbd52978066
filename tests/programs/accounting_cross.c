// scenario: accounting: one half of the threads allocates, the other half frees or reallocs it (argument: pairs)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <sched.h>

#define RING 256
#define BLOCKS 60000

static struct tally by_producer = {.name = "cross_produce"}, by_consumer = {.name = "cross_regrow"};

struct item {
    void *block;
    size_t size;
};

struct ring {
    struct item items[RING];
    unsigned long head, tail;
    int blocks;
};

static struct ring rings[16];

ALLOCATING void *cross_produce(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_producer, size);
    return p;
}

ALLOCATING void *cross_regrow(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_consumer, size);
    return p;
}

static void *producer(void *argument) {
    struct ring *ring = argument;
    unsigned long state = 99 + (unsigned long)(ring - rings);
    for (int i = 0; i < ring->blocks; i++) {
        while (ring->head - __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) == RING) sched_yield();
        struct item *item = &ring->items[ring->head % RING];
        item->size = 1 + next_random(&state) % 1000;
        item->block = cross_produce(item->size);
        __atomic_store_n(&ring->head, ring->head + 1, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void *consumer(void *argument) {
    struct ring *ring = argument;
    for (int i = 0; i < ring->blocks; i++) {
        while (__atomic_load_n(&ring->head, __ATOMIC_ACQUIRE) == ring->tail) sched_yield();
        struct item item = ring->items[ring->tail % RING];
        __atomic_store_n(&ring->tail, ring->tail + 1, __ATOMIC_RELEASE);
        if (i % 10 == 9) continue; // Lost for good: in use at the end.
        tally_free(&by_producer, item.size);
        if (i % 3) {
            free(item.block);
            continue;
        }
        void *grown = cross_regrow(item.block, item.size * 2);
        if (i % 2) {
            tally_free(&by_consumer, item.size * 2);
            free(grown);
        }
    }
    return NULL;
}

int main(int argc, char **argv) {
    int pairs = argc > 1 ? atoi(argv[1]) : 1;
    REQUIRE(pairs >= 1 && pairs <= 16);
    pthread_t threads[32];
    for (int i = 0; i < pairs; i++) {
        rings[i].blocks = BLOCKS / pairs;
        REQUIRE(pthread_create(&threads[2 * i], NULL, producer, &rings[i]) == 0);
        REQUIRE(pthread_create(&threads[2 * i + 1], NULL, consumer, &rings[i]) == 0);
    }
    for (int i = 0; i < 2 * pairs; i++) pthread_join(threads[i], NULL);
    expect_tally(&by_producer);
    expect_tally(&by_consumer);
    say_number("pairs", pairs);
    return 0;
}
