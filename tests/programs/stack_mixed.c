// scenario: stacks: functions with and without frame pointers call each other, twenty deep, across a library too
// build: gcc -O2 -g
// libs: lib_mixed.c -fno-omit-frame-pointer -> libmixed_framed.so
// libs: lib_mixed.c -DBARE -fomit-frame-pointer -> libmixed_bare.so
// link: -lmixed_framed -lmixed_bare
#include "expect.h"

typedef void *(*walk)(int, unsigned long, size_t);

extern void *mixed_lib_framed(int depth, unsigned long way, size_t size, walk back);
extern void *mixed_lib_bare(int depth, unsigned long way, size_t size, walk back);

static struct tally by_root = {.name = "mixed_root"}, by_leaf = {.name = "mixed_leaf"};

ALLOCATING void *mixed_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_leaf, size);
    tally_alloc(&by_root, size);
    return p;
}

static void *step(int depth, unsigned long way, size_t size);

ALLOCATING __attribute__((optimize("no-omit-frame-pointer"))) void *mixed_framed(int depth, unsigned long way, size_t size) {
    void *p = step(depth - 1, way >> 2, size);
    keep(p);
    return p;
}

ALLOCATING __attribute__((optimize("omit-frame-pointer"))) void *mixed_bare(int depth, unsigned long way, size_t size) {
    void *p = step(depth - 1, way >> 2, size);
    keep(p);
    return p;
}

static void *step(int depth, unsigned long way, size_t size) {
    if (depth == 0) return mixed_leaf(size);
    switch (way & 3) {
    case 0: return mixed_framed(depth, way, size);
    case 1: return mixed_bare(depth, way, size);
    case 2: return mixed_lib_framed(depth - 1, way >> 2, size, step);
    default: return mixed_lib_bare(depth - 1, way >> 2, size, step);
    }
}

ALLOCATING void *mixed_root(unsigned long way, size_t size) {
    void *p = step(20, way, size);
    keep(p);
    return p;
}

int main(void) {
    unsigned long state = 11;
    for (int i = 0; i < 5000; i++) {
        size_t size = 1 + (size_t)i % 90;
        void *p = mixed_root(next_random(&state), size);
        if (i % 3 == 0) continue;
        free(p);
        tally_free(&by_leaf, size);
        tally_free(&by_root, size);
    }
    expect_tally(&by_leaf);
    expect_tally(&by_root);
    say("mixed\n");
    return 0;
}
