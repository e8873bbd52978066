// scenario: accounting: realloc chains: in place, moving, shrinking, from NULL, to 0, failing, reallocarray
// build: gcc -O2 -g
#include "expect.h"
#include <errno.h>
#include <stdint.h>

static struct tally by_first = {.name = "chain_first"}, by_grow = {.name = "chain_grow"},
                    by_null = {.name = "chain_from_null"}, by_array = {.name = "chain_array"},
                    by_failing = {.name = "chain_failing"};

ALLOCATING void *chain_first(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_first, size);
    return p;
}

ALLOCATING void *chain_grow(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_grow, size);
    return p;
}

ALLOCATING void *chain_from_null(size_t size) {
    void *p = realloc(NULL, size);
    keep(p);
    tally_alloc(&by_null, size);
    return p;
}

ALLOCATING void *chain_array(void *old, size_t count, size_t size) {
    void *p = reallocarray(old, count, size);
    keep(p);
    tally_alloc(&by_array, count * size);
    return p;
}

// What fails is no allocation, and leaves the old block as it was.
ALLOCATING void *chain_failing(void *old) {
    size_t size = PTRDIFF_MAX;
    keep(size);
    void *p = realloc(old, size);
    keep(p);
    return p;
}

// To 0 is a free in glibc; no new block comes of it.
ALLOCATING void *chain_to_zero(void *old) {
    size_t size = 0;
    keep(size);
    void *p = realloc(old, size);
    keep(p);
    return p;
}

int main(void) {
    long moved = 0;
    for (int chain = 0; chain < 200; chain++) {
        size_t size = 16;
        struct tally *owner = &by_first;
        char *p = chain_first(size);
        p[0] = (char)chain;
        for (int link = 0; link < 30; link++) {
            size_t next = link % 7 == 6 ? size / 2 : size + (size_t)link * 13;
            char *old = p;
            tally_free(owner, size);
            owner = &by_grow;
            p = chain_grow(p, next);
            moved += p != old;
            size = next;
            REQUIRE(p[0] == (char)chain);
        }
        if (chain % 2) {
            tally_free(owner, size);
            free(p);
        } else if (chain % 4 == 0) {
            tally_free(owner, size);
            REQUIRE(chain_to_zero(p) == NULL);
        }
    }
    REQUIRE(moved > 0);

    // Large enough for mremap.
    char *large = chain_from_null(300000);
    memset(large, 7, 300000);
    size_t size = 300000;
    struct tally *owner = &by_null;
    for (int i = 0; i < 20; i++) {
        size_t count = size / 100 + 5000;
        tally_free(owner, size);
        large = chain_array(large, count, 100);
        owner = &by_array;
        size = count * 100;
        REQUIRE(large[299999] == 7);
    }
    errno = 0;
    REQUIRE(chain_failing(large) == NULL && errno == ENOMEM && large[1] == 7);
    errno = 0;
    size_t huge = SIZE_MAX / 8;
    keep(huge);
    REQUIRE(reallocarray(large, huge, 16) == NULL && errno == ENOMEM && large[2] == 7);

    expect_tally(&by_first);
    expect_tally(&by_grow);
    expect_tally(&by_null);
    expect_tally(&by_array);
    expect_tally(&by_failing);
    say("chains done\n");
    return 0;
}
