// scenario: stacks: frames that align themselves, so that the way back is in memory and in no register
// build: gcc -g
// needs: x86-64
// variant: O0 -O0
// variant: O2 -O2
// variant: realign -O2 -mstackrealign
// variant: avx -O2 -mstackrealign -mpreferred-stack-boundary=6
#include "expect.h"
#include <stdint.h>

static struct tally by_leaf = {.name = "realign_leaf"}, by_64 = {.name = "realign_64"},
                    by_256 = {.name = "realign_256"}, by_root = {.name = "realign_root"};

ALLOCATING void *realign_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_leaf, size);
    tally_alloc(&by_root, size);
    return p;
}

ALLOCATING void *realign_64(int depth, size_t size) {
    _Alignas(64) char room[64];
    char *start = room;
    keep(start);
    REQUIRE((uintptr_t)start % 64 == 0);
    void *p = depth ? realign_64(depth - 1, size) : realign_leaf(size);
    keep(p);
    keep(start);
    return p;
}

// Aligned and of variable size at once.
ALLOCATING void *realign_256(int depth, size_t size) {
    _Alignas(256) char room[256];
    char more[depth * 9 + 1];
    char *start = room, *other = more;
    keep(start);
    keep(other);
    REQUIRE((uintptr_t)start % 256 == 0);
    void *p = depth ? realign_256(depth - 1, size) : realign_64(3, size);
    keep(p);
    keep(start);
    keep(other);
    return p;
}

ALLOCATING void *realign_root(int depth, size_t size) {
    void *p = depth % 2 ? realign_256(depth, size) : realign_64(depth, size);
    keep(p);
    return p;
}

int main(void) {
    for (int i = 0; i < 3000; i++) {
        int depth = i % 20;
        realign_root(depth, 25);
        tally_alloc(&by_64, 25);
        if (depth % 2) tally_alloc(&by_256, 25);
    }
    const struct tally *all[] = {&by_leaf, &by_64, &by_256, &by_root};
    for (int i = 0; i < 4; i++) expect_tally(all[i]);
    say("aligned frames\n");
    return 0;
}
