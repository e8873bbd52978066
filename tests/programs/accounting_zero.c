// scenario: accounting: zero-size blocks are objects of 0 bytes, freed and reallocated like others
// build: gcc -O2 -g
#include "expect.h"
#include <malloc.h>

#define BLOCKS 3000

static struct tally by_malloc = {.name = "zero_malloc"}, by_calloc = {.name = "zero_calloc"},
                    by_grown = {.name = "zero_grown"}, by_aligned = {.name = "zero_aligned"};
static void *blocks[BLOCKS];

ALLOCATING void *zero_malloc(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_malloc, 0);
    return p;
}

ALLOCATING void *zero_calloc(size_t count, size_t size) {
    void *p = calloc(count, size);
    keep(p);
    tally_alloc(&by_calloc, 0);
    return p;
}

ALLOCATING void *zero_grown(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_grown, size);
    return p;
}

ALLOCATING void *zero_aligned(void) {
    void *p = memalign(64, 0);
    keep(p);
    tally_alloc(&by_aligned, 0);
    return p;
}

int main(void) {
    size_t zero = 0;
    keep(zero);
    for (int i = 0; i < BLOCKS; i++) {
        struct tally *owner = i % 3 == 0 ? &by_malloc : i % 3 == 1 ? &by_calloc : &by_aligned;
        blocks[i] = i % 3 == 0 ? zero_malloc(zero) : i % 3 == 1 ? zero_calloc(zero, i) : zero_aligned();
        REQUIRE(blocks[i]);
        if (i % 4 == 1) {
            tally_free(owner, 0);
            free(blocks[i]);
        } else if (i % 4 == 2) {
            tally_free(owner, 0);
            blocks[i] = zero_grown(blocks[i], 50);
        }
    }
    free(NULL);
    expect_tally(&by_malloc);
    expect_tally(&by_calloc);
    expect_tally(&by_grown);
    expect_tally(&by_aligned);
    say("nothing, often\n");
    return 0;
}
